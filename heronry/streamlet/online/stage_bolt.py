"""Base of chains and reducers: the program, the sinks and failed records of a stage, and their two-phase commit.

All output of the writers of a task at a checkpoint is prepared under one token, the checkpoint's name for this task.
The bolt writes its own state into ``self.state`` just before (``pre_save``). The state also records which writers had
output, because a commit must find that output, or find that it was committed before. Without checkpoints, the bolt
prepares and commits independently, every two seconds and at its end. That is as often as records become visible
otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from heronry.api.metrics import CountMetric
from heronry.api.state import Checkpoint, TwoPhaseSink
from heronry.api.tuples import Tuple
from heronry.connect.seats import seat_of
from heronry.streamlet.online.chain import StepChain
from heronry.streamlet.online.letters import PUT, FailedRecordWriter
from heronry.streamlet.online.locate import STAGE, load_submitted_program
from heronry.streamlet.online.server_writer import ServerWriter
from heronry.streamlet.online.settings import BEGUN, keeps_state, own_folder
from heronry.streamlet.online.sinks import SinkSet
from heronry.streamlet.online.stages import ProgramStage, StageGraph, plan_stages
from heronry.streamlet.online.writers import Phased, StagedWriter, TaskOf
from heronry.streamlet.program import Program

SHOW_SECONDS = 2.0
FINAL = "final"  # in the task's state: the number of tasks when readers were told of the end
PREPARED = "prepared"  # in the task's state: token → the topology's life, indices of the writers that had output
OWN = (FINAL, PUT, PREPARED)  # a task never inherits these from another one


class StageBolt(TwoPhaseSink):
    """Base class of the bolts of a program.

    A subclass implements ``keep_state`` and calls ``begin_stage`` first in ``initialize``.
    """

    auto_anchor = False
    auto_ack = True
    exception_policy = "fail"
    commits_alone: ClassVar[bool] = True
    clock = staticmethod(time.monotonic)
    _prepared_by_others: Mapping[str, tuple[int, list[int]]] = {}  # may include tasks that were removed

    def begin_stage(self, config: dict[str, Any], context: Any) -> tuple[Program, StageGraph, ProgramStage]:
        """Load the program and set up the stage of this component.

        Returns:
            The program, its stages, and the stage of this component.
        """
        program = load_submitted_program(config)
        stages = plan_stages(program)
        stage = stages.stage(config[STAGE])
        of = len(context.get_component_tasks(stage.name))
        self._alone = not keeps_state(config)
        life = int(time.time() * 1000) if self._alone else int(config[BEGUN])
        seat = seat_of(context)._replace(step=context.get_topology_name())
        self.place = TaskOf(context.get_task_index(), of, life, own_folder(config), seat)
        self.task: int = context.get_task_id()
        self.sinks = SinkSet(program, stage.steps, self.place)
        self.fields_of = partial(context.get_fields, stage.name)
        count = context.register_metric("failed-record-count", CountMetric())
        self.letters = FailedRecordWriter(self, config, stage.name, self.place, self.state, count)
        self.chain = StepChain(program, stage.steps, self.log)
        self.writers: list[Phased] = [*self.sinks.writers, self.letters]
        self.final = False  # True if all input has ended
        self._prepared_at = self.clock()
        self._number = 0
        if self.state.get(FINAL) != of:
            for writer in self.writers:
                if isinstance(writer, StagedWriter):
                    writer.begin()
        if self._alone:
            for token in [token for token in self.prepared() if token.split("-")[2] == str(self.task)]:
                self.abort(token)  # left by a task that died
        return program, stages, stage

    def union_state(self, states: list[dict[Any, Any]]) -> None:
        """Take over the state of the other tasks, if this task is new."""
        self._prepared_by_others = {token: had for state in states for token, had in state.get(PREPARED, {}).items()}
        if not self.state and states:
            self.state.update({name: value for name, value in states[0].items() if name not in OWN})

    def keep_state(self) -> None:
        """Write everything to be checkpointed into ``self.state`` and ``self.keyed``. It may still emit."""
        raise NotImplementedError

    # Two-phase commit.

    def pre_save(self, _: str) -> None:
        """Write the state just before a checkpoint."""
        self.keep_state()

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """Prepare the output of all writers.

        Returns:
            The token, or None if no writer had output.
        """
        final = self.final and self.state.get(FINAL) != self.place.of
        some = [writer.prepare(checkpoint, final) for writer in self.writers]
        if final:
            self.state[FINAL] = self.place.of
        if not any(some):
            return None
        if not self._alone:
            had = [place for place, something in enumerate(some) if something]
            self.state.setdefault(PREPARED, {})[checkpoint.name] = (self.place.life, had)
        return checkpoint.name

    def commit(self, checkpoint: int, token: str) -> None:
        """Make the output of `token` visible to readers.

        Raises:
            OutputIsGone: Output was prepared, and is neither there nor marked as committed.
        """
        mine = self.state.get(PREPARED, {})
        life, had = mine.get(token) or self._prepared_by_others.get(token) or (None, [])
        known = life == self.place.life  # else it is of a topology that this one continues, or not of a checkpoint
        for place, writer in enumerate(self.writers):
            if known and place in had and isinstance(writer, StagedWriter | ServerWriter):
                writer.commit(token, certain=True)
            elif not known or place in had:
                writer.commit(token)
        mine.pop(token, None)

    def abort(self, token: str) -> None:
        """Discard the prepared output of `token`."""
        self.state.get(PREPARED, {}).pop(token, None)
        for writer in self.writers:
            writer.abort(token)

    def prepared(self) -> list[str]:
        """Return the prepared tokens of all writers."""
        return sorted({token for writer in self.writers for token in writer.prepared()})

    # Without checkpoints.

    def process_tick(self, tup: Tuple) -> None:
        """Prepare and commit at intervals, if the topology takes no checkpoints."""
        if self._alone and self.clock() - self._prepared_at >= SHOW_SECONDS:
            self._show()

    def _show(self) -> None:
        self._prepared_at = self.clock()
        self._number += 1
        self.pre_save("")
        token = self.prepare(Checkpoint(self._number, 0, f"0-{self._number}-{self.task}-{self.place.life:x}"))
        if token is not None:
            self.commit(self._number, token)

    def close(self) -> None:
        """Stop cleanly.

        Output that no checkpoint holds is replayed. Without checkpoints, it is committed now.
        """
        writers: list[Phased] = getattr(self, "writers", [])
        if writers and self._alone:
            self._show()
        for writer in writers:
            writer.close()

"""Base of chains and reducers: the program, the sinks and failed records of a stage, and their two-phase commit.

All output of the writers of a task at a checkpoint is prepared under one token, the checkpoint's name for this task.
The bolt writes its own state into ``self.state`` just before (``pre_save``). The state also records which writers had
output, because a commit must find that output, or find that it was committed before. Without checkpoints, the bolt
prepares and commits independently, every two seconds and at its end. That is as often as records become visible
otherwise.

A block in which a record fails is *sifted*: it is halved until failing records are isolated. Those are written to
``failed/`` in the topology's folder, one line each (``heronry.streamlet.aside``), in a file for each checkpoint and
task that becomes visible with the checkpoint. They are counted in ``failed-record-count``. All other records are
processed.

The failure is raised to the engine instead, and all tasks return to the last checkpoint, in three cases: all of the
first records fail, the limit of the policy is exceeded, or the policy is to fail.

The unit that is put aside is the input of the component as a whole: a line, if one of its words fails (``failed_on``:
the word).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, ClassVar

from heron_runtime.model.keys import UnsupportedKey
from heronry.api.component import Bolt
from heronry.api.metrics import CountMetric
from heronry.api.state import Checkpoint, TwoPhaseSink
from heronry.api.tuples import Tuple
from heronry.connect.seats import seat_of
from heronry.streamlet.aside import MAX_FAILED_ON_CHARACTERS, MOST, TooManyFailures, failure_line, policy_of
from heronry.streamlet.errors import StepFailed, shown
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import StepChain
from heronry.streamlet.online.locate import STAGE, load_submitted_program
from heronry.streamlet.online.settings import BEGUN, keeps_state, own_folder
from heronry.streamlet.online.sinks import ServerWriter, SinkSet
from heronry.streamlet.online.stages import ProgramStage, StageGraph, plan_stages
from heronry.streamlet.online.writers import LinesWriter, Phased, StagedWriter, TaskOf
from heronry.streamlet.program import Program

LOGGED = 10  # number of failures logged one by one; then one in a thousand
RECORD_FAILURES = (StepFailed, UnsupportedKey)  # caused by the record, not by a disk or a connection
PUT = "aside"  # key in the task's state: number of records put aside
PASSED = "passed"  # key in the task's state: True once a record was processed
FIRST = 100  # if this many first records all fail, the program is wrong rather than its data


def _nowhere(_: int) -> str:
    return ""


class FailedRecordWriter(LinesWriter):
    """Writer of the failed records of one task. ``state`` is the task's own state."""

    suffix = ".jsonl"
    marks_end = False

    def __init__(
        self, bolt: Bolt, config: Mapping[str, Any], stage: str, task: TaskOf, state: MutableMapping[Any, Any],
        count: CountMetric,
    ) -> None:  # fmt: skip
        super().__init__(stage, task.folder / "failed", task)
        self._log = bolt.log
        self._state = state
        self.policy = policy_of(config)
        self.count = count

    def run(self, block: Block, run: Callable[[Block], None], where: Callable[[int], str] = _nowhere) -> None:
        """Run the block, and put aside the records that fail.

        Errors that are not caused by a record are raised. If the policy is to fail, all errors are raised.

        Args:
            block: The records.
            run: Function that processes a block.
            where: Function that returns the place of the record with this index.
        """
        try:
            run(block.copied() if self.policy.aside else block)  # a retry needs the original records
        except RECORD_FAILURES:
            if not self.policy.aside:
                raise
            self.sift(block, run, where)
        else:
            self.passed(len(block))

    def passed(self, records: int) -> None:
        """Note that a number of records was processed."""
        if records and PASSED not in self._state:
            self._state[PASSED] = True

    def sift(self, block: Block, run: Callable[[Block], None], where: Callable[[int], str] = _nowhere) -> None:
        """Run a block that may contain failing records, halving it until they are isolated.

        Each run gets copies, because functions may have changed their records in place before one failed.
        """
        parts = [(0, block)]
        while parts:
            first, part = parts.pop()
            try:
                run(part.copied())
                self.passed(len(part))
            except RECORD_FAILURES as error:
                size = len(part)
                if size <= 1:
                    self.put(part.records[0] if size else None, error, where(first) if size else "")
                    continue
                half = size // 2
                parts += [(first + half, part.picked(list(range(half, size)))), (first, part.picked(list(range(half))))]

    def put(self, record: Any, error: BaseException, where: str = "") -> None:
        """Put a record aside.

        Raises:
            TooManyFailures: The limit of the policy is reached, or all of the first records have failed.
            BaseException: The error itself, if the policy is to fail.
        """
        if not self.policy.aside:
            raise error
        cause = error.__cause__ or error
        step, failed_on = (error.step, error.record) if isinstance(error, StepFailed) else (self._name, record)
        already = self._state.get(PUT, 0)
        if already >= self.policy.most:
            raise TooManyFailures(
                f"task {self._task.number} of {self._name} has put {already} records aside, as many as {MOST} allows; "
                f"step {step!r} failed on {shown(failed_on)}: {shown(cause)}"
            ) from error
        if already + 1 >= FIRST and PASSED not in self._state:
            raise TooManyFailures(
                f"all of the first {FIRST} records of task {self._task.number} of {self._name} failed; step {step!r} "
                f"failed on {shown(failed_on)}: {shown(cause)}",
                "Look at the step: a misspelt field or a wrong format makes every record fail.",
            ) from error
        self.count.incr()
        self._state[PUT] = already + 1
        if already < LOGGED or already % 1000 == 0:
            place = f" of {where}" if where else ""
            self._log.error(
                "step %r: the record %s%s is put aside, into %s (%d so far): %s",
                step, shown(failed_on), place, self._staging.root, already + 1, shown(cause, 2000),
            )  # fmt: skip
        self.take(failure_line(step, where, record, shown(failed_on, MAX_FAILED_ON_CHARACTERS), cause))

    def begin(self) -> None:
        """Do nothing: the folder is created with the first failed record."""


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
        # A life with another number of tasks may have removed the marks, and then have taken no checkpoint.
        if any(isinstance(writer, StagedWriter) and writer.has_lost_mark() for writer in self.writers):
            self.state.pop(FINAL, None)
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

"""What both sources share: blocks with ids, offsets on disk, marks of event time, the end.

Offsets are written at most once a second, and when the task stops (``OFFSETS/STEP-INDEX.json``, by rename): one write
for thousands of records. A finite source says FINAL when everything it emitted is acked, and repeats it, for the sake
of tasks that were restarted meanwhile. A source without new records, and without old ones that may come again,
says IDLE after a while, and repeats it, so that windows fed by others close. Its first task beats pulses (pulses.py) if
a reducer behind it wants them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from heron_runtime.files import replace_file
from heronry.api.component import Spout
from heronry.streamlet.online.locate import STAGE, find
from heronry.streamlet.online.offsets import Offsets, Span, as_plain, merged
from heronry.streamlet.online.pulses import PULSE_SECONDS, Heart
from heronry.streamlet.online.stages import stages_of
from heronry.streamlet.online.streams import BLOCKS, MARKS, PULSES
from heronry.streamlet.online.task_files import state_folder
from heronry.streamlet.online.watermark import Mark
from heronry.streamlet.program import SourceStep

COMMIT_SECONDS = 1.0
IDLE = "user.streamlet.idle.secs"
IDLE_SECONDS = 5.0
REPEAT_SECONDS = 5.0
END = -1  # the message id of the mark that says FINAL


class SourceSpout(Spout):
    """Derive and write ``open``, ``next_span``, ``emit_span``."""

    clock = staticmethod(time.monotonic)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Find the program and where this task had come to."""
        program = find(config)
        step = program.by_name[config[STAGE]]
        assert isinstance(step, SourceStep)
        self.step = step
        self.task = context.get_task_id()
        self.index, self.of = context.get_task_index(), len(context.get_component_tasks(step.name))
        self._folder = state_folder(config) / "offsets"
        self._idle_seconds = float(config.get(IDLE, IDLE_SECONDS))
        written = sorted(self._folder.glob(f"{step.name}-*.json"))
        self.offsets = Offsets(merged([json.loads(path.read_bytes()) for path in written]))
        now = self.clock()
        self._committed_at = self._active_at = self._final_at = now
        self._idle_at = now
        self._said_final = self._final_acked = False
        beats = self.index == 0 and any(before == step.name for before, _ in stages_of(program).pulse_edges())
        self.heart = Heart(step.name, time.time_ns()) if beats else None
        self._beat_at = now - PULSE_SECONDS
        self.open()

    # For the sources.

    def open(self) -> None:
        """Prepare to read from ``self.offsets.begin(file)`` on."""
        raise NotImplementedError

    def next_span(self) -> tuple[Span, tuple[Any, ...]] | None:
        """The next new piece and the values to emit; None if there is none now."""
        raise NotImplementedError

    def again(self, span: Span) -> tuple[Any, ...]:
        """The values of a piece that failed."""
        raise NotImplementedError

    def at_end(self) -> bool:
        """True if there will never be another new piece."""
        raise NotImplementedError

    # For the executor.

    def next_tuple(self) -> None:
        """One block: a failed one that is due, or a new one."""
        now = self.clock()
        if now - self._committed_at >= COMMIT_SECONDS:
            self._commit(now)
        if self.heart is not None and now - self._beat_at >= PULSE_SECONDS:
            self._beat(self.heart, now)
        failed = self.offsets.due(now)
        if failed is not None:
            number, span = failed
            self.emit((*self.again(span), self.offsets.tries(number)), number, BLOCKS)
            self._active(now)
            return
        found = self.next_span()
        if found is not None:
            span, values = found
            self.emit((*values, 0), self.offsets.emitted(span), BLOCKS)
            self._active(now)
            return
        self._say(now)

    def ack(self, tup_id: Any) -> None:
        """A block is done, or a pulse."""
        if isinstance(tup_id, tuple):
            if self.heart is not None:
                self.heart.acked(*tup_id)
        elif tup_id == END:
            self._final_acked = True
        else:
            self.offsets.acked(tup_id)

    def fail(self, tup_id: Any, reason: Any) -> None:
        """A block comes again, after a pause; a pulse makes reducers emit again what it should have confirmed."""
        if isinstance(tup_id, tuple):
            if self.heart is not None:
                self.heart.failed(tup_id[0], time.time_ns())
        elif tup_id == END:
            self._said_final = False
        elif self.offsets.failed(tup_id, self.clock()):
            self.log.warning("a block failed (%s) and comes again: %s", reason.kind, reason.message)

    def deactivate(self) -> None:
        """A good moment to write offsets."""
        self._commit(self.clock())

    def close(self) -> None:
        """The last one."""
        self._commit(self.clock())

    # Helpers.

    def _active(self, now: float) -> None:
        self._active_at = now

    def _beat(self, heart: Heart, now: float) -> None:
        self._beat_at = now
        pulse = heart.beat()
        self.emit(tuple(pulse), (pulse.generation, pulse.number), PULSES)

    def _say(self, now: float) -> None:
        """There is nothing to emit: say so where it matters."""
        if self.at_end() and not self.offsets.in_flight:
            if not self._said_final:
                self._commit(now)
                self._said_final, self._final_at = True, now
                self.emit((int(Mark.FINAL), self.task, 0, ""), END, MARKS)
            elif self._final_acked and now - self._final_at >= REPEAT_SECONDS:
                self._final_at = now
                self.emit((int(Mark.FINAL), self.task, 0, ""), None, MARKS)
        elif not self.offsets.in_flight and now - max(self._active_at, self._idle_at) >= self._idle_seconds:
            self._idle_at = now
            self.emit((int(Mark.IDLE), self.task, 0, ""), None, MARKS)

    def _commit(self, now: float) -> None:
        self._committed_at = now
        if self.offsets.changed:
            self.offsets.changed = False
            data = json.dumps(as_plain(self.offsets.committed)).encode()
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_file(Path(self._folder, f"{self.step.name}-{self.index}.json"), data)

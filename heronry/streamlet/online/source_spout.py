"""Base of the spouts of sources: blocks by split, marks of event time, the end.

The position of each split is in ``self.keyed``. It is set in the call that emits the records before it.

Marks are sent as follows. None of this is checkpointed: marks are sent again after a restore.

- FINAL: a bounded source has emitted everything. Marks follow the blocks.
- IDLE: a source has found no new records for a while. It is repeated, so that windows fed by other sources close.
- HOLD and RELEASE: a source reads splits one after the other. RELEASE is sent at the last of them.
- MARKED, then TIME: a source that grows reads several splits, and declares the event time of its records. TIME is the
  least time of its active splits (split_times.py).

If a window downstream takes the event time from its own records, the source states its active splits a few times a
second (split_reports.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.api.component import Spout
from heronry.streamlet.online.locate import STAGE, load_submitted_program
from heronry.streamlet.online.settings import IDLE, IDLE_SECONDS, latest_time, problems
from heronry.streamlet.online.split_times import BlockTime, SplitTimes
from heronry.streamlet.online.stages import BLOCKS, MARKS, SPLITS, has_stream, needs_times
from heronry.streamlet.online.watermark import Mark
from heronry.streamlet.program import SourceStep

STATE_SECONDS = 0.25  # pause between statements of the active splits


class SourceSpout(Spout):
    """Base class of the spouts of sources.

    A subclass implements ``splits``, ``open``, ``next_block`` and ``at_end``.
    """

    clock = staticmethod(time.monotonic)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield problems of the program's settings, such as removed ones.

        They are checked here because every program has a source.
        """
        yield from problems(config)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Load the program, and restore the positions of the splits of this task."""
        program = load_submitted_program(config)
        step = program.by_name[config[STAGE]]
        assert isinstance(step, SourceStep)
        self.step = step
        self.task = context.get_task_id()
        self.of = len(context.get_component_tasks(step.name))
        self._idle_seconds = float(config.get(IDLE, IDLE_SECONDS))
        self._quiet_at: float | None = None  # time since which the source has had no records to read
        self._said_final = False
        self._said_held: bool | None = None
        self.split_times = SplitTimes(self._idle_seconds)
        grows = getattr(step.source, "grows", False) and step.event_time is not None
        self._block_time = BlockTime(step, latest_time(config)) if grows and needs_times(program, step) else None
        self._said_marked = False
        self._said_ms: int | None = None
        self._states_splits = has_stream(context, step.name, SPLITS)
        self._labels: dict[str, str] = {}  # name of a split in its blocks
        self._stated: tuple[int, list[str] | None] = 0, None  # number and active splits of the last statement
        self._has_read = False  # True if a block was emitted since then
        self._said_idle = False
        self._state_again_at = float("-inf")
        self.open()

    # Implemented by the sources.

    def open(self) -> None:
        """Prepare to continue reading from ``self.keyed``.

        A source that grows reports its splits to ``self.split_times``, here and later.
        """
        raise NotImplementedError

    def next_block(self) -> tuple[str, Any, tuple[Any, ...]] | None:
        """Return the next piece: split, position after it, values to emit. None if there is none now."""
        raise NotImplementedError

    def at_end(self) -> bool:
        """Return True if there will never be another piece."""
        raise NotImplementedError

    def holds(self) -> bool:
        """Return True while more than one split is still to be read.

        The next split may begin with older records.
        """
        return False

    # Called by the executor.

    def next_tuple(self) -> None:
        """Emit one block, or marks if there is none."""
        found = self.next_block()
        if found is None:
            self._say(self.clock())
            return
        split, position, values = found
        self._tell_hold()
        marked = self._tell_marked()
        self.emit(values, None, BLOCKS)
        self.keyed[split] = position
        self._quiet_at = None
        if self._block_time is not None and (marked or self._states_splits):
            self.split_times.read(split, self._block_time(values))
            if marked:
                self._tell_time()
        elif self._states_splits:
            self.split_times.read(split, None)
        if self._states_splits:
            self._labels[split], self._has_read, self._said_idle = values[0], True, False
            self._state_splits()

    def _state_splits(self, idle: bool = False) -> None:
        """State the active splits if something has changed, or in any case if ``idle``, which is stated as well."""
        if not self._states_splits or self._said_held:
            return
        now = self.clock()
        if now < self._state_again_at and not idle:
            return
        self._state_again_at = now + STATE_SECONDS
        active, (number, stated) = self.split_times.active(), self._stated
        if active is None or not (self.split_times.are_any or idle):
            return
        labels = sorted(self._labels[split] for split in active if split in self._labels)
        if labels != stated or self._has_read or idle:
            number = max(number + 1, time.time_ns() // 1_000_000)  # grows across restarts
            self._stated, self._has_read, self._said_idle = (number, labels), False, self._said_idle or idle
            self.emit((self.task, number, "", labels, self._said_idle, {}), None, SPLITS)

    def _tell_hold(self) -> None:
        """Send a change of HOLD or RELEASE. After a restore this is sent before anything else."""
        held = self.holds()
        if held != self._said_held:
            self._said_held, self._said_ms = held, None
            self.emit((int(Mark.HOLD if held else Mark.RELEASE), self.task, 0, ""), None, MARKS)

    def _tell_marked(self) -> bool:
        """Return True if marks state the time, and send MARKED the first time."""
        if self._block_time is None or not self.split_times.are_several:
            return False
        if not self._said_marked:
            self._said_marked = True
            self.emit((int(Mark.MARKED), self.task, 0, ""), None, MARKS)
        return True

    def _tell_time(self) -> None:
        """Send the watermark if it has advanced. While the source holds, it would be without effect."""
        time_ms = self.split_times.watermark()
        if time_ms is not None and time_ms != self._said_ms and not self._said_held:
            self._said_ms = time_ms
            self.emit((int(Mark.TIME), self.task, time_ms, ""), None, MARKS)

    def _say(self, now: float) -> None:
        """Send the mark that follows from having no block: FINAL or IDLE. Before it, the time."""
        self._tell_hold()
        if self._said_marked:
            self._tell_time()
        self._state_splits()
        if self.at_end():
            if not self._said_final:
                self._said_final = True
                self.emit((int(Mark.FINAL), self.task, 0, ""), None, MARKS)
        elif self._quiet_at is None:
            self._quiet_at = now  # a paused task has not looked for records, so the wait begins here
        elif now - self._quiet_at >= self._idle_seconds:
            self._quiet_at = now
            self._state_splits(idle=True)
            self.emit((int(Mark.IDLE), self.task, 0, ""), None, MARKS)

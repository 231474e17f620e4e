"""What both sources share: blocks by split, marks of event time, the end.

How far each split is read is its position in ``self.keyed``, set in the call that emits what lies before it. A finite
source says FINAL when everything is emitted: marks come behind the blocks. A source without new records says IDLE after
a while of looking for them, and repeats it, so that windows fed by others close. A source that reads splits one after
the other says HOLD, and RELEASE at the last of them. Nothing of this is kept: it is said again after a restore.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.api.component import Spout
from heronry.streamlet.online.locate import STAGE, load_submitted_program
from heronry.streamlet.online.settings import IDLE, IDLE_SECONDS, problems
from heronry.streamlet.online.streams import BLOCKS, MARKS
from heronry.streamlet.online.watermark import Mark
from heronry.streamlet.program import SourceStep


class SourceSpout(Spout):
    """Derive and write ``splits``, ``open``, ``next_block``, ``at_end``."""

    clock = staticmethod(time.monotonic)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Settings there are no longer; every program has a source."""
        yield from problems(config)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Find the program, and where the splits of this task had come to."""
        step = load_submitted_program(config).by_name[config[STAGE]]
        assert isinstance(step, SourceStep)
        self.step = step
        self.task = context.get_task_id()
        self.of = len(context.get_component_tasks(step.name))
        self._idle_seconds = float(config.get(IDLE, IDLE_SECONDS))
        self._quiet_at: float | None = None  # since when there is nothing to read
        self._said_final = False
        self._said_held: bool | None = None
        self.open()

    # For the sources.

    def open(self) -> None:
        """Prepare to read on from ``self.keyed``."""
        raise NotImplementedError

    def next_block(self) -> tuple[str, Any, tuple[Any, ...]] | None:
        """The next piece: split, position behind it, the values to emit; None if there is none now."""
        raise NotImplementedError

    def at_end(self) -> bool:
        """True if there will never be another piece."""
        raise NotImplementedError

    def holds(self) -> bool:
        """Return True while more than one split is still to be read: the next one may begin with older records."""
        return False

    # For the executor.

    def next_tuple(self) -> None:
        """One block, or what is to be said."""
        found = self.next_block()
        if found is None:
            self._say(self.clock())
            return
        split, position, values = found
        self._tell_hold()
        self.emit(values, None, BLOCKS)
        self.keyed[split] = position
        self._quiet_at = None

    def _tell_hold(self) -> None:
        """Say whether what comes tells event time; after a restore before anything else."""
        held = self.holds()
        if held != self._said_held:
            self._said_held = held
            self.emit((int(Mark.HOLD if held else Mark.RELEASE), self.task, 0, ""), None, MARKS)

    def _say(self, now: float) -> None:
        """There is nothing to emit: say so where it matters."""
        self._tell_hold()
        if self.at_end():
            if not self._said_final:
                self._said_final = True
                self.emit((int(Mark.FINAL), self.task, 0, ""), None, MARKS)
        elif self._quiet_at is None:
            self._quiet_at = now  # a task that stood still has not looked, so it begins to wait here
        elif now - self._quiet_at >= self._idle_seconds:
            self._quiet_at = now
            self.emit((int(Mark.IDLE), self.task, 0, ""), None, MARKS)

"""What both sources share: blocks by split, marks of event time, the end.

How far each split is read is its position in ``self.keyed``, set in the call that emits what lies before it. A finite
source says FINAL when everything is emitted: marks come behind the blocks. A source without new records says IDLE after
a while, and repeats it, so that windows fed by others close. Nothing of this is kept: it is said again after a restore.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.api.component import Spout
from heronry.streamlet.online.locate import STAGE, find
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
        step = find(config).by_name[config[STAGE]]
        assert isinstance(step, SourceStep)
        self.step = step
        self.task = context.get_task_id()
        self.of = len(context.get_component_tasks(step.name))
        self._idle_seconds = float(config.get(IDLE, IDLE_SECONDS))
        self._active_at = self.clock()
        self._said_final = False
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

    # For the executor.

    def next_tuple(self) -> None:
        """One block, or what is to be said."""
        found = self.next_block()
        if found is None:
            self._say(self.clock())
            return
        split, position, values = found
        self.emit(values, None, BLOCKS)
        self.keyed[split] = position
        self._active_at = self.clock()

    def _say(self, now: float) -> None:
        """There is nothing to emit: say so where it matters."""
        if self.at_end():
            if not self._said_final:
                self._said_final = True
                self.emit((int(Mark.FINAL), self.task, 0, ""), None, MARKS)
        elif now - self._active_at >= self._idle_seconds:
            self._active_at = now
            self.emit((int(Mark.IDLE), self.task, 0, ""), None, MARKS)

"""How much a spout may emit while it is told what became of its tuples.

``ack`` and ``fail`` may emit, and there may be thousands to be told of at a time. Before they are called the executor
says how many rows there is room for; from the emit that uses up the room no further ``ack`` or ``fail`` is begun. So
what they emit beyond a bound is what one call emits, as with ``next_tuple``.

An emit *looks* (``emit_gate.py``) when its stream holds so many rows that the room might be used up with it.
"""

from __future__ import annotations

from heron_instance.core.collector import TaskCollector
from heron_instance.core.streams import OutputStream


class Allowance:
    """Of one spout task. ``used_up``: begin no further call."""

    __slots__ = ("_collector", "_last", "lasts", "used_up")

    def __init__(self, collector: TaskCollector) -> None:
        self.lasts = False  # the spout is being told
        self.used_up = False
        self._collector = collector
        self._last = 0

    def begin(self, room: int) -> None:
        """The spout is about to be told; there is room for so many rows, perhaps for none."""
        self.lasts, self.used_up = True, False
        self._last = self._collector.emitted_ever() + room
        for out in self._collector.streams.values():
            out.look_at = 0

    def end(self) -> None:
        """The spout has been told."""
        self.lasts = False

    def look(self, out: OutputStream, rows: int) -> None:
        """So many rows are about to be added to ``out``."""
        left = self._last - self._collector.emitted_ever() - rows
        self.used_up = left <= 0
        # Each stream may use its share of what is left before somebody looks again: of what is left now, for what it
        # was given when more was left would come on top.
        share = max(0, (left - 1) // len(self._collector.streams))
        for each in self._collector.streams.values():
            each.look_at = len(each.rows) + share
        out.look_at += rows

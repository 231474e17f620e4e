"""Spout of a sequence: blocks of numbers, distributed over splits. Records are made from the numbers downstream."""

from __future__ import annotations

import heapq
from typing import Any

from heronry.streamlet.endpoints import SequenceSource
from heronry.streamlet.online.source_spout import SourceSpout

BLOCK = 1024
BLOCKS_PER_SECOND = 50  # with a rate, the size of blocks is chosen so that about this many are due each second
SPLITS = 240  # must never change, because positions depend on it; additional tasks have nothing to read


class SequenceSpout(SourceSpout):
    """Task of a sequence source.

    Split s has the blocks s, s + 240, …, and its position is its next block. A task always emits its first remaining
    block, so numbers are in order within a task.
    """

    def splits(self) -> list[tuple[str, int]]:
        """Return the splits with their numbers. Splits are assigned to tasks by number."""
        return [(str(split), split) for split in range(SPLITS)]

    def open(self) -> None:
        """Continue after the blocks that were emitted."""
        source = self.step.source
        assert isinstance(source, SequenceSource)
        self._source = source
        self._size = BLOCK
        if source.rate is not None:
            self._size = max(1, min(BLOCK, int(source.rate / BLOCKS_PER_SECOND)))
        self._due = [(self.keyed.get(split, int(split)), split) for split in self.owned_splits()]
        heapq.heapify(self._due)
        self._rate = None if source.rate is None else source.rate / self.of
        self.activate()

    def activate(self) -> None:
        """Restart the rate limit. Blocks that were not emitted while the topology was paused are not caught up."""
        self._emitted = 0
        self._started_at = self.clock()

    def _range(self, block: int) -> range:
        first = self._source.start + block * self._size
        stop = first + self._size
        return range(first, stop if self._source.stop is None else min(stop, self._source.stop))

    def next_block(self) -> tuple[str, Any, tuple[Any, ...]] | None:
        """Return the next block, if it is due."""
        if self.at_end():
            return None
        if self._rate is not None and self._emitted >= (self.clock() - self._started_at) * self._rate:
            return None
        block, split = self._due[0]
        numbers, following = self._range(block), block + SPLITS
        heapq.heapreplace(self._due, (following, split))
        self._emitted += len(numbers)
        return split, following, ("", numbers.start, len(numbers), b"", b"")

    def at_end(self) -> bool:
        """Return True after the last number."""
        return not self._due or not self._range(self._due[0][0])

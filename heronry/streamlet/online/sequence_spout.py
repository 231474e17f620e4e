"""The source of a sequence: blocks of numbers, dealt out among the tasks. What numbers stand for is made downstream."""

from __future__ import annotations

from typing import Any

from heronry.streamlet.endpoints import SequenceSource
from heronry.streamlet.online.offsets import FilePosition, Span
from heronry.streamlet.online.source_spout import SourceSpout

BLOCK = 1024
BLOCKS_PER_SECOND = 50  # with a rate, blocks are so small that about as many are due each second


class SequenceSpout(SourceSpout):
    """Task i of n has the blocks i, i + n, …; offsets count its own blocks, under the name ``i/n``."""

    def open(self) -> None:
        """Go on behind the last block that was committed."""
        source = self.step.source
        assert isinstance(source, SequenceSource)
        self._source = source
        self._size = BLOCK
        if source.rate is not None:
            self._size = max(1, min(BLOCK, int(source.rate / BLOCKS_PER_SECOND)))
        self._file = f"{self.index}/{self.of}"
        self._block = self.offsets.begin(self._file).offset
        self._rate = None if source.rate is None else source.rate / self.of
        self.activate()

    def activate(self) -> None:
        """The rate counts from here: what was not emitted while the topology was paused is not made up for."""
        self._emitted = 0
        self._started_at = self.clock()

    def _range(self, block: int) -> range:
        first = self._source.start + (block * self.of + self.index) * self._size
        stop = first + self._size
        return range(first, stop if self._source.stop is None else min(stop, self._source.stop))

    def next_span(self) -> tuple[Span, tuple[Any, ...]] | None:
        """The next block, if it is due."""
        numbers = self._range(self._block)
        if not numbers:
            return None
        if self._rate is not None and self._emitted >= (self.clock() - self._started_at) * self._rate:
            return None
        begin, self._block = FilePosition(self._block, 0), self._block + 1
        self._emitted += len(numbers)
        return Span(self._file, begin, FilePosition(self._block, 0)), self._values(numbers)

    def again(self, span: Span) -> tuple[Any, ...]:
        """The same numbers."""
        return self._values(self._range(span.begin.offset))

    def at_end(self) -> bool:
        """True behind the last number."""
        return not self._range(self._block)

    def _values(self, numbers: range) -> tuple[Any, ...]:
        return "", numbers.start, len(numbers), b"", b""

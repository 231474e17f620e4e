"""Sources and sink in Bytewax for both workloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from peer_load import TUPLES

BATCH = 1000


class Partition(StatelessSourcePartition):
    """Share of one worker."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._left = make, TUPLES

    def next_batch(self) -> list[Any]:
        """Return a thousand items, or end."""
        if self._left <= 0:
            raise StopIteration
        count = min(BATCH, self._left)
        self._left -= count
        make = self._make
        return [make() for _ in range(count)]


class Source(DynamicSource):
    """Source in which each worker creates its own load."""

    def __init__(self, maker: Callable[[int], Callable[[], Any]]) -> None:
        self._maker = maker

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Partition:
        """Return the share of one worker."""
        return Partition(self._maker(worker_index))


class Nothing(StatelessSinkPartition):
    """Sink partition that discards everything."""

    def write_batch(self, items: list[Any]) -> None:
        """Discard the items."""


class NullSink(DynamicSink):
    """Sink that discards everything."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Nothing:
        """Return the sink of one worker."""
        return Nothing()

"""Bytewax's sources and sink for both workloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from peer_load import TUPLES

BATCH = 1000


class Partition(StatelessSourcePartition):
    """One worker's share."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._left = make, TUPLES

    def next_batch(self) -> list[Any]:
        """A thousand, then the end."""
        if self._left <= 0:
            raise StopIteration
        count = min(BATCH, self._left)
        self._left -= count
        make = self._make
        return [make() for _ in range(count)]


class Source(DynamicSource):
    """Each worker makes its own load."""

    def __init__(self, maker: Callable[[int], Callable[[], Any]]) -> None:
        self._maker = maker

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Partition:
        """The share of one worker."""
        return Partition(self._maker(worker_index))


class Nothing(StatelessSinkPartition):
    """Forgets."""

    def write_batch(self, items: list[Any]) -> None:
        """Forget."""


class NullSink(DynamicSink):
    """Forgets everywhere."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Nothing:
        """One worker's sink."""
        return Nothing()

"""Map-side combine of one partition: the common combiner, bounded in memory, and its rows for the shuffle.

Records are folded in chunks (``heronry.streamlet.combine``). When there are too many keys, or accumulators that have
grown too large, all accumulators are emitted as rows. This costs only a few more rows in the shuffle, since ``add`` is
associative and commutative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from data_pipeline.core.failure import failed
from data_pipeline.core.payload import dump
from heron_runtime.model.keys import encode
from heronry.streamlet.combine import Combiner
from heronry.streamlet.program import ReduceStep

CHUNK_RECORDS = 1_024  # small, so that a chunk is still in the processor's cache when it is folded
FLUSH_ROWS = 8_192
MAX_KEYS = 200_000
MAX_BYTES = 64 * 1024 * 1024
SAMPLED = 16
MEASURE_EVERY = 32  # chunks between two measurements of the size of accumulators
_SCALAR = ("count", "sum", "min", "max", "mean")  # accumulators that do not grow
_ALWAYS_KEYS = frozenset({str, int, float, bool, bytes, type(None)})


class Rows(NamedTuple):
    """Rows that leave a unit, as columns: tag, canonical key, start of the window (0 without windows), payload.

    ``counts`` repeats the accumulators of a counting reducer, for SQL to add.
    """

    tag: int
    keys: Sequence[bytes | None]
    starts: list[int]
    payloads: list[bytes]
    counts: list[int] | None = None


ASIDE = -1  # tag of the letters of failed records, which every unit may emit (``heronry.streamlet.aside``)


def letters_of(letters: list[bytes]) -> Rows:
    """Return the rows of letters of failed records."""
    return Rows(ASIDE, [None] * len(letters), [0] * len(letters), letters)


@dataclass(frozen=True)
class Limits:
    """Limits at which a partition's combiner flushes, and the number of records in a chunk."""

    max_keys: int = MAX_KEYS
    max_bytes: int = MAX_BYTES
    chunk_records: int = CHUNK_RECORDS


class PartitionCombiner:
    """Accumulators of one reducer in one partition. ``add`` and ``flush`` yield rows.

    They raise StepFailed for a record, and RecordFailed for an accumulator.
    """

    def __init__(self, tag: int, step: ReduceStep, timed: bool, limits: Limits | None = None) -> None:
        self.tag = tag
        self.step = step
        self.timed = timed
        self.limits = limits or Limits()
        self.combiner = Combiner(step)
        self._chunks = 0

    def add(self, items: Iterator[Any]) -> Iterator[Rows]:
        """Add records, or (record, time) pairs if ``timed``; yield rows when the combiner is full."""
        while chunk := list(islice(items, self.limits.chunk_records)):
            before = len(self.combiner.table)  # a key's first session adds an entry to the table
            if self.timed:
                self.combiner.add([record for record, _ in chunk], [time for _, time in chunk])
            else:
                self.combiner.add(chunk, None)
            self._check_newest(len(self.combiner.table) - before)
            if self._is_full():
                yield from self.flush()

    def flush(self) -> Iterator[Rows]:
        """Yield all accumulators as rows and empty the combiner."""
        windowed = self.step.windowing is not None
        entries = iter(self.combiner.take())
        while part := list(islice(entries, FLUSH_ROWS)):
            starts = [start for _, start, _ in part] if windowed else [0] * len(part)
            payloads = [self._dump(entry[0], entry[-1]) for entry in part]
            counts = [entry[-1] for entry in part] if self.combiner.counts else None
            yield Rows(self.tag, [encode(entry[0]) for entry in part], starts, payloads, counts)

    def _dump(self, key: Any, accumulator: Any) -> bytes:
        try:
            return dump(key, accumulator)
        except Exception as error:  # the user's classes may raise anything when pickled
            raise failed(self.step.name, accumulator, error) from error

    def _check_newest(self, number: int) -> None:
        """Check that the newest keys have a canonical encoding, while their record is still known."""
        for key in self.combiner.newest_keys(number):
            if type(key) not in _ALWAYS_KEYS:
                self.combiner.code_of(key)

    def _is_full(self) -> bool:
        table = self.combiner.table
        size = len(table)
        if self.combiner.size >= self.limits.max_keys:
            return True
        self._chunks += 1
        if self.step.monoid.builtin in _SCALAR or not size or self._chunks % MEASURE_EVERY:
            return False
        sample = list(islice(table.values(), SAMPLED))
        each = sum(len(self._dump(None, accumulator)) for accumulator in sample) / len(sample)
        return each * size > self.limits.max_bytes


def check(step: ReduceStep, record: Any) -> None:
    """Check that the reducer accepts this record alone. Raises StepFailed."""
    alone = Combiner(step)
    alone.add([record], [0])
    for key in alone.newest_keys(len(alone.table)):
        alone.code_of(key)

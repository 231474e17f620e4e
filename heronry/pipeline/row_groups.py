"""Reading of a batch's rows in key order, limited to the row groups that a query needs.

Theory of operation. The footer of a Parquet file contains the minimum and maximum key and start of each row group. Row
groups without rows of the requested *span* are not opened. The others are opened only after all keys before their own
were returned, and the open ones are merged by key. So if files are sorted by key, as a batch writes them, a key or a
page of keys costs the footers and a few row groups. The result is correct for any layout: an unsorted row group is
sorted when it is opened, and one without statistics is assumed to contain any key. If keys are spread over whole files,
as in batches from before files were sorted, all files are open at once.

Keys are compared bytewise by their canonical encodings (``heron_runtime.model.keys``). Texts are in the order of their
code points; the order of other keys is stable but has no meaning. Footers are cached between queries, as the files of a
batch do not change.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from heronry.pipeline.rows import Row

COLUMNS = ["key", "start", "end", "acc"]
SLICE_ROWS = 1_000  # rows converted to Python values at a time
FOOTERS = 512  # number of cached footers
_unpack = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True)
class Span:
    """Rows with a key in [low, below) and a bucket within [from, to). None means unbounded."""

    low: bytes = b""
    below: bytes | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def is_one_key(self) -> bool:
        """Return True if the span contains exactly one key."""
        return self.below == just_after(self.low)

    @property
    def one_text(self) -> str | None:
        """Return the span's only key if it is a text, otherwise None."""
        return self.low[1:].decode("utf-8", "surrogatepass") if self.is_one_key and self.low[:1] == b"s" else None

    def has(self, row: Row) -> bool:
        """Return True if the row is in the span."""
        return (
            row.key >= self.low
            and (self.below is None or row.key < self.below)
            and (self.from_ms is None or row.start >= self.from_ms)
            and (self.to_ms is None or row.end <= self.to_ms)
        )


def just_after(key: bytes) -> bytes:
    """Return the least key that is greater; no key lies between."""
    return key + b"\0"


class RowGroup(NamedTuple):
    """Description of a row group by its file's footer; None where the footer has no statistics."""

    file: str
    number: int
    rows: int
    keys: tuple[bytes, bytes] | None
    starts: tuple[int, int] | None
    footer: Any

    @property
    def low(self) -> bytes:
        """Return a lower bound of the keys."""
        return self.keys[0] if self.keys else b""

    def may_have(self, span: Span) -> bool:
        """Return False if no row of the group is in the span."""
        if self.keys and (self.keys[1] < span.low or (span.below is not None and self.keys[0] >= span.below)):
            return False
        if not self.starts:
            return True
        return (span.from_ms is None or self.starts[1] >= span.from_ms) and (
            span.to_ms is None or self.starts[0] < span.to_ms
        )


def row_groups(files: Iterable[Path], span: Span) -> list[RowGroup]:
    """Return the row groups that may have rows in the span.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is not a Parquet file.
    """
    found = []
    for file in files:
        state = file.stat()
        every = _groups_of(str(file), (state.st_ino, state.st_size, state.st_mtime_ns))
        found += [group for group in every if group.may_have(span)]
    return found


@lru_cache(maxsize=FOOTERS)
def _groups_of(file: str, stamp: tuple[int, int, int]) -> list[RowGroup]:
    """Return all row groups of a file. ``stamp`` identifies its version in the cache."""
    import pyarrow.parquet as pq

    footer = pq.read_metadata(file)
    return [_described(file, number, footer) for number in range(footer.num_row_groups)]


def _described(file: str, number: int, footer: Any) -> RowGroup:
    group = footer.row_group(number)
    bounds: dict[str, tuple[Any, Any]] = {}
    for place in range(group.num_columns):
        column = group.column(place)
        statistics = column.statistics
        if column.path_in_schema in ("key", "start") and statistics is not None and statistics.has_min_max:
            bounds[column.path_in_schema] = (statistics.min, statistics.max)  # long keys are truncated to bounds
    return RowGroup(file, number, group.num_rows, bounds.get("key"), bounds.get("start"), footer)


def in_order(groups: Iterable[RowGroup], span: Span, others: Sequence[Row] = ()) -> Iterator[Row]:
    """Yield the rows of the span, merged with ``others``, by key. Raises OSError, ValueError."""
    waiting = sorted(groups, key=lambda group: group.low, reverse=True)
    opened: list[tuple[bytes, int, Row, Iterator[Row]]] = []  # the number breaks ties of equal keys
    _open(opened, 0, iter(sorted(others, key=lambda row: row[:3])))
    for number in range(1, len(waiting) + 2):
        # Only the open groups have keys below the least key of the next group.
        yield from _merged(opened, waiting[-1].low if waiting else None)
        if waiting:
            _open(opened, number, _read(waiting.pop(), span))


def _open(opened: list[tuple[bytes, int, Row, Iterator[Row]]], number: int, rows: Iterator[Row]) -> None:
    first = next(rows, None)
    if first is not None:
        heapq.heappush(opened, (first.key, number, first, rows))


def _merged(opened: list[tuple[bytes, int, Row, Iterator[Row]]], below: bytes | None) -> Iterator[Row]:
    """Yield the next rows of the open groups by key, while the key is less than ``below``."""
    while opened and (below is None or opened[0][0] < below):
        _, number, row, rest = heapq.heappop(opened)
        yield row
        end = min((key for key in (below, opened[0][0] if opened else None) if key is not None), default=None)
        for row in rest:  # a run of rows of one group bypasses the heap
            if end is not None and row.key >= end:
                heapq.heappush(opened, (row.key, number, row, rest))
                break
            yield row


def _read(group: RowGroup, span: Span) -> Iterator[Row]:
    """Yield the rows of a group that are in the span, by key."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(group.file, metadata=group.footer) as file:
        if span.is_one_key:  # each file has a candidate row group, but few contain the key
            keys = file.read_row_group(group.number, columns=["key"], use_threads=False)
            if not _within(keys, Span(span.low, span.below)).num_rows:
                return
        table = file.read_row_group(group.number, columns=COLUMNS, use_threads=False).combine_chunks()
    table = _sorted(_within(table, span))
    for first in range(0, table.num_rows, SLICE_ROWS):
        columns = [table.column(name).slice(first, SLICE_ROWS).to_pylist() for name in COLUMNS]
        yield from (Row(key, start, end, _unpack(acc)) for key, start, end, acc in zip(*columns, strict=True))


def _within(table: Any, span: Span) -> Any:
    import pyarrow.compute as pc

    for column, compare, bound in (
        ("key", pc.greater_equal, span.low or None), ("key", pc.less, span.below),
        ("start", pc.greater_equal, span.from_ms), ("end", pc.less_equal, span.to_ms),
    ):  # fmt: skip
        if bound is not None:
            table = table.filter(compare(table.column(column), bound))
    return table


def _sorted(table: Any) -> Any:
    import pyarrow.compute as pc

    keys = table.column("key")
    if pc.all(pc.less_equal(keys.slice(0, max(0, len(keys) - 1)), keys.slice(1))).as_py() is False:
        return table.sort_by("key")
    return table

"""Rows of views: accumulators by key and bucket, readable without Spark and without the user's code.

Theory of operation. The batch writes Parquet with the columns::

    key    binary  the canonical encoding of the plain key: equal keys have equal bytes
    start  int64   start of the bucket [start, end), in milliseconds since 1970 UTC
    end    int64   its end
    acc    binary  MessagePack of ``monoid.pack(accumulator)``

The online reducers write ``online/BUCKET/TASK.msgpack`` (docs/reference/streamlet-semantics.md, View): one file for
each bucket and task, replaced with checkpoints, and ``TASK-….msgpack`` for rows that they have released, with rows
``[key, start, packed accumulator]``. A key is *plain* after a round trip through MessagePack (dates become text,
decimals floats), so it is the same key in both layers. A batch sorts each of its files by key and start, and divides it
into small row groups, so that a query reads few of them. If a key and bucket appear in several
rows, readers add their accumulators with the monoid.

*Reading in key order*: the footer of a Parquet file contains the minimum and maximum key and start of each row group.
Row groups without rows of the requested *span* are not opened. The others are opened only after all keys before their
own were returned, and the open ones are merged by key. So if files are sorted by key, as a batch writes them, a key or
a page of keys costs the footers and a few row groups. The result is correct for any layout: an unsorted row group is
sorted when it is opened, and one without statistics is assumed to contain any key. If keys are spread over whole files,
as in batches from before files were sorted, all files are open at once.

Keys are compared bytewise by their canonical encodings (``heron_runtime.model.keys``). Texts are in the order of their
code points; the order of other keys is stable but has no meaning. Footers are cached between queries, as the files of a
batch do not change.
"""

from __future__ import annotations

import datetime as dt
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from heron_runtime.model.keys import encode
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.records import pack

COLUMNS = ["key", "start", "end", "acc"]
SLICE_ROWS = 1_000  # rows converted to Python values at a time
FOOTERS = 512  # number of cached footers


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
    groups = []
    for file in files:
        state = file.stat()
        every = _groups_of(str(file), (state.st_ino, state.st_size, state.st_mtime_ns))
        groups += [group for group in every if group.may_have(span)]
    return groups


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


_EPOCH = dt.date(1970, 1, 1).toordinal()
_START = dt.datetime(1970, 1, 1)
_PLAIN_KEYS = frozenset({str, int, float, bool, type(None), bytes})
_unpack = msgspec.msgpack.Decoder().decode


class Row(NamedTuple):
    """Packed accumulator of a key and bucket. ``start`` and ``end`` are milliseconds since 1970 UTC."""

    key: bytes
    start: int
    end: int
    packed: Any


def key_bytes(key: Any) -> bytes:
    """Return the canonical encoding of the plain key. Raises UnsupportedKey, TypeError."""
    if key.__class__ not in _PLAIN_KEYS:
        key = frozen(_unpack(pack(key)))
    return encode(key)


def frozen(key: Any) -> Any:
    """Return the key with lists replaced by tuples, recursively."""
    return tuple(map(frozen, key)) if isinstance(key, list) else key


def key_from(text: str) -> Any:
    """Parse a key that a user has typed: JSON, or otherwise plain text.

    A JSON object gives a dict, which is not a valid key.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return frozen(value)


def row_of(key: Any, start: int, end: int, accumulator: Any, monoid: Monoid[Any, Any]) -> Row:
    """Return the row of an accumulator. Raises UnsupportedKey, or TypeError for a key that cannot be made plain."""
    return Row(key_bytes(key), start, end, monoid.pack(accumulator))


def schema() -> Any:
    """Return the Arrow schema of rows."""
    import pyarrow as pa

    return pa.schema([("key", pa.binary()), ("start", pa.int64()), ("end", pa.int64()), ("acc", pa.binary())])


class OnlineFile(NamedTuple):
    """Content of an ``online/BUCKET/TASK.msgpack``: description of the view, time of writing, and rows."""

    view: str
    monoid: str | None
    parameters: dict[str, Any]
    length_ms: int  # length of a bucket
    written_ms: int
    rows: list[Row]


def may_hold(file: Path, text: str) -> bool:
    """Return False if no row has this text as key, which MessagePack stores as UTF-8. Raises FileNotFoundError."""
    return text.encode("utf-8", "surrogatepass") in file.read_bytes()


def read_online(file: Path, text: str | None = None) -> OnlineFile:
    """Read a file of the online layer.

    Args:
        file: The file.
        text: If given, only rows with this text as key are returned.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not belong to a view.
    """
    try:
        content = _unpack(file.read_bytes())
        length = int(content["length_ms"] or content["bucket_ms"])
        bucket = int(file.parent.name)
        rows = []
        for key, start, packed in content["rows"]:
            if text is not None and key != text:
                continue
            begins = bucket if start is None else start
            rows.append(Row(encode(frozen(key)), begins, begins + length, packed))
        return OnlineFile(
            content["view"], content["monoid"], dict(content["parameters"]), length, int(content["written_ms"]), rows
        )
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a valid view file: {error!r}") from error


def decode_key(data: bytes) -> Any:
    """Decode a key from its canonical encoding. Numbers become int, float or Fraction, whatever their original type."""
    tag, rest = data[:1], data[1:]
    if tag == b"s":
        return rest.decode("utf-8", "surrogatepass")
    if tag == b"n":
        return _number(rest)
    if tag == b"N":
        return None
    if tag == b"b":
        return rest
    if tag == b"d":
        return dt.date.fromordinal(int(rest) + _EPOCH)
    if tag in (b"t", b"z"):
        moment = _START + dt.timedelta(microseconds=int(rest))
        return moment if tag == b"t" else moment.replace(tzinfo=dt.UTC)
    if tag in (b"(", b"{", b"c"):
        parts = [decode_key(part) for part in _parts(rest)]
        return complex(*parts) if tag == b"c" else tuple(parts) if tag == b"(" else frozenset(parts)
    raise ValueError(f"{data!r} is not a canonical key")


def _number(text: bytes) -> Any:
    if text in (b"nan", b"inf", b"-inf"):
        return float(text)
    numerator, _, denominator = text.partition(b"/")
    if not denominator:
        return int(numerator, 16)
    exact = Fraction(int(numerator, 16), int(denominator, 16))
    try:
        near = float(exact)
    except OverflowError:
        return exact
    return near if Fraction(near) == exact else exact


def _parts(rest: bytes) -> Iterator[bytes]:
    _, _, rest = rest.partition(b":")
    while rest:
        length, _, rest = rest.partition(b":")
        yield rest[: int(length)]
        rest = rest[int(length) :]

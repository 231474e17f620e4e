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
into small row groups, so that a query reads few of them (``row_groups.py``). If a key and bucket appear in several
rows, readers add their accumulators with the monoid.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from heron_runtime.model.keys import encode
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.records import pack

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
        found = _unpack(file.read_bytes())
        length = int(found["length_ms"] or found["bucket_ms"])
        bucket = int(file.parent.name)
        rows = []
        for key, start, packed in found["rows"]:
            if text is not None and key != text:
                continue
            begins = bucket if start is None else start
            rows.append(Row(encode(frozen(key)), begins, begins + length, packed))
        return OnlineFile(
            found["view"], found["monoid"], dict(found["parameters"]), length, int(found["written_ms"]), rows
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

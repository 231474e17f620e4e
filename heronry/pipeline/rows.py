"""What views are made of: accumulators by key and bucket, readable without Spark and without the user's code.

Theory of operation. The batch writes Parquet with the columns::

    key    binary  the canonical encoding of the plain key: equal keys have equal bytes
    start  int64   the bucket, milliseconds since 1970 UTC: [start, end)
    end    int64
    acc    binary  MessagePack of ``monoid.pack(accumulator)``

The online reducers write ``online/BUCKET/TASK.msgpack`` (docs/reference/streamlet-semantics.md, View): a file for
each bucket and task, replaced with checkpoints, and ``TASK-….msgpack`` for what they have let go of, with rows
``[key, start, packed accumulator]``. A key is *plain* when MessagePack has given it back (dates become text, decimals
floats), so that a key is one key in both layers. A batch sorts each of its files by key and start, and cuts it into
small row groups, so that a question reads few of them (``row_groups.py``). Rows add up: whoever finds a key and
bucket in several rows adds their accumulators with the monoid.
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
    """One packed accumulator. ``start`` and ``end`` are milliseconds since 1970 UTC."""

    key: bytes
    start: int
    end: int
    packed: Any


def key_bytes(key: Any) -> bytes:
    """The canonical encoding of the plain key. Raises UnsupportedKey, TypeError."""
    if key.__class__ not in _PLAIN_KEYS:
        key = frozen(_unpack(pack(key)))
    return encode(key)


def frozen(key: Any) -> Any:
    """With tuples for its lists, in depth."""
    return tuple(map(frozen, key)) if isinstance(key, list) else key


def key_from(text: str) -> Any:
    """What somebody typed as a key: JSON, or the text itself where it is none. An object is a dict, and no key."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return frozen(value)


def row_of(key: Any, start: int, end: int, accumulator: Any, monoid: Monoid[Any, Any]) -> Row:
    """The row of an accumulator. Raises UnsupportedKey, TypeError for a key that is not plain."""
    return Row(key_bytes(key), start, end, monoid.pack(accumulator))


def schema() -> Any:
    """The Arrow schema of rows."""
    import pyarrow as pa

    return pa.schema([("key", pa.binary()), ("start", pa.int64()), ("end", pa.int64()), ("acc", pa.binary())])


class OnlineFile(NamedTuple):
    """One ``online/BUCKET/TASK.msgpack``: what the view is, when this was written, and the rows."""

    view: str
    monoid: str | None
    parameters: dict[str, Any]
    length_ms: int  # of its buckets
    written_ms: int
    rows: list[Row]


def may_hold(file: Path, text: str) -> bool:
    """False if no row has this key: MessagePack holds a text as its UTF-8. Raises FileNotFoundError."""
    return text.encode("utf-8", "surrogatepass") in file.read_bytes()


def read_online(file: Path, text: str | None = None) -> OnlineFile:
    """The file, or of its rows those that have this text as key.

    Raises FileNotFoundError, ValueError for a file that is none of a view's.
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
        raise ValueError(f"{file} is no file of a view: {error!r}") from error


def decode_key(data: bytes) -> Any:
    """A key from its canonical encoding; a number comes back as int, float or Fraction, whatever it was."""
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
    raise ValueError(f"{data!r} is no canonical key")


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

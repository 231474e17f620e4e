"""Codec of tuple values: rows to the opaque bytes of a frame and back.

``auto`` sends a batch as msgpack when every value's type *is* str, bytes, int, float, bool or None, and as pickle
(protocol 5) otherwise or when msgpack cannot hold a value (an int beyond 64 bits, a str with lone surrogates). So
decoded rows equal the encoded ones, types included. Decoders make tuples, not lists: the cyclic garbage collector then
stops tracking them soon. Only instances unpickle, and only data sent by instances of the same topology.

A batch is cut at 1 MiB of encoded values. A tuple above ``topology.tuple.max.bytes``, or one that cannot be encoded, is
refused alone, without the rest of its batch.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Any

import msgspec

from heron_runtime.model.settings import Keys, setting
from heronry.api.serializer import Serializer

Row = tuple[Any, ...]
Rows = Sequence[Row]

MAX_BATCH_BYTES = 1024 * 1024
SAMPLE_ROWS = 16  # rows encoded first, to estimate the size of the others
PLAIN_TYPES = frozenset({str, bytes, int, float, bool, type(None)})


class CodecNumber(IntEnum):
    """Values of ``Frame.codec``."""

    MSGPACK = 0
    PICKLE = 1
    ARROW = 2
    CUSTOM = 3


class ValuesError(ValueError):
    """Values cannot be encoded or decoded."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows ``start`` to ``stop`` as bytes, or one row that is refused for the reason ``refused``."""

    start: int
    stop: int
    codec: int
    data: bytes
    refused: str = ""


def make_values_codec(config: Mapping[str, Any], load: Callable[[str], Any] | None) -> ValuesCodec:
    """Make the codec for a component's configuration; ``load`` finds classes by ``module:Class``."""
    return ValuesCodec(setting(config, Keys.TOPOLOGY_SERIALIZER), setting(config, Keys.TOPOLOGY_TUPLE_MAX_BYTES), load)


class ValuesCodec:
    """Encoder and decoder of one instance.

    Args:
        serializer: The setting ``topology.serializer``.
        tuple_max_bytes: Maximum size of an encoded tuple.
        load: Turns ``module:Class`` into the class. The name of a serializer plug-in is resolved at submit.

    Raises:
        ValuesError: The serializer cannot be loaded.
    """

    def __init__(
        self,
        serializer: str = "auto",
        tuple_max_bytes: int = 64 * 1024 * 1024,
        load: Callable[[str], Any] | None = None,
    ) -> None:
        self._tuple_max = tuple_max_bytes
        self._pack = msgspec.msgpack.Encoder().encode
        self._unpack: Callable[[bytes], list[Row]] = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
        self._arrow: Any = None
        self._custom: Any = None
        self.pickled_batches = 0
        self.refuses_pickle = serializer == "msgpack"  # in state only: frames may come from another serializer
        self.takes_all_plain = serializer in ("auto", "pickle")  # values of built-in types, from any thread
        encoders: dict[str, Callable[[Rows], tuple[int, bytes]]] = {
            "auto": self._encode_auto,
            "msgpack": self._encode_msgpack,
            "pickle": self._encode_pickle,
            "arrow": self._encode_arrow,
        }
        if serializer == "arrow":
            self._arrow = _load_arrow()
        elif serializer not in encoders:
            if ":" not in serializer or load is None:
                raise ValuesError(
                    f"invalid topology.serializer {serializer!r}: use auto, msgpack, pickle, arrow or module:Class"
                )
            custom: Serializer = load(serializer)()
            self._custom = custom
            encoders[serializer] = self._encode_custom
        self.encode: Callable[[Rows], tuple[int, bytes]] = encoders[serializer]

    def encode_cut(self, rows: Rows) -> list[Encoded]:
        """Encode all rows, in order, in pieces of at most 1 MiB or one row."""
        step = self._rows_of_a_piece(rows)
        if step < len(rows):
            return self._pieces(rows, step)
        try:
            codec, data = self.encode(rows)
        except Exception as error:  # any exception of a user's value or serializer
            if len(rows) == 1:
                return [Encoded(0, 1, 0, b"", f"{type(error).__name__}: {error}")]
            return self._pieces(rows, (len(rows) + 1) // 2)
        count = len(rows)
        if count == 1 and len(data) > self._tuple_max:
            text = (
                f"a tuple of {len(data)} bytes is larger than topology.tuple.max.bytes ({self._tuple_max}); "
                "hint: emit it in parts, or emit where it is stored"
            )
            return [Encoded(0, 1, codec, b"", text)]
        if count == 1 or len(data) <= MAX_BATCH_BYTES:
            if count > 1 and len(data) > self._tuple_max and self._any_too_large(rows):
                return self._pieces(rows, (count + 1) // 2)
            return [Encoded(0, count, codec, data)]
        # A little below the mean, so that rows of similar size rarely need a second cut.
        return self._pieces(rows, max(1, min(count // 2, count * (MAX_BATCH_BYTES - 65536) // len(data))))

    def _rows_of_a_piece(self, rows: Rows) -> int:
        """Return how many rows fit into a piece by a sample, or all of them.

        Rows of a megabyte each, encoded together only to be cut, would take gigabytes and half a minute.
        """
        count = len(rows)
        if count <= SAMPLE_ROWS:
            return count
        sample, pickled = rows[:: -(-count // SAMPLE_ROWS)], self.pickled_batches
        try:
            mean = len(self.encode(sample)[1]) / len(sample)
        except Exception:  # any exception of a user's value or serializer; encoding all rows finds it again
            return count
        finally:
            self.pickled_batches = pickled
        return count if mean * count <= 2 * MAX_BATCH_BYTES else max(1, int((MAX_BATCH_BYTES - 65536) / mean))

    def _any_too_large(self, rows: Rows) -> bool:
        """Return True if one row is too large, measured one by one. Needed only for a bound below that of a batch."""
        return any(len(self.encode([row])[1]) > self._tuple_max for row in rows)

    def _pieces(self, rows: Rows, step: int) -> list[Encoded]:
        pieces = []
        for start in range(0, len(rows), step):
            for piece in self.encode_cut(rows[start : start + step]):
                pieces.append(Encoded(start + piece.start, start + piece.stop, piece.codec, piece.data, piece.refused))
        return pieces

    def decode(self, codec: int, data: bytes) -> list[Row]:
        """Return the rows in ``data``. Raises ValuesError."""
        try:
            if codec == CodecNumber.MSGPACK:
                return self._unpack(data)
            if codec == CodecNumber.PICKLE:
                rows: list[Row] = pickle.loads(data)
                return rows
            if codec == CodecNumber.ARROW:
                self._arrow = self._arrow or _load_arrow()
                return _arrow_rows(self._arrow, data)
            if codec == CodecNumber.CUSTOM and self._custom is not None:
                return [tuple(row) for row in self._custom.deserialize(data)]
        except Exception as error:  # any exception of unpickling a user's class
            raise ValuesError(f"values cannot be decoded: {type(error).__name__}: {error}") from error
        raise ValuesError(f"values cannot be decoded: unknown encoding {codec}")

    def _encode_auto(self, rows: Rows) -> tuple[int, bytes]:
        if set(map(type, chain.from_iterable(rows))) <= PLAIN_TYPES:
            try:
                return CodecNumber.MSGPACK, self._pack(rows)
            except (OverflowError, ValueError):  # UnicodeEncodeError is a ValueError
                pass
        self.pickled_batches += 1
        return CodecNumber.PICKLE, pickle.dumps(list(rows), 5)

    def _encode_msgpack(self, rows: Rows) -> tuple[int, bytes]:
        if not set(map(type, chain.from_iterable(rows))) <= PLAIN_TYPES:
            odd = next(v for v in chain.from_iterable(rows) if type(v) not in PLAIN_TYPES)
            raise ValuesError(
                f"topology.serializer is msgpack, and a value is of type {type(odd).__name__}; hint: emit str, bytes, "
                "int, float, bool or None, or set the serializer to auto"
            )
        return CodecNumber.MSGPACK, self._pack(rows)

    def _encode_pickle(self, rows: Rows) -> tuple[int, bytes]:
        return CodecNumber.PICKLE, pickle.dumps(list(rows), 5)

    def _encode_arrow(self, rows: Rows) -> tuple[int, bytes]:
        # Arrow has one type per column and does not distinguish all values of Python. A batch that does not decode to
        # equal rows is sent as ``auto`` would send it.
        try:
            data = _arrow_bytes(self._arrow, rows)
            back = _arrow_rows(self._arrow, data)
        except Exception:  # pyarrow raises many kinds
            return self._encode_auto(rows)
        same = back == list(rows) and list(map(type, chain.from_iterable(back))) == list(
            map(type, chain.from_iterable(rows))
        )
        return (CodecNumber.ARROW, data) if same else self._encode_auto(rows)

    def _encode_custom(self, rows: Rows) -> tuple[int, bytes]:
        return CodecNumber.CUSTOM, bytes(self._custom.serialize(list(rows)))


def _load_arrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise ValuesError(
            "topology.serializer is arrow, and pyarrow is not installed\nhint: add pyarrow to requirements.txt, or set "
            "the serializer to auto"
        ) from error


def _arrow_bytes(arrow: Any, rows: Rows) -> bytes:
    columns = [arrow.array(column) for column in zip(*rows, strict=True)]
    batch = arrow.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _arrow_rows(arrow: Any, data: bytes) -> list[Row]:
    with arrow.ipc.open_stream(data) as reader:
        table = reader.read_all()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

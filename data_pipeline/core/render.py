"""Renderers that turn a sink's records into payload bytes in the workers. Pure."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import msgspec

from data_pipeline.core.failure import failed
from data_pipeline.core.merge import Merged
from heronry.pipeline.rows import key_bytes
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.partitions import cells, folder_of
from heronry.streamlet.records import fields_of, named_fields, pack
from heronry.streamlet.server_sinks import ServerSink

Renderer = Callable[[Any], bytes]
_encode = msgspec.json.Encoder(decimal_format="number").encode


def to_json(record: Any) -> bytes:
    """Return the record as one line of JSON: named tuples and dataclasses as objects, other tuples as arrays."""
    return _encode(fields_of(record))


def to_pickle(record: Any) -> bytes:
    """Return the pickled record, for a later stage of this job."""
    return pickle.dumps(record, pickle.HIGHEST_PROTOCOL)


def to_fields_pickle(record: Any) -> bytes:
    """Return the pickled dict of the record's fields. Raises TypeError for a record without fields."""
    return pickle.dumps(named_fields(record), pickle.HIGHEST_PROTOCOL)


@dataclasses.dataclass(frozen=True)
class ToCells:
    """Renderer of the cells of a CSV line as a JSON list, from which Spark writes the line."""

    fields: tuple[str, ...]

    def __call__(self, record: Any) -> bytes:
        """Return the cells as JSON. Raises TypeError or ValueError."""
        return _encode(cells(record, self.fields))


@dataclasses.dataclass(frozen=True)
class ToServer:
    """Renderer of the form of a record that a server's connector accepts, for the task of this job that stages it."""

    sink: ServerSink

    def __call__(self, record: Any) -> bytes:
        """Return the pickled form. Raises TypeError or ConnectError."""
        return pickle.dumps(self.sink.encoded(record), pickle.HIGHEST_PROTOCOL)


@dataclasses.dataclass(frozen=True)
class InFolders:
    """Renderer of records that are written to folders named after the values of fields."""

    render: Renderer
    fields: tuple[str, ...]

    def __call__(self, record: Any) -> bytes:
        """Return the record's payload."""
        return self.render(record)

    def place(self, record: Any) -> bytes:
        """Return the record's folder. Raises TypeError or ValueError."""
        return folder_of(record, self.fields).encode()


@dataclasses.dataclass(frozen=True)
class ToAccumulator:
    """Renderer of the packed accumulator of a view's row."""

    step: str
    monoid: Monoid[Any, Any]

    def __call__(self, merged: Merged) -> bytes:
        """Return ``pack(accumulator)`` as MessagePack. Raises RecordFailed."""
        try:
            return pack(self.monoid.pack(merged.accumulator))
        except Exception as error:  # the user's pack, or an accumulator that is not plain
            raise failed(self.step, merged.key, error) from error

    def code(self, merged: Merged) -> bytes:
        """Return the key in the encoding of views. Raises RecordFailed."""
        try:
            return key_bytes(merged.key)
        except Exception as error:  # a key that MessagePack cannot represent
            raise failed(self.step, merged.key, error) from error

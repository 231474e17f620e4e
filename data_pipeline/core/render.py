"""A sink's records as payload bytes, made in the workers. Pure."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import msgspec

from data_pipeline.core.failure import failed
from data_pipeline.core.merge import Merged
from heronry.pipeline.rows import key_bytes
from heronry.streamlet.layout import cells, folder_of
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.records import fields_of, named_fields, pack
from heronry.streamlet.server_sinks import ServerSink

Renderer = Callable[[Any], bytes]
_encode = msgspec.json.Encoder(decimal_format="number").encode


def to_json(record: Any) -> bytes:
    """One line of JSON: named tuples and dataclasses as objects, other tuples as arrays."""
    return _encode(fields_of(record))


def to_pickle(record: Any) -> bytes:
    """The record itself, for whoever reads it back in this job."""
    return pickle.dumps(record, pickle.HIGHEST_PROTOCOL)


def to_fields_pickle(record: Any) -> bytes:
    """The record as a dict of its fields. Raises TypeError for a record without fields."""
    return pickle.dumps(named_fields(record), pickle.HIGHEST_PROTOCOL)


@dataclasses.dataclass(frozen=True)
class ToCells:
    """The cells of a line of csv, as a list in JSON: Spark writes the line."""

    fields: tuple[str, ...]

    def __call__(self, record: Any) -> bytes:
        """Raises TypeError, ValueError."""
        return _encode(cells(record, self.fields))


@dataclasses.dataclass(frozen=True)
class ToServer:
    """What a server's connector takes of a record, for the task that stages it in this job."""

    sink: ServerSink

    def __call__(self, record: Any) -> bytes:
        """Raises TypeError, ConnectError."""
        return pickle.dumps(self.sink.encoded(record), pickle.HIGHEST_PROTOCOL)


@dataclasses.dataclass(frozen=True)
class InFolders:
    """A record that lies in a folder by the values of fields."""

    render: Renderer
    fields: tuple[str, ...]

    def __call__(self, record: Any) -> bytes:
        """The record's payload."""
        return self.render(record)

    def place(self, record: Any) -> bytes:
        """Its folder. Raises TypeError, ValueError."""
        return folder_of(record, self.fields).encode()


@dataclasses.dataclass(frozen=True)
class ToAccumulator:
    """The packed accumulator of a view's row."""

    step: str
    monoid: Monoid[Any, Any]

    def __call__(self, found: Merged) -> bytes:
        """MessagePack of ``pack(accumulator)``. Raises RecordFailed."""
        try:
            return pack(self.monoid.pack(found.accumulator))
        except Exception as error:  # the user's pack, or an accumulator that is not plain
            raise failed(self.step, found.key, error) from error

    def code(self, found: Merged) -> bytes:
        """The key as views know it. Raises RecordFailed."""
        try:
            return key_bytes(found.key)
        except Exception as error:  # a key MessagePack does not have
            raise failed(self.step, found.key, error) from error

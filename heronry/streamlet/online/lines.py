"""Records as lines: what files of JSON and of csv are made of. A record that makes no line is named."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from heronry.streamlet.columns import each
from heronry.streamlet.endpoints import FileSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.layout import cells, csv_lines
from heronry.streamlet.records import fields_of


class Lines(Protocol):
    """``suffix`` of the file; ``head``: what it begins with."""

    suffix: str
    head: bytes

    def encode(self, records: list[Any]) -> bytes:
        """Whole lines. Raises StepFailed."""


def lines_of(step: str, sink: FileSink) -> Lines:
    """The lines of a sink of text."""
    return JsonLines(step) if sink.format == "json" else CsvLines(step, sink.fields)


class JsonLines:
    """One record a line."""

    suffix = ".json"
    head = b""

    def __init__(self, step: str) -> None:
        self._name = step
        self._encoder = msgspec.json.Encoder(decimal_format="number")  # as the batch writes them

    def encode(self, records: list[Any]) -> bytes:
        """Raises StepFailed."""
        if isinstance(records[0], tuple) or not {*map(type, records)} <= {dict, str, int, float}:
            records = list(map(fields_of, records))
        try:
            return self._encoder.encode_lines(records)
        except Exception:
            return self._one_by_one(records)

    def _one_by_one(self, records: list[Any]) -> bytes:
        lines = []
        for record in records:
            try:
                lines.append(self._encoder.encode(record))
            except Exception as error:
                raise StepFailed(self._name, record) from error
        return b"\n".join(lines) + b"\n"


class CsvLines:
    """The fields that the sink names, in the first line of each file and then of each record."""

    suffix = ".csv"

    def __init__(self, step: str, fields: tuple[str, ...]) -> None:
        self._name, self._fields = step, fields
        self.head = csv_lines([fields])

    def encode(self, records: list[Any]) -> bytes:
        """Raises StepFailed."""
        return csv_lines(each(self._name, lambda record: cells(record, self._fields), records))

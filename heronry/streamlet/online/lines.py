"""Encoders of records as lines of JSON and csv files.

The error for a record that cannot be encoded names the record.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from heronry.streamlet.columns import each
from heronry.streamlet.endpoints import FileSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.partitions import cells, csv_lines
from heronry.streamlet.records import fields_of


class Lines(Protocol):
    """Interface of a line encoder.

    Attributes:
        suffix: Suffix of the file.
        head: Bytes that the file begins with.
    """

    suffix: str
    head: bytes

    def encode(self, records: list[Any]) -> bytes:
        """Return the records as whole lines.

        Raises:
            StepFailed: A record cannot be encoded.
        """


def lines_of(step: str, sink: FileSink) -> Lines:
    """Return the encoder for a sink of text files."""
    return JsonLines(step) if sink.format == "json" else CsvLines(step, sink.fields)


class JsonLines:
    """Encoder of one JSON value per line."""

    suffix = ".json"
    head = b""

    def __init__(self, step: str) -> None:
        self._name = step
        self._encoder = msgspec.json.Encoder(decimal_format="number")  # as the batch engine writes them

    def encode(self, records: list[Any]) -> bytes:
        """Return the records as lines.

        Raises:
            StepFailed: A record cannot be encoded.
        """
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
    """Encoder of csv lines. The first line of each file has the names of the sink's fields."""

    suffix = ".csv"

    def __init__(self, step: str, fields: tuple[str, ...]) -> None:
        self._name, self._fields = step, fields
        self.head = csv_lines([fields])

    def encode(self, records: list[Any]) -> bytes:
        """Return the records as lines.

        Raises:
            StepFailed: A record cannot be encoded.
        """
        return csv_lines(each(self._name, lambda record: cells(record, self._fields), records))

"""Lookup: a stream joined with a small table that does not change, which is read whole where the step runs.

Theory of operation. A table is a finite source whose records are *rows*. Each task or worker that runs the step reads
it at its start, before the first record, into a dict by canonical key. The lookup thus sends no records over the
network. With its table, a lookup is a ``flat_map`` from a record to its matches, and every engine runs it as one. Event
times, positions and failing records are therefore handled as for any other step. A table that cannot be read is not the
fault of a record: it fails the task, or the batch. If the table changes while the program runs, tasks that start later
see another table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from heron_runtime.failures import Failure
from heron_runtime.model.copies import copied
from heron_runtime.model.keys import encode
from heronry.streamlet.decoding import read_all
from heronry.streamlet.endpoints import FileSource, SequenceSource, Source
from heronry.streamlet.errors import shown
from heronry.streamlet.program import FlatMapStep, LookupStep, Matched, Program


class LookupTableError(Failure):
    """Error for a table that cannot be used."""

    cure = "Fix the table, or the key= of the step."


class LookupTable:
    """Function from a record to its matches.

    It is serialized without its rows. The receiver calls ``load`` first.
    """

    def __init__(self, step: LookupStep) -> None:
        self._step = step
        self._rows: dict[bytes, list[Any]] | None = None

    def load(self) -> None:
        """Read the table.

        Raises:
            OSError: A file cannot be opened.
            ReadError: A file cannot be decoded.
            LookupTableError: A row has no valid key.
        """
        rows: dict[bytes, list[Any]] = {}
        step = self._step
        for row in rows_of(step.table):
            try:
                rows.setdefault(encode(step.table_key(row)), []).append(row)
            except Exception as error:  # includes errors of the user's key function
                raise LookupTableError(
                    f"step {step.name!r}: the row {shown(row)} of its table has no key: {error}"
                ) from error
        self._rows = rows

    def __call__(self, record: Any) -> list[Matched[Any, Any]]:
        """Return the matches, with copies of the rows, because a later step may change them in place.

        Errors of the user's key function are raised unchanged.

        Raises:
            UnsupportedKey: The key of the record cannot be encoded.
        """
        if self._rows is None:
            self.load()
        assert self._rows is not None
        match = self._rows.get(encode(self._step.on(record)))
        if match is None:
            return [Matched(record, None)] if self._step.how == "left" else []
        if len(match) == 1:
            return [Matched(record, copied(match[0]))]
        return [Matched(copied(record), copied(row)) for row in match]

    def __getstate__(self) -> dict[str, Any]:
        return {"_step": self._step, "_rows": None}


def rows_of(table: Source[Any]) -> Iterator[Any]:
    """Yield every record of a finite source. Errors of ``make`` are raised unchanged.

    Raises:
        ReadError: A file cannot be decoded.
        OSError: A file cannot be opened.
    """
    if isinstance(table, FileSource):
        return (record for record, _ in read_all(table))
    assert isinstance(table, SequenceSource)
    assert table.stop is not None
    numbers = range(table.start, table.stop)
    return iter(numbers) if table.make is None else (table.make(number) for number in numbers)


def as_flat_map(step: LookupStep) -> FlatMapStep:
    """Return the step that an engine runs instead. The table is not read yet."""
    return FlatMapStep(step.name, step.input, LookupTable(step), parallelism=step.parallelism)


def without_lookups(program: Program) -> Program:
    """Return the program with each lookup replaced by a flat_map."""
    steps = tuple(as_flat_map(step) if isinstance(step, LookupStep) else step for step in program.steps)
    return replace(program, steps=steps)

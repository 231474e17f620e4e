"""A stream joined with a small table that does not change: the table is read whole where the step runs.

Theory of operation. A table is a finite source whose records are *rows*. Each task, or worker, that runs the step reads
it when it begins, before the first record, into a dict by canonical key; no record crosses the network for it. With its
table a lookup is a ``flat_map`` from a record to its matches, and that is what every engine makes of it, so event
times, positions and records that fail are as behind any other. A table that cannot be read is no record's fault: it
fails the task, or the batch. When it changes while the program runs, tasks that begin later see another one.
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
    """A table cannot be used."""

    cure = "Mend the table, or the key= of the step."


class LookupTable:
    """``record → its matches``. Travels without the rows: whoever has got it calls ``load`` first."""

    def __init__(self, step: LookupStep) -> None:
        self._step = step
        self._rows: dict[bytes, list[Any]] | None = None

    def load(self) -> None:
        """Read the table. Raises OSError, ReadError, LookupTableError."""
        rows: dict[bytes, list[Any]] = {}
        step = self._step
        for row in rows_of(step.table):
            try:
                rows.setdefault(encode(step.table_key(row)), []).append(row)
            except Exception as error:  # the user's key, too
                raise LookupTableError(
                    f"step {step.name!r}: the row {shown(row)} of its table has no key: {error}"
                ) from error
        self._rows = rows

    def __call__(self, record: Any) -> list[Matched[Any, Any]]:
        """Return the matches, with copies of the rows: a later step may change them in place. Raises UnsupportedKey,
        and what the user's key raises."""
        if self._rows is None:
            self.load()
        assert self._rows is not None
        found = self._rows.get(encode(self._step.on(record)))
        if found is None:
            return [Matched(record, None)] if self._step.how == "left" else []
        if len(found) == 1:
            return [Matched(record, copied(found[0]))]
        return [Matched(copied(record), copied(row)) for row in found]

    def __getstate__(self) -> dict[str, Any]:
        return {"_step": self._step, "_rows": None}


def rows_of(table: Source[Any]) -> Iterator[Any]:
    """Every record of a finite source. Raises ReadError, OSError, and what ``make`` raises."""
    if isinstance(table, FileSource):
        return (record for record, _ in read_all(table))
    assert isinstance(table, SequenceSource)
    assert table.stop is not None
    numbers = range(table.start, table.stop)
    return iter(numbers) if table.make is None else (table.make(number) for number in numbers)


def as_flat_map(step: LookupStep) -> FlatMapStep:
    """What an engine runs. The table is not read yet."""
    return FlatMapStep(step.name, step.input, LookupTable(step), parallelism=step.parallelism)


def without_lookups(program: Program) -> Program:
    """The program with a flat_map for each lookup."""
    steps = tuple(as_flat_map(step) if isinstance(step, LookupStep) else step for step in program.steps)
    return replace(program, steps=steps)

"""Server sources on Spark: ranges of their splits, fixed by the driver and read in tasks by the connector's reader.

Spark receives numbers, one for each range and partition, and the task looks up the range of its number. The records go
directly into the unit downstream of the source. They therefore do not cross to the JVM and back before the first user
function, may be any Python value, and Spark's plan holds only numbers. Passwords are in files that tasks read. Ranges
are fixed once for a job, so a retried task, or a second careful pass, reads the same input. Input that was removed in
between is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from data_pipeline.core.failure import ServerFailed
from heronry.connect.polling import Range
from heronry.connect.settings import ConnectError
from heronry.streamlet.program import SourceStep
from heronry.streamlet.servers import ServerSource, pieces_of, ranges_of

Ranges = Mapping[str, tuple[Range, ...]]  # source step → ranges


class _Places(Sequence[str]):
    """Readable positions of records, made only when a record fails."""

    def __init__(self, source: ServerSource, split: str, numbers: range) -> None:
        self._source, self._split, self._numbers = source, split, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self._source.place_of(self._split, number) for number in self._numbers[place]]
        return self._source.place_of(self._split, self._numbers[place])


def ranges_there(sources: Sequence[SourceStep]) -> Ranges:
    """Return the current ranges of each step that reads a server. Raises ConnectError or BadConfig."""
    return {
        step.name: ranges_of(step.source, f"heronry spark {step.name}")
        for step in sources
        if isinstance(step.source, ServerSource)
    }


def columns_in(
    step: str, source: ServerSource, ranges: Sequence[Range], batches: Iterator[Any]
) -> Iterator[dict[str, Any]]:
    """Yield, in a worker, the records of the ranges whose numbers are in the batches. Raises ServerFailed."""
    for batch in batches:
        wanted = [ranges[number] for number in batch.column("id").to_pylist()]
        try:
            for split, first, records in pieces_of(source, wanted, f"heronry spark {step}"):
                yield {"record": records, "file": _Places(source, split, range(first, first + len(records)))}
        except ConnectError as error:
            raise ServerFailed(step, str(error)) from None

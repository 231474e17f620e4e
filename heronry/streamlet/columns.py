"""Functions of the user's over a list of records at once. The record that one fails on is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronry.streamlet.errors import StepFailed
from heronry.streamlet.extract import Extractor, column
from heronry.streamlet.program import EventTime
from heronry.streamlet.windows import EventTimeError, to_ms


def each(step: str, function: Callable[[Any], Any], records: list[Any]) -> list[Any]:
    """The function over all records. Raises StepFailed, naming the step and the record."""
    made: list[Any] = []
    try:
        made.extend(map(function, records))  # grows one by one, so its length tells which record raised
    except Exception as error:
        raise StepFailed(step, records[len(made)]) from error
    if len(made) != len(records):  # map takes a StopIteration of the function for the end of the records
        raise StepFailed(step, records[len(made)]) from StopIteration()
    return made


def extracted(step: str, extractor: Extractor, records: list[Any]) -> list[Any]:
    """What the extractor takes from each record. Raises StepFailed."""
    try:
        values = column(extractor, records)
    except Exception:
        return each(step, extractor, records)  # names the record
    return values if len(values) == len(records) else each(step, extractor, records)


def refuse_future(step: str, times_ms: list[int], records: list[Any], latest_ms: int) -> None:
    """Raises StepFailed for the first record whose event time is later than this."""
    if times_ms and max(times_ms) > latest_ms:
        place = next(place for place, time_ms in enumerate(times_ms) if time_ms > latest_ms)
        raise StepFailed(step, records[place]) from EventTimeError(
            f"event time {times_ms[place]} ms is too far in the future: is its unit right? (user.streamlet.future.secs)"
        )


def times_of(step: str, time: EventTime, records: list[Any]) -> list[int]:
    """The event time of each record. Raises StepFailed."""
    unit = time.unit
    values = extracted(step, time.extractor, records)
    if unit == "ms" and {*map(type, values)} == {int}:
        return values
    found: list[int] = []
    try:
        found.extend(to_ms(value, unit) for value in values)
    except Exception as error:
        raise StepFailed(step, records[len(found)]) from error
    return found

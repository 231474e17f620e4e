"""Calls of the user's functions over a list of records. The error names the record on which a function failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronry.streamlet.errors import StepFailed
from heronry.streamlet.extract import Extractor, Function, column
from heronry.streamlet.program import EventTime
from heronry.streamlet.windows import EventTimeError, to_ms


def each(step: str, function: Callable[[Any], Any], records: list[Any]) -> list[Any]:
    """Return the results of the function over all records.

    Raises:
        StepFailed: The function failed. The error names the step and the record.
    """
    made: list[Any] = []
    try:
        made.extend(map(function, records))  # grows one by one: its length identifies the record that raised
    except Exception as error:
        raise StepFailed(step, records[len(made)]) from error
    if len(made) != len(records):  # the function raised StopIteration, which ends map
        raise StepFailed(step, records[len(made)]) from StopIteration()
    return made


def extracted(step: str, extractor: Extractor, records: list[Any]) -> list[Any]:
    """Return the results of the extractor over all records.

    Raises:
        StepFailed: The extractor failed on a record.
    """
    if isinstance(extractor, Function):
        return each(step, extractor.function, records)  # once, as the function may change its record
    try:
        return column(extractor, records)
    except Exception:
        return each(step, extractor, records)  # its error names the record


def refuse_future(step: str, times_ms: list[int], records: list[Any], latest_ms: int) -> None:
    """Check that no event time is later than ``latest_ms`` (ms since 1970 UTC).

    Raises:
        StepFailed: An event time is later. The error names the first such record.
    """
    if times_ms and max(times_ms) > latest_ms:
        place = next(place for place, time_ms in enumerate(times_ms) if time_ms > latest_ms)
        raise StepFailed(step, records[place]) from EventTimeError(
            f"event time {times_ms[place]} ms is too far in the future: is its unit right? (user.streamlet.future.secs)"
        )


def times_of(step: str, time: EventTime, records: list[Any]) -> list[int]:
    """Return the event time of each record, in ms since 1970 UTC.

    Raises:
        StepFailed: A record has no valid event time.
    """
    unit = time.unit
    values = extracted(step, time.extractor, records)
    if unit == "ms" and {*map(type, values)} == {int}:
        return values
    times: list[int] = []
    try:
        times.extend(to_ms(value, unit) for value in values)
    except Exception as error:
        raise StepFailed(step, records[len(times)]) from error
    return times

"""Behind the shuffle: the accumulators of one key become its result. Rows come sorted, so memory is one key's.

Spark sorts each partition by key and window (on disk where it must), so all rows of a key and window are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from data_pipeline.core.failure import failed
from data_pipeline.core.payload import load
from heronry.streamlet.combine import emitted
from heronry.streamlet.program import ReduceStep, Windowed


class Merged(NamedTuple):
    """One key (and window): its canonical encoding, itself, its window's start, its accumulator."""

    code: bytes
    key: Any
    start: int
    accumulator: Any


def merged(step: ReduceStep, rows: Iterable[tuple[bytes, int, bytes]]) -> Iterator[Merged]:
    """Join neighbours of equal key and start. Raises RecordFailed, naming the reducer and the key."""
    add = step.monoid.add
    last: tuple[bytes, int] | None = None
    key = accumulator = None
    for code, start, payload in rows:
        this, more = load(payload)
        if last == (code, start):
            try:
                accumulator = add(accumulator, more)
            except Exception as error:  # the user's monoid
                raise failed(step.name, key, error) from error
            continue
        if last is not None:
            yield Merged(last[0], key, last[1], accumulator)
        last, key, accumulator = (code, start), this, more
    if last is not None:
        yield Merged(last[0], key, last[1], accumulator)


def result_of(step: ReduceStep, found: Merged) -> tuple[Any, int | None]:
    """The record a reducer emits, and its event time. Raises RecordFailed."""
    try:
        value = step.monoid.finish(found.accumulator)
    except Exception as error:  # the user's monoid
        raise failed(step.name, found.key, error) from error
    result = emitted(step, found.key, found.start, value)
    return result, result.end - 1 if isinstance(result, Windowed) else None

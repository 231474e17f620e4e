"""Merge after the shuffle: the accumulators of one key become its result.

Spark sorts each partition by key and window, on disk where necessary. All rows of a key and window are therefore
neighbours, and memory is bounded by one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from data_pipeline.core.failure import failed
from data_pipeline.core.payload import load
from heronry.streamlet.combine import emitted
from heronry.streamlet.process import KeyMemory, KeyTimeline, MomentResult
from heronry.streamlet.program import ReduceStep, Windowed


class Merged(NamedTuple):
    """Merged accumulator of one key and window, with the key, its canonical encoding and the start of the window."""

    code: bytes
    key: Any
    start: int
    accumulator: Any


def merged(step: ReduceStep, rows: Iterable[tuple[bytes, int, bytes]]) -> Iterator[Merged]:
    """Merge neighbouring rows of equal key and start, and sessions at most the gap apart.

    Raises:
        RecordFailed: The user's monoid failed; the exception names the reducer and the key.
    """
    if step.merges:
        yield from _sessions(step, rows)
        return
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


def _sessions(step: ReduceStep, rows: Iterable[tuple[bytes, int, bytes]]) -> Iterator[Merged]:
    """Merge sessions: sorted by start, a session can touch only the one before it."""
    assert step.windowing is not None
    add, gap_ms = step.monoid.add, step.windowing.window.length_ms
    code: bytes | None = None
    key = acc = None
    start = last = 0
    for this_code, this_start, payload in rows:
        this, (this_last, more) = load(payload)
        if this_code == code and this_start - last <= gap_ms:
            try:
                acc = add(acc, more)
            except Exception as error:  # the user's monoid
                raise failed(step.name, key, error) from error
            last = max(last, this_last)
            continue
        if code is not None:
            yield Merged(code, key, start, (last, acc))
        code, key, start, last, acc = this_code, this, this_start, this_last, more
    if code is not None:
        yield Merged(code, key, start, (last, acc))


def processed(step: ReduceStep, merged: Iterable[Merged]) -> Iterator[MomentResult]:
    """Yield the results of a process step's handlers for each key's moments, which arrive sorted by key and time."""
    assert step.process is not None
    for _, moments in groupby(merged, key=attrgetter("code")):
        life: KeyTimeline | None = None
        for moment in moments:
            life = life or KeyTimeline(step.name, step.process, moment.key, KeyMemory())
            yield from life.moment(moment.start, moment.accumulator)
        if life is not None:
            yield from life.until(None)


def result_of(step: ReduceStep, merged: Merged) -> tuple[Any, int | None]:
    """Return the record that a reducer emits, and its event time in ms or None. Raises RecordFailed."""
    try:
        result = emitted(step, merged.key, merged.start, merged.accumulator)
    except Exception as error:  # the user's monoid
        raise failed(step.name, merged.key, error) from error
    return result, result.end - 1 if isinstance(result, Windowed) else None

"""The map-side combine: one accumulator per key (and window) of what a partition has seen, bounded in memory.

Theory of operation. A dict holds an accumulator for each key. Python's own equality finds the key: what is equal in
Python is equal in the canonical encoding for str, int, float, bool, bytes and None, whatever else comes is looked up by
its encoding. (NaN equals nothing, so it may stand in the dict several times; the merge behind the shuffle joins what is
one key.) When the dict holds too many keys, or accumulators that have grown too large, it is emptied into rows, which
costs a few rows more through the shuffle and nothing else, since ``add`` is associative and commutative.

Records come in chunks: keys, values and times are taken from a whole chunk at once, in C where they are plain fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

from data_pipeline.core.failure import RecordFailed, failed
from data_pipeline.core.payload import dump
from heronry.model.keys import UnsupportedKey, encode
from heronry.streamlet.extract import Field, Function, column
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.windows import EventTimeError, to_ms

CHUNK_RECORDS = 1_024  # small, so that a chunk is still in the processor's cache when it is folded
FLUSH_ROWS = 8_192
MAX_KEYS = 200_000
MAX_BYTES = 64 * 1024 * 1024
SAMPLED = 16
MEASURE_EVERY = 32  # chunks between two looks at how large accumulators have grown
_HASHED_ALIKE = {str, int, float, bool, bytes, type(None)}
_MISSING = object()


class Rows(NamedTuple):
    """Rows on their way out of a unit, as columns: exit, canonical key, start of the window (0 without), payload.

    ``counts``: of a counting reducer, the accumulators once more, for SQL to add.
    """

    tag: int
    keys: Sequence[bytes | None]
    starts: list[int]
    payloads: list[bytes]
    counts: list[int] | None = None


class _Coded(NamedTuple):
    """A key that is looked up by its encoding."""

    code: bytes


@dataclass(frozen=True)
class Limits:
    """When a combiner empties itself, and how many records it looks at together."""

    max_keys: int = MAX_KEYS
    max_bytes: int = MAX_BYTES
    chunk_records: int = CHUNK_RECORDS


class Combiner:
    """The accumulators of one reducer's exit in one partition. ``add`` and ``flush`` yield rows."""

    def __init__(self, tag: int, step: ReduceStep, timed: bool, limits: Limits | None = None) -> None:
        self.tag = tag
        self.step = step
        self.timed = timed
        self.limits = limits or Limits()
        self.table: dict[Any, Any] = Counter() if step.monoid.builtin == "count" else {}
        self.originals: dict[_Coded, Any] = {}
        self._chunks = 0

    def add(self, items: Iterator[Any]) -> Iterator[Rows]:
        """Take records, or (record, time) pairs if ``timed``."""
        if self.step.monoid.builtin == "count" and self.step.windowing is None and not isinstance(self.step.key, Field):
            yield from self._count(items)
        while chunk := list(islice(items, self.limits.chunk_records)):
            self._fold(chunk)
            if self._is_full():
                yield from self.flush()

    def flush(self) -> Iterator[Rows]:
        """Everything there is, as rows; the combiner is empty afterwards."""
        table, self.table = self.table, type(self.table)()
        originals, self.originals = self.originals, {}
        windowed = self.step.windowing is not None
        entries = iter(table.items())
        while part := list(islice(entries, FLUSH_ROWS)):
            keys: list[bytes | None] = []
            starts, payloads = [], []
            for place, accumulator in part:
                start, key = place if windowed else (0, place)
                if key.__class__ is _Coded:
                    code, key = key.code, originals[key]
                else:
                    code = encode(key)
                keys.append(code)
                starts.append(start)
                payloads.append(self._dump(key, accumulator))
            counts = [count for _, count in part] if self.step.monoid.builtin == "count" else None
            yield Rows(self.tag, keys, starts, payloads, counts)

    def _dump(self, key: Any, accumulator: Any) -> bytes:
        try:
            return dump(key, accumulator)
        except Exception as error:  # pickle raises what the user's classes raise
            raise failed(self.step.name, accumulator, error) from error

    def _is_full(self) -> bool:
        size = len(self.table)
        if size >= self.limits.max_keys:
            return True
        self._chunks += 1
        scalar = self.step.monoid.builtin in ("count", "sum", "min", "max", "mean")
        if scalar or not size or self._chunks % MEASURE_EVERY:
            return False
        sample = list(islice(self.table.items(), SAMPLED))
        each = sum(len(self._dump(None, accumulator)) for _, accumulator in sample) / len(sample)
        return each * size > self.limits.max_bytes

    # Counting, the most frequent of all: keys go straight from the iterator into the dict, in C.

    def _count(self, items: Iterator[Any]) -> Iterator[Rows]:
        """A chunk at a time while keys are of the simple types; any other is looked up by its encoding."""
        assert isinstance(self.table, Counter)
        records = (record for record, _ in items) if self.timed else items
        keys = map(self.step.key.function, records) if isinstance(self.step.key, Function) else records
        for first in keys:
            if type(first) in _HASHED_ALIKE or type(first) is tuple:
                before = len(self.table)
                self.table.update(chain((first,), islice(keys, self.limits.chunk_records - 1)))
                self._check_newest(len(self.table) - before)
            else:
                self.table.update(self._keys([first]))
            if self._is_full():
                yield from self.flush()

    def _check_newest(self, number: int) -> None:
        """Raises UnsupportedKey if one of the keys that came last is none."""
        for key in islice(reversed(self.table), number):
            if type(key) not in _HASHED_ALIKE:
                encode(key)

    # Folding.

    def _fold(self, chunk: list[Any]) -> None:
        records, times = self._columns(chunk)
        keys = self._keys(column(self.step.key, records))
        counts = self.step.monoid.builtin == "count"
        values = None if counts else column(self.step.value, records)
        if times is not None:
            keys, values = self._windows(keys, values, times)
        if counts:
            assert isinstance(self.table, Counter)
            self.table.update(keys)
        elif self.step.monoid.builtin == "sum":
            self._sum(keys, values)
        else:
            self._fold_any(keys, values)

    def _columns(self, chunk: list[Any]) -> tuple[list[Any], list[int] | None]:
        """Records, and their times if there are windows."""
        records = [record for record, _ in chunk] if self.timed else chunk
        windowing = self.step.windowing
        if windowing is None:
            return records, None
        own = windowing.event_time
        if own is None:
            return records, [_known(time, record, self.step) for record, time in chunk]
        unit = own.unit
        return records, [to_ms(value, unit) for value in column(own.extractor, records)]

    def _keys(self, keys: list[Any]) -> list[Any]:
        if {*map(type, keys)} <= _HASHED_ALIKE:
            return keys
        found = []
        for key in keys:
            if type(key) not in _HASHED_ALIKE:
                original, key = key, _Coded(encode(key))
                self.originals.setdefault(key, original)
            found.append(key)
        return found

    def _windows(self, keys: list[Any], values: Any, times: list[int]) -> tuple[list[Any], Any]:
        """(start, key) for each window a record is in, and the values beside them."""
        assert self.step.windowing is not None
        window = self.step.windowing.window
        if window.is_tumbling:
            every = window.every_ms
            return list(zip([time - time % every for time in times], keys, strict=True)), values
        starts = [window.starts(time) for time in times]
        places = [(start, key) for key, those in zip(keys, starts, strict=True) for start in those]
        if values is not None:
            values = list(chain.from_iterable(map(repeat, values, map(len, starts))))
        return places, values

    def _sum(self, places: list[Any], values: Any) -> None:
        table, place, value = self.table, None, None
        get = table.get
        try:
            for place, value in zip(places, values, strict=True):
                acc = get(place)
                table[place] = value if acc is None else acc if value is None else acc + value
        except Exception as error:  # the values' own __add__
            raise failed(self.step.name, value, error) from error

    def _fold_any(self, places: list[Any], values: Any) -> None:
        table, monoid, place, value = self.table, self.step.monoid, None, None
        fold, add, lift, zero = monoid.fold, monoid.add, monoid.lift, monoid.zero
        get = table.get
        try:
            for place, value in zip(places, values, strict=True):
                acc = get(place, _MISSING)
                if acc is _MISSING:
                    acc = zero()
                table[place] = add(acc, lift(value)) if fold is None else fold(acc, value)
        except Exception as error:  # the user's monoid
            raise failed(self.step.name, value, error) from error


def _known(time: int | None, record: Any, step: ReduceStep) -> int:
    if time is None:
        raise failed(step.window_step or step.name, record, EventTimeError("no event time"))
    return time


def check_record(step: ReduceStep, record: Any) -> RecordFailed | None:
    """Which part of a reducer cannot take this record, if any: its key, its value or its event time."""
    own = step.windowing.event_time if step.windowing else None
    try:
        key = step.key(record)
    except Exception as error:  # the user's function
        return failed(step.key_step or step.name, record, error)
    try:
        encode(key)
    except UnsupportedKey as error:
        return failed(step.key_step or step.name, record, error)
    if own is not None:
        try:
            to_ms(own.extractor(record), own.unit)
        except Exception as error:  # the user's function, or no time
            return failed(step.window_step or step.name, record, error)
    try:
        step.value(record)
    except Exception as error:  # the user's function
        return failed(step.name, record, error)
    return None

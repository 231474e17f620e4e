"""Combiner of records into accumulators, one for each key, or key and window.

This is the half of a reduction before the shuffle, the same in every engine.

Theory of operation. A table holds the accumulators. Keys are looked up by Python's equality, which nearly matches the
canonical encoding: keys that are equal in Python have one encoding. The converse does not always hold (NaN equals
nothing, ``__heronry_key__`` may give unlike objects one key). Such keys have several entries in the table, and the
shuffle, which uses encodings, combines them. Keys that Python cannot hash or compare are looked up by their encodings.

Records are added as lists. Keys, values and times are extracted from all of them at once, in C if they are plain
fields. The engine decides when it takes the table, and how many records it adds at once.

*Sessions*: a session is a run of records of one key in which the time between two successive records is at
most the gap. An engine stores a session as a window's start and, as its accumulator, the pair ``(last, acc)``: the time
of its last record, and the accumulator of its values. Sessions of one key whose distance is at most the gap are merged,
so stored sessions are farther apart, and in order of time. Adding a session merges all sessions that it touches.

The resulting sessions depend neither on the order of records nor on earlier merges: they are the connected components
of the records' times. Sets of sessions therefore form a monoid if their values do, and may be combined anywhere: before
the shuffle, after it, and between portions of a stream.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, islice, repeat
from operator import attrgetter
from typing import Any, NamedTuple

from heron_runtime.model.keys import UnsupportedKey, encode
from heronry.streamlet.columns import extracted, refuse_future, times_of
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.exact import add_all, add_exactly
from heronry.streamlet.instants import keys_by_instant
from heronry.streamlet.program import KeyValue, ReduceStep, Windowed
from heronry.streamlet.windows import EventTimeError, Window

Row = tuple[Any, ...]
_MISSING: Any = object()


class _Coded(NamedTuple):
    """Encoding of a key that Python cannot hash or compare."""

    code: bytes


class Combiner:
    """Table of accumulators of a reducer.

    With ``bucket``, rows carry the start of their bucket of event time although the reducer has no windows (a view).
    """

    def __init__(
        self,
        step: ReduceStep,
        bucket: Window | None = None,
        latest_time: Callable[[], int] | None = None,
        counted: bool = False,
    ) -> None:
        """Initialize an empty table.

        Args:
            step: The reducer.
            bucket: Buckets of event time of a reducer without windows.
            latest_time: Function that returns the latest valid event time at the moment of the call (ms since 1970
                UTC), if there is a limit.
            counted: Count the records of each entry, for ``record_counts``. The reducer must have windows.
        """
        self.step, self._latest_time = step, latest_time
        windowing = step.windowing
        self.window = windowing.window if windowing else bucket
        self._time = windowing.event_time if windowing else None
        self.counts = step.counts
        self.table: dict[Any, Any] = {}
        self._originals: dict[_Coded, Any] = {}
        # Entries of a tumbling or session window that count records are their own numbers of records.
        self._counted = counted and not (step.monoid.builtin == "count" and (step.merges or self._is_tumbling))
        self._records: Any = {}
        if step.merges:
            self._fold = _fold_sessions(step)
        else:
            self._fold = _count if self.counts else _sum if step.monoid.builtin == "sum" else _fold_of(step)
        self.take()

    @property
    def size(self) -> int:
        """Number of accumulators."""
        return self.table.size if isinstance(self.table, SessionTable) else len(self.table)

    @property
    def _is_tumbling(self) -> bool:
        return self.window is not None and self.window.is_tumbling

    def newest_keys(self, number: int) -> list[Any]:
        """Return the keys of the newest entries, in the form in which the table holds them."""
        keys = islice(reversed(self.table), number)
        return list(keys) if self.window is None or self.step.merges else [place[0] for place in keys]

    def add(self, records: list[Any], times_ms: Sequence[int | None] | None) -> int | None:
        """Fold records into the table.

        Args:
            records: The records.
            times_ms: Event times (ms since 1970 UTC), for a window without an event time of its own.

        Returns:
            The greatest event time if the window extracts its own. Otherwise None.

        Raises:
            StepFailed: A function failed on a record. The table may then contain some of the records.
        """
        if not records:
            return None
        step, latest, firsts = self.step, None, None
        keys = keys_by_instant(extracted(step.key_step or step.name, step.key, records))
        values = [] if self.counts else extracted(step.name, step.value, records)
        if self.window is not None:
            named = step.window_step or step.name
            if self._time is not None:
                times_ms = times_of(named, self._time, records)
                if self._latest_time is not None:
                    refuse_future(named, times_ms, records, self._latest_time())
                latest = max(times_ms)
            try:
                keys, values, firsts = _spread(
                    self.window, keys, values, times_ms or [None] * len(records), self._counted
                )
            except TypeError:
                without = next(n for n, time_ms in enumerate(times_ms or [None]) if time_ms is None)
                raise StepFailed(named, records[without]) from EventTimeError("no event time")
        try:
            self._fold(self.table, keys, values, step.name)
        except _KeyNotComparable as error:
            done = error.place
            coded = self._coded(keys[done:])
            self._fold(self.table, coded, values[done:], step.name)
            keys = [*keys[:done], *coded]
        if self._counted:
            self._count_records(keys if firsts is None else list(compress(keys, firsts)))
        return latest

    def _count_records(self, places: list[Any]) -> None:
        """Count one record for each (key, start)."""
        if self.step.merges:
            for key, time in places:
                self._records[key].append(time)
        else:
            self._records.update(places)

    def record_counts(self) -> list[int]:
        """Return the number of records in each row that ``take`` will return, in the same order.

        A record that is in several windows counts in the first one only.
        """
        if not self._counted:
            found = self.table.values()
            return [one.acc for sessions in found for one in sessions] if self.step.merges else list(found)
        if self.step.merges:
            return [number for key, found in self.table.items() for number in _lengths(found, self._records[key])]
        return [self._records[place] for place in self.table]

    def take(self) -> Iterable[Row]:
        """Return (key, accumulator) of all entries, with windows (key, start, accumulator), and empty the table."""
        table, self.table = self.table, self._empty()
        originals, self._originals = self._originals, {}
        self._records = defaultdict(list) if self.step.merges else Counter()
        if isinstance(table, SessionTable):
            return [(originals[key] if key.__class__ is _Coded else key, *found) for key, *found in table.rows()]
        if self.window is None:
            pairs: Iterable[Any] = table.items()
            if originals:
                pairs = [(originals[key] if key.__class__ is _Coded else key, acc) for key, acc in pairs]
            return pairs
        return [(originals[key] if key.__class__ is _Coded else key, start, acc) for (key, start), acc in table.items()]

    def _empty(self) -> dict[Any, Any]:
        if self.step.merges:
            return SessionTable()
        return Counter() if self.counts else {}

    def code_of(self, key: Any) -> bytes:
        """Return the canonical encoding of a key, which may also be in the form that the table holds.

        Raises:
            StepFailed: The key cannot be encoded.
        """
        if key.__class__ is _Coded:
            return bytes(key.code)
        try:
            return encode(key)
        except UnsupportedKey as error:
            raise StepFailed(self.step.key_step or self.step.name, key) from error

    def _coded(self, keys: list[Any]) -> list[Any]:
        """Return the keys replaced by their canonical encodings.

        Raises:
            StepFailed: A key cannot be encoded.
        """
        windowed, coded = self.window is not None, []
        for place in keys:
            key = place[0] if windowed else place
            code = _Coded(self.code_of(key))
            self._originals.setdefault(code, key)
            coded.append((code, place[1]) if windowed else code)
        return coded


def emitted(step: ReduceStep, key: Any, start: int | None, acc: Any) -> KeyValue[Any, Any] | Windowed[Any, Any]:
    """Return the result that the reducer emits for a key and its accumulator.

    Errors of the monoid's ``finish`` are raised unchanged.
    """
    finish = step.monoid.finish
    if start is None or step.windowing is None:
        return KeyValue(key, finish(acc))
    if step.merges:
        last, acc = acc
        return Windowed(key, start, last + step.windowing.window.length_ms, finish(acc))
    return Windowed(key, start, start + step.windowing.window.length_ms, finish(acc))


def _spread(
    window: Window, keys: list[Any], values: list[Any], times: Sequence[Any], counted: bool
) -> tuple[list[Any], list[Any], list[bool] | None]:
    """Return (key, start) for each window that a record is in, and the matching values.

    For a session the start is the record's time.

    Returns:
        The places, the values, and for each place True if it is the first one of its record (None: each is, or the
        records are not counted).
    """
    if window.merges:
        if None in times:
            raise TypeError
        return list(zip(keys, times, strict=True)), values, None
    if window.is_tumbling:
        length = window.length_ms
        return [(key, time - time % length) for key, time in zip(keys, times, strict=True)], values, None
    starts = list(map(window.starts, times))
    pairs = [(key, start) for key, mine in zip(keys, starts, strict=True) for start in mine]
    firsts = [start == mine[0] for mine in starts for start in mine] if counted else None
    return pairs, list(chain.from_iterable(map(repeat, values, map(len, starts)))), firsts


def _lengths(sessions: list[Session], times: list[int]) -> Iterable[int]:
    """Return the number of records in each session of a key, from the times of all of them."""
    if len(sessions) == 1:
        return [len(times)]
    times.sort()
    ends = [bisect_right(times, one.last) for one in sessions]
    return map(operator.sub, ends, [0, *ends])


class _KeyNotComparable(Exception):
    """Error for a key that Python cannot hash, or compare with another key. ``place`` is its index."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


def _failed(step: str, tables: Iterable[dict[Any, Any]], key: Any, value: Any, place: int) -> Exception:
    """Return the error for a value that cannot be added, or for its key if that cannot be looked up in the tables."""
    try:
        for table in tables:
            table.get(key)
    except Exception:  # raised by __hash__ or __eq__ of keys
        return _KeyNotComparable(place)
    return StepFailed(step, value)


def _place(keys: list[Any], remaining: Iterator[Any]) -> int:
    """Return the index of the key that an iterator over the keys returned last."""
    return len(keys) - operator.length_hint(remaining) - 1


# Folds add values to the table, each in the order of its arguments, up to the first key that cannot be looked up.


def _count(table: Any, keys: list[Any], values: list[Any], step: str) -> None:
    remaining = iter(keys)
    try:
        table.update(remaining)
    except Exception as error:  # raised by __hash__ or __eq__ of keys
        raise _KeyNotComparable(_place(keys, remaining)) from error


def _sum(table: dict[Any, Any], keys: list[Any], values: list[Any], step: str) -> None:
    key = value = None
    get, floats, remaining = table.get, dict[Any, list[float]](), iter(keys)
    try:
        for key, value in zip(remaining, values, strict=True):
            if value.__class__ is float:
                if key in floats:
                    floats[key].append(value)
                else:
                    floats[key] = [value]
                continue
            before = get(key)
            if before is None:
                table[key] = value
            elif value.__class__ is int and before.__class__ is int:
                table[key] = before + value
            elif value is not None:
                table[key] = add_exactly(before, value)
    except Exception as error:  # raised by the values' __add__
        raise _failed(step, (table, floats), key, value, _place(keys, remaining)) from error
    finally:
        _sum_floats(table, floats, step)


def _sum_floats(table: dict[Any, Any], floats: dict[Any, list[float]], step: str) -> None:
    key, values = None, [0.0]
    try:
        for key, values in floats.items():
            table[key] = add_all(table.get(key), values)
    except Exception as error:  # the sum so far is a Decimal, for example
        raise StepFailed(step, values[0]) from error


def _fold_of(step: ReduceStep) -> Callable[[dict[Any, Any], list[Any], list[Any], str], None]:
    monoid = step.monoid
    zero, add, lift, fold = monoid.zero, monoid.add, monoid.lift, monoid.fold

    def fold_all(table: dict[Any, Any], keys: list[Any], values: list[Any], step: str) -> None:
        key = value = None
        get, remaining = table.get, iter(keys)
        try:
            for key, value in zip(remaining, values, strict=True):
                acc = get(key, _MISSING)
                if acc is _MISSING:
                    acc = zero()
                table[key] = add(acc, lift(value)) if fold is None else fold(acc, value)
        except Exception as error:  # the user's monoid
            raise _failed(step, (table,), key, value, _place(keys, remaining)) from error

    return fold_all


def _fold_sessions(step: ReduceStep) -> Callable[[Any, list[Any], list[Any], str], None]:
    monoid = step.monoid
    zero, add, lift, fold = monoid.zero, monoid.add, monoid.lift, monoid.fold
    gap_ms = step.windowing.window.length_ms if step.windowing else 0

    def with_one(acc: Any, value: Any) -> Any:
        return add(acc, lift(value)) if fold is None else fold(acc, value)

    def fold_all(table: SessionTable, keys: list[Any], values: list[Any], step: str) -> None:
        key = value = None
        remaining = iter(keys)
        try:
            for (key, time), value in zip(remaining, values, strict=True):
                sessions = table.get(key)
                newest = sessions[-1] if sessions else None
                if newest is not None and newest.start <= time <= newest.last + gap_ms:  # the usual case
                    newest.acc = with_one(newest.acc, value)
                    newest.last = max(newest.last, time)
                else:
                    table.put(key, Session(time, time, with_one(zero(), value)), gap_ms, add)
        except Exception as error:  # the user's monoid
            raise _failed(step, (table,), key, value, _place(keys, remaining)) from error

    return fold_all


Add = Callable[[Any, Any], Any]
_start, _last = attrgetter("start"), attrgetter("last")


class Session:
    """Times of the first and the last record, in ms since 1970 UTC, and the accumulator of the values."""

    __slots__ = ("acc", "last", "start")

    def __init__(self, start: int, last: int, acc: Any) -> None:
        self.start, self.last, self.acc = start, last, acc


def touching(sessions: list[Session], start: int, last: int, gap_ms: int) -> slice:
    """Return the slice of a key's sessions that a session from ``start`` to ``last`` would be merged with."""
    first = bisect_left(sessions, start - gap_ms, key=_last)
    return slice(first, bisect_right(sessions, last + gap_ms, lo=first, key=_start))


def put(sessions: list[Session], new: Session, gap_ms: int, add: Add) -> tuple[Session, list[Session]]:
    """Add a session to those of its key. Errors of ``add`` are raised; the sessions are unchanged then.

    Returns:
        The session that it is now part of, and the sessions that were merged into that one.
    """
    near = touching(sessions, new.start, new.last, gap_ms)
    joined = sessions[near]
    if joined:
        acc = joined[0].acc
        for other in joined[1:]:
            acc = add(acc, other.acc)
        start, last = min(new.start, joined[0].start), max(new.last, joined[-1].last)
        new = Session(start, last, add(acc, new.acc))
    sessions[near] = [new]
    return new, joined


def ended(sessions: list[Session], last_ms: int) -> int:
    """Return the number of a key's sessions whose last record is at or before this time. These are the first ones."""
    return bisect_right(sessions, last_ms, key=_last)


class SessionTable(dict[Any, list[Session]]):
    """Sessions by key. ``size`` is the number of sessions."""

    size = 0

    def put(self, key: Any, new: Session, gap_ms: int, add: Add) -> None:
        """Add a session to those of its key, as the function ``put``."""
        sessions = self.get(key)
        if sessions is None:
            self[key] = [new]
            self.size += 1
        else:
            self.size += 1 - len(put(sessions, new, gap_ms, add)[1])

    def rows(self) -> Iterator[tuple[Any, int, tuple[int, Any]]]:
        """Yield (key, start, (last, accumulator)) of each session."""
        return ((key, one.start, (one.last, one.acc)) for key, sessions in self.items() for one in sessions)

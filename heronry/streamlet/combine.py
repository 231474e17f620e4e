"""Combiner of records into accumulators, one for each key, or key and window.

This is the half of a reduction before the shuffle, the same in every engine.

Theory of operation. A table holds the accumulators. Keys are looked up by Python's equality, which nearly matches the
canonical encoding: keys that are equal in Python have one encoding. The converse does not always hold (NaN equals
nothing, ``__heronry_key__`` may give unlike objects one key). Such keys have several entries in the table, and the
shuffle, which uses encodings, combines them. Keys that Python cannot hash are looked up by their encodings.

Records are added as lists. Keys, values and times are extracted from all of them at once, in C if they are plain
fields. The engine decides when it takes the table, and how many records it adds at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

from heron_runtime.model.keys import UnsupportedKey, encode
from heronry.streamlet.columns import extracted, refuse_future, times_of
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.exact import add_all, add_exactly
from heronry.streamlet.instants import keys_by_instant
from heronry.streamlet.program import KeyValue, ReduceStep, Windowed
from heronry.streamlet.sessions import Session, SessionTable
from heronry.streamlet.windows import EventTimeError, Window

Row = tuple[Any, ...]
_MISSING: Any = object()


class _Coded(NamedTuple):
    """Encoding of a key that Python cannot hash."""

    code: bytes


class Combiner:
    """Table of accumulators of a reducer.

    With ``bucket``, rows carry the start of their bucket of event time although the reducer has no windows (a view).
    """

    def __init__(
        self, step: ReduceStep, bucket: Window | None = None, latest_time: Callable[[], int] | None = None
    ) -> None:
        """Initialize an empty table.

        ``latest_time`` returns the latest valid event time at the moment of the call (ms since 1970 UTC), if there is a
        limit.
        """
        self.step, self._latest_time = step, latest_time
        windowing = step.windowing
        self.window = windowing.window if windowing else bucket
        self._time = windowing.event_time if windowing else None
        self.counts = step.counts
        self.table: dict[Any, Any] = {}
        self._originals: dict[_Coded, Any] = {}
        if step.merges:
            self._fold = _fold_sessions(step)
        else:
            self._fold = _count if self.counts else _sum if step.monoid.builtin == "sum" else _fold_of(step)
        self.take()

    @property
    def size(self) -> int:
        """Number of accumulators."""
        return self.table.size if isinstance(self.table, SessionTable) else len(self.table)

    def newest_keys(self, number: int) -> list[Any]:
        """Return the keys of the newest entries, in the form in which the table holds them."""
        found = islice(reversed(self.table), number)
        return list(found) if self.window is None or self.step.merges else [place[0] for place in found]

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
        step, latest = self.step, None
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
                keys, values = _spread(self.window, keys, values, times_ms or [None] * len(records))
            except TypeError:
                without = next(n for n, time_ms in enumerate(times_ms or [None]) if time_ms is None)
                raise StepFailed(named, records[without]) from EventTimeError("no event time")
        try:
            self._fold(self.table, keys, values, step.name)
        except _Unhashable:
            done = next(place for place, key in enumerate(keys) if not _is_hashable(key))
            self._fold(self.table, self._coded(keys[done:]), values[done:], step.name)
        return latest

    def take(self) -> Iterable[Row]:
        """Return (key, accumulator) of all entries, with windows (key, start, accumulator), and empty the table."""
        table, self.table = self.table, self._empty()
        originals, self._originals = self._originals, {}
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
        windowed, found = self.window is not None, []
        for place in keys:
            key = place[0] if windowed else place
            code = _Coded(self.code_of(key))
            self._originals.setdefault(code, key)
            found.append((code, place[1]) if windowed else code)
        return found


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


def _spread(window: Window, keys: list[Any], values: list[Any], times: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return (key, start) for each window that a record is in, and the matching values.

    For a session the start is the record's time.
    """
    if window.merges:
        if None in times:
            raise TypeError
        return list(zip(keys, times, strict=True)), values
    if window.is_tumbling:
        length = window.length_ms
        return [(key, time - time % length) for key, time in zip(keys, times, strict=True)], values
    starts = list(map(window.starts, times))
    pairs = [(key, start) for key, mine in zip(keys, starts, strict=True) for start in mine]
    return pairs, list(chain.from_iterable(map(repeat, values, map(len, starts))))


class _Unhashable(Exception):
    """Error for a key that Python cannot hash."""


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


# Folds add values to the table, each in the order of its arguments, up to the first key that cannot be hashed.


def _count(table: Any, keys: list[Any], values: list[Any], step: str) -> None:
    try:
        table.update(keys)
    except TypeError as error:
        raise _Unhashable from error


def _sum(table: dict[Any, Any], keys: list[Any], values: list[Any], step: str) -> None:
    key = value = None
    get, floats = table.get, dict[Any, list[float]]()
    try:
        for key, value in zip(keys, values, strict=True):
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
        raise _failed(step, key, value) from error
    finally:
        _sum_floats(table, floats, step)


def _sum_floats(table: dict[Any, Any], floats: dict[Any, list[float]], step: str) -> None:
    key, values = None, [0.0]
    try:
        for key, values in floats.items():
            table[key] = add_all(table.get(key), values)
    except Exception as error:  # the sum so far is a Decimal, for example
        raise _failed(step, key, values[0]) from error


def _fold_of(step: ReduceStep) -> Callable[[dict[Any, Any], list[Any], list[Any], str], None]:
    monoid = step.monoid
    zero, add, lift, fold = monoid.zero, monoid.add, monoid.lift, monoid.fold

    def fold_all(table: dict[Any, Any], keys: list[Any], values: list[Any], step: str) -> None:
        key = value = None
        get = table.get
        try:
            for key, value in zip(keys, values, strict=True):
                acc = get(key, _MISSING)
                if acc is _MISSING:
                    acc = zero()
                table[key] = add(acc, lift(value)) if fold is None else fold(acc, value)
        except Exception as error:  # the user's monoid
            raise _failed(step, key, value) from error

    return fold_all


def _fold_sessions(step: ReduceStep) -> Callable[[Any, list[Any], list[Any], str], None]:
    monoid = step.monoid
    zero, add, lift, fold = monoid.zero, monoid.add, monoid.lift, monoid.fold
    gap_ms = step.windowing.window.length_ms if step.windowing else 0

    def with_one(acc: Any, value: Any) -> Any:
        return add(acc, lift(value)) if fold is None else fold(acc, value)

    def fold_all(table: SessionTable, keys: list[Any], values: list[Any], step: str) -> None:
        place = value = None
        try:
            for place, value in zip(keys, values, strict=True):
                key, time = place
                found = table.get(key)
                newest = found[-1] if found else None
                if newest is not None and newest.start <= time <= newest.last + gap_ms:  # the usual case
                    newest.acc = with_one(newest.acc, value)
                    newest.last = max(newest.last, time)
                else:
                    table.put(key, Session(time, time, with_one(zero(), value)), gap_ms, add)
        except Exception as error:  # the user's monoid
            raise _failed(step, place, value) from error

    return fold_all


def _failed(step: str, key: Any, value: Any) -> Exception:
    return StepFailed(step, value) if _is_hashable(key) else _Unhashable()

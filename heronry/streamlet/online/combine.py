"""The map side of a reducer: the records of one block, reduced per key (and window) before they are shuffled.

A row is ``(key, accumulator)``, or ``(key, start, accumulator)`` for windows and buckets. Rows of one block hang on
that block alone, so its ack covers exactly what it contributed. Keys meet here by Python's equality, which canonical
encoding refines for what is rare (NaN, keys with ``__heronry_key__``); the reducer joins those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from heronry.model.keys import UnsupportedKey, encode
from heronry.streamlet.extract import column
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import each
from heronry.streamlet.program import EventTime, ReduceStep
from heronry.streamlet.reference import StepFailed
from heronry.streamlet.windows import EventTimeError, Window, to_ms

Row = tuple[Any, ...]


class Combiner:
    """``bucket_ms``: rows carry the start of their bucket of event time, for a view of a reducer without windows."""

    def __init__(self, step: ReduceStep, bucket_ms: int | None = None) -> None:
        self.step = step
        windowing = step.windowing
        self.window = windowing.window if windowing else Window(bucket_ms, bucket_ms) if bucket_ms else None
        self._time = windowing.event_time if windowing else None
        self._fold = _fold_of(step)

    def combine(self, block: Block) -> tuple[list[Row], int | None]:
        """The rows, and the greatest event time seen if it is the window's own. Raises StepFailed."""
        step, records = self.step, block.records
        if not records:
            return [], None
        keys = _column(step, step.key, records)
        counting = step.monoid.builtin == "count"
        values = records if counting else _column(step, step.value, records)
        if self.window is None:
            groups = self._groups(keys, values, counting)
            return list(groups.items()), None
        times = block.times_ms if self._time is None else times_of(step.window_step or step.name, self._time, records)
        if times is None:
            raise StepFailed(step.window_step or step.name, records[0]) from EventTimeError("no event time")
        seen = max(times) if self._time is not None else None
        groups = self._groups(*self._spread(keys, values, times), counting)
        return [(key, start, acc) for (key, start), acc in groups.items()], seen

    def _spread(self, keys: list[Any], values: list[Any], times: list[int]) -> tuple[list[Any], list[Any]]:
        """(key, start) for each window of each record, and the values beside them."""
        window = self.window
        assert window is not None
        if window.is_tumbling:
            length = window.length_ms
            return [(key, time - time % length) for key, time in zip(keys, times, strict=True)], values
        starts = list(map(window.starts, times))
        pairs = [(key, start) for key, mine in zip(keys, starts, strict=True) for start in mine]
        return pairs, [value for value, mine in zip(values, starts, strict=True) for _ in mine]

    def _groups(self, keys: list[Any], values: list[Any], counting: bool) -> dict[Any, Any]:
        try:
            return Counter(keys) if counting else self._fold(keys, values)
        except StepFailed:
            raise
        except TypeError:
            return self._slowly(keys, values)

    def _slowly(self, keys: list[Any], values: list[Any]) -> dict[Any, Any]:
        """Some key cannot be hashed by Python: by canonical encodings, which say what is wrong with it."""
        windowed = self.window is not None
        first: dict[Any, Any] = {}
        encoded = []
        for key in keys:
            plain = key[0] if windowed else key
            try:
                found = encode(plain)
            except UnsupportedKey as error:
                raise StepFailed(self.step.key_step or self.step.name, plain) from error
            name = (found, key[1]) if windowed else found
            first.setdefault(name, key)
            encoded.append(name)
        groups = self._fold(encoded, values)
        return _Pairs((first[name], acc) for name, acc in groups.items())  # type: ignore[return-value]  # only items()


class _Pairs(list[Any]):
    """Pairs that cannot be a dict since their keys cannot be hashed."""

    def items(self) -> Iterable[Any]:
        return self


def _column(step: ReduceStep, extractor: Any, records: list[Any]) -> list[Any]:
    try:
        return column(extractor, records)
    except Exception:
        return each(step, extractor, records)  # names the record


def times_of(step: str, time: EventTime, records: list[Any]) -> list[int]:
    """The event time of each record. Raises StepFailed."""
    unit = time.unit
    found: list[int] = []
    values: list[Any] = []
    try:
        values = column(time.extractor, records)
        if unit == "ms" and {*map(type, values)} == {int}:
            return values
        found.extend(to_ms(value, unit) for value in values)
    except Exception as error:
        if not values:  # the extractor raised
            for record in records:
                try:
                    time.extractor(record)
                except Exception as cause:
                    raise StepFailed(step, record) from cause
        raise StepFailed(step, records[len(found)]) from error
    return found


def _fold_of(step: ReduceStep) -> Callable[[list[Any], list[Any]], dict[Any, Any]]:
    """Folds values into one accumulator for each key."""
    if step.monoid.builtin == "sum":
        return _sum
    monoid = step.monoid
    zero, add, lift, quick = monoid.zero, monoid.add, monoid.lift, monoid.fold

    def fold(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
        groups: dict[Any, Any] = {}
        key = value = None
        try:
            for key, value in zip(keys, values, strict=True):
                acc = groups[key] if key in groups else zero()
                groups[key] = add(acc, lift(value)) if quick is None else quick(acc, value)
        except Exception as error:
            _reraise_if_of_the_key(key, error)
            raise StepFailed(step.name, value) from error
        return groups

    return fold


def _sum(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    groups: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        before = groups.get(key)
        groups[key] = value if before is None else before if value is None else before + value
    return groups


def _reraise_if_of_the_key(key: Any, error: Exception) -> None:
    try:
        hash(key)
    except TypeError:
        raise error from None

"""Event time and windows: pure arithmetic on whole milliseconds since 1970 UTC.

A window is half open, ``[start, end)``, and aligned to 1970: ``start`` is a whole multiple of ``every_ms`` (also before
1970, where multiples are negative). A tumbling window is a sliding one whose step is its length. A record at time t is
in every window with ``start <= t < end``: one tumbling window, ``ceil(length / every)`` sliding ones at most.

A session (``merges``) is a window that grows: a record at t begins with ``[t, t + gap]``, and those of one key that
overlap or touch are one. So two records that are just the gap apart are in one session, as in Spark and Flink. It is
told as ``start``, the time of its first record, and ``end``, that of its last one and the gap.

The closing rule, the same in every engine that closes windows: a window is closed when the watermark has reached
``end + allowed_lateness``; its result is emitted then, once. What comes for a closed window is late. A session may
still grow by a record at its end, so the watermark must have passed that.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from heronry.api.errors import TopologyError

Duration: TypeAlias = float | dt.timedelta  # seconds, or a timedelta
MS_PER_UNIT = {"s": 1000, "ms": 1}
HOUR_MS = 3_600_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Window:
    """``length_ms`` long, one each ``every_ms``. ``merges``: a session whose gap is ``length_ms``."""

    length_ms: int
    every_ms: int
    merges: bool = False

    @property
    def is_tumbling(self) -> bool:
        """Each record is in exactly one window."""
        return self.length_ms == self.every_ms and not self.merges

    def starts(self, time_ms: int) -> range:
        """The starts of the windows a record at this time is in, in order. (A session's may be earlier in the end.)"""
        if self.merges:
            return range(time_ms, time_ms + 1)
        last = time_ms - time_ms % self.every_ms
        first = last - (self.length_ms - 1 - (time_ms - last)) // self.every_ms * self.every_ms
        return range(first, last + 1, self.every_ms)


def tumbling(length: float | dt.timedelta) -> Window:
    """Windows of this length in seconds, side by side. Raises TopologyError."""
    milliseconds = whole_ms(length, "the length of a tumbling window", least=1)
    return Window(milliseconds, milliseconds)


def sliding(length: float | dt.timedelta, every: float | dt.timedelta) -> Window:
    """Windows of this length, one beginning each ``every`` seconds. Raises TopologyError."""
    length_ms = whole_ms(length, "the length of a sliding window", least=1)
    every_ms = whole_ms(every, "the step of a sliding window", least=1)
    if every_ms > length_ms:
        raise TopologyError(
            f"a sliding window of {length_ms} ms that moves by {every_ms} ms would leave records out; "
            "make `every` at most the length"
        )
    return Window(length_ms, every_ms)


def session(gap: float | dt.timedelta) -> Window:
    """Windows that last as long as no record of the key is more than ``gap`` seconds after the one before. Raises
    TopologyError."""
    return Window(whole_ms(gap, "the gap of a session window", least=1), 1, merges=True)


def whole_ms(given: Any, what: str, least: int = 0) -> int:
    """Seconds or a timedelta as whole milliseconds. Raises TopologyError."""
    if isinstance(given, dt.timedelta):
        milliseconds, rest = divmod(given, _MILLISECOND)
        exact = not rest
    elif isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given):
        milliseconds = round(given * 1000)
        exact = abs(given * 1000 - milliseconds) < 1e-6
    else:
        raise TopologyError(f"{what} is {given!r}; write seconds or a datetime.timedelta")
    if not exact or milliseconds < least:
        raise TopologyError(f"{what} is {given!r}; write whole milliseconds, at least {least} ms (0.001 is one)")
    return int(milliseconds)


class EventTimeError(ValueError):
    """A record's event time cannot be understood."""


def to_ms(value: Any, unit: str = "s") -> int:
    """An event time as milliseconds since 1970 UTC. Raises EventTimeError.

    A number counts ``unit`` ("s" or "ms") since 1970; a float is rounded to the nearest millisecond, halves to even.
    A datetime without a zone, and ISO 8601 text without one, are taken as UTC; what is below a millisecond is cut off
    towards the past.
    """
    if value.__class__ is int:
        return int(value) * MS_PER_UNIT[unit]
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise EventTimeError(f"event time {value!r} is not ISO 8601") from None
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (aware - _EPOCH) // _MILLISECOND
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return round(value * MS_PER_UNIT[unit])
    raise EventTimeError(f"event time {value!r} is no number, datetime or ISO 8601 text")


def hour_folder(time_ms: int) -> str:
    """``date=2026-11-21/hour=07``: where a record of this time lies in a folder partitioned by event hour.

    Raises EventTimeError outside the years 1 to 9999.
    """
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=time_ms - time_ms % HOUR_MS)
    except OverflowError:
        raise EventTimeError(f"event time {time_ms} ms is outside the years 1 to 9999") from None
    return f"date={moment:%Y-%m-%d}/hour={moment:%H}"

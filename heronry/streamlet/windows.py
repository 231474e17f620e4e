"""Event time and windows: pure arithmetic on whole milliseconds since 1970 UTC.

A window is half open, ``[start, end)``, and aligned to 1970: ``start`` is a whole multiple of ``every_ms`` (also before
1970, where multiples are negative). A tumbling window is a sliding window whose step is its length. A record at time t
is in every window with ``start <= t < end``: one tumbling window, or at most ``ceil(length / every)`` sliding windows.

A session (``merges``) is a window that grows. A record at t begins with ``[t, t + gap]``, and the intervals of one key
that overlap or touch are merged. Two records exactly the gap apart are therefore in one session, as in Spark and Flink.
Its ``start`` is the time of its first record, and its ``end`` is the time of its last record plus the gap.

The closing rule is the same in every engine that closes windows. A window is closed when the watermark has reached
``end + allowed_lateness``. Its result is emitted then, once. Records that arrive for a closed window are late. A
session may still grow by a record at its end, so for a session the watermark must have passed that time.
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
    """Windows of ``length_ms``, one every ``every_ms``. ``merges``: sessions whose gap is ``length_ms``."""

    length_ms: int
    every_ms: int
    merges: bool = False

    @property
    def is_tumbling(self) -> bool:
        """True if each record is in exactly one window."""
        return self.length_ms == self.every_ms and not self.merges

    def starts(self, time_ms: int) -> range:
        """Return the starts of the windows that contain this time, in order.

        The final start of a session may be earlier.
        """
        if self.merges:
            return range(time_ms, time_ms + 1)
        last = time_ms - time_ms % self.every_ms
        first = last - (self.length_ms - 1 - (time_ms - last)) // self.every_ms * self.every_ms
        return range(first, last + 1, self.every_ms)


def tumbling(length: float | dt.timedelta) -> Window:
    """Return adjacent windows of this length (seconds or a timedelta).

    Raises:
        TopologyError: The length is not a whole number of milliseconds, or less than 1 ms.
    """
    milliseconds = whole_ms(length, "the length of a tumbling window", least=1)
    return Window(milliseconds, milliseconds)


def sliding(length: float | dt.timedelta, every: float | dt.timedelta) -> Window:
    """Return windows of this length, beginning every ``every`` (both in seconds or a timedelta).

    Raises:
        TopologyError: An argument is not a whole number of milliseconds, or the step is longer than the window.
    """
    length_ms = whole_ms(length, "the length of a sliding window", least=1)
    every_ms = whole_ms(every, "the step of a sliding window", least=1)
    if every_ms > length_ms:
        raise TopologyError(
            f"a sliding window of {length_ms} ms that moves by {every_ms} ms would skip records; "
            "`every` must be at most the length"
        )
    return Window(length_ms, every_ms)


def session(gap: float | dt.timedelta) -> Window:
    """Return windows that end when a key has no record for more than ``gap`` (seconds or a timedelta).

    Raises:
        TopologyError: The gap is not a whole number of milliseconds, or less than 1 ms.
    """
    return Window(whole_ms(gap, "the gap of a session window", least=1), 1, merges=True)


def whole_ms(given: Any, what: str, least: int = 0) -> int:
    """Return seconds or a timedelta as whole milliseconds.

    Raises:
        TopologyError: The value has another type, a fraction of a millisecond, or is less than ``least``.
    """
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
    """Error for an event time that is invalid."""


def to_ms(value: Any, unit: str = "s") -> int:
    """Return an event time as milliseconds since 1970 UTC.

    A number counts ``unit`` ("s" or "ms") since 1970. A float is rounded to the nearest millisecond, halves to even. A
    datetime or ISO 8601 text without a zone is taken as UTC. Fractions of a millisecond are cut off towards the past.

    Raises:
        EventTimeError: The value is not a number, datetime or ISO 8601 text.
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
    raise EventTimeError(f"event time {value!r} is not a number, datetime or ISO 8601 text")


def hour_folder(time_ms: int) -> str:
    """Return the folder of a record of this time, partitioned by event hour: ``date=2026-11-21/hour=07``.

    Raises:
        EventTimeError: The time is outside the years 1 to 9999.
    """
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=time_ms - time_ms % HOUR_MS)
    except OverflowError:
        raise EventTimeError(f"event time {time_ms} ms is outside the years 1 to 9999") from None
    return f"date={moment:%Y-%m-%d}/hour={moment:%H}"

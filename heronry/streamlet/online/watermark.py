"""Watermarks: the progress of event time, computed from what was received over each channel. Pure.

A *channel* is one way on which records of one origin (a source task, or a reducer's) reach this task: (sending task,
origin). Order is kept on a channel, so the greatest time seen on it is its progress. The watermark is the minimum over
all channels that are neither idle nor final. It never decreases. While any of these channels has no time yet, the
watermark does not advance.

A checkpoint keeps the times and the watermark, which are those of the very records that the checkpoint holds. It does
not keep that a channel is idle or final. The sender states this again, and may by then read splits that others read
before. Only the fact that all channels are final is kept: then no task has anything left to read.

A channel may be *held*: its source reads splits one after the other, and the next one may begin with older records.
Then its records state no time. After its release, its records are of the last split alone.

A channel is *apart* if its time arrives in another way, as reports by split (split_reports.py). It is then left out of
the minimum, which has a channel for these reports.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from enum import IntEnum
from typing import Any

FOREVER = 1 << 62  # the watermark when every channel is final


class Mark(IntEnum):
    """Statement of a mark about its origin.

    - TIME: event time has reached this value.
    - IDLE: no records are available now.
    - FINAL: no more records will come.
    - HOLD: records state no time, because other splits are still to be read.
    - RELEASE: from here on records state the time.
    - MARKED: from here on only marks state the time, since the origin reads several splits.
    - APART: the time of what the sender still receives arrives as reports by split.
    """

    TIME = 0
    IDLE = 1
    FINAL = 2
    HOLD = 3
    RELEASE = 4
    MARKED = 5
    APART = 6


class Watermark:
    """Watermark over a fixed set of channels. Those of ``apart`` are apart from the start."""

    def __init__(self, channels: Iterable[Hashable], apart: Iterable[Hashable] = ()) -> None:
        self._times: dict[Hashable, int | None] = dict.fromkeys(channels)
        self._idle: set[Hashable] = set()
        self._final: set[Hashable] = set()
        self._held: set[Hashable] = set()
        self._apart: set[Hashable] = set(apart)
        self.value: int | None = None

    def seen(self, channel: Hashable, time_ms: int) -> None:
        """Note that records up to this time were received over the channel."""
        if channel in self._held:
            return
        before = self._times.get(channel)
        if before is None or time_ms > before:
            self._times[channel] = time_ms
        self._idle.discard(channel)
        self._apart.discard(channel)

    def busy(self, channel: Hashable) -> None:
        """Note that something was received over the channel, regardless of its time."""
        self._idle.discard(channel)

    def mark(self, channel: Hashable, mark: Mark, time_ms: int = 0) -> None:
        """Apply a mark of the sender."""
        if mark is Mark.TIME:
            self.seen(channel, time_ms)
        elif mark is Mark.IDLE:
            self._idle.add(channel)
        elif mark is Mark.HOLD:
            self._held.add(channel)
            self._times[channel] = None  # its time was that of another split
        elif mark is Mark.MARKED:
            self._times[channel] = None
        elif mark is Mark.RELEASE:
            self._held.discard(channel)
        elif mark is Mark.APART:
            self._apart.add(channel)
            self._idle.discard(channel)
        else:
            self._final.add(channel)
            self._held.discard(channel)

    def advance(self) -> int | None:
        """Return the current watermark. None if there is none yet."""
        live = [c for c in self._times if c not in self._final]
        if not live:
            self.value = FOREVER
            return self.value
        told = [self._times[c] for c in live if c not in self._apart and (c not in self._idle or c in self._held)]
        if told and None not in told:
            least = min(time for time in told if time is not None)
            self.value = least if self.value is None else max(self.value, least)
        return self.value

    @property
    def is_final(self) -> bool:
        """True if no more records will come."""
        return len(self._final) >= len(self._times)

    @property
    def is_idle(self) -> bool:
        """True if no records come for now, or ever."""
        return all(c in self._idle or c in self._final for c in self._times)

    @property
    def is_apart(self) -> bool:
        """True if the time of everything that still arrives comes as reports by split."""
        idle = self._idle - self._held
        return all(c in self._apart or c in idle or c in self._final for c in self._times)

    def is_held(self, channels: Iterable[Hashable]) -> bool:
        """Return True if the records of one of these channels currently state no time."""
        return any(c in self._held for c in channels)

    def origin_is(self, mark: Mark, channels: Iterable[Hashable]) -> bool:
        """Return True if all of these channels are idle (or final); for ``FINAL``, if all are final."""
        if mark is Mark.FINAL:
            return all(c in self._final for c in channels)
        return all(c in self._idle or c in self._final for c in channels)

    def saved(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        times = [(channel, time_ms) for channel, time_ms in self._times.items() if time_ms is not None]
        return {"value": self.value, "times": times, "final": self.is_final, "held": list(self._held)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint. Channels that no longer exist are dropped."""
        self.value = saved["value"]
        self._times.update({channel: time_ms for channel, time_ms in saved["times"] if channel in self._times})
        self._held.update(channel for channel in saved.get("held", ()) if channel in self._times)
        if saved["final"]:
            self._final.update(self._times)

    def check(self) -> None:
        """Assert that final channels are known, and that the value is ``FOREVER`` only if all channels are final."""
        assert self._final <= self._times.keys(), "a final channel is unknown"
        assert self.value != FOREVER or self.is_final, "the value is FOREVER before all channels are final"

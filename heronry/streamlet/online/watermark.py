"""Watermarks: how far event time has come, told from what has come over each channel. Pure.

A *channel* is one way on which records of one origin (a source task, or a reducer's) reach this task: (sending task,
origin). Order is kept on a channel, so the greatest time seen on it tells how far it is. The watermark is the least
over all channels that are neither idle nor final; it never falls. While any channel has told nothing there is none.

Kept across a restore are the times and the watermark, which are those of the very records that the checkpoint holds.
That a channel is idle or final is not kept: its sender says so again, and may by then read what others read before. It
is kept only that all are final: then nobody has anything left to read.

A channel may be *held*: its source reads splits one after the other, and the next one may begin with older records.
Then what comes over it tells no time. What it tells after its release is of the last split alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from enum import IntEnum
from typing import Any

FOREVER = 1 << 62  # the watermark when every channel is final


class Mark(IntEnum):
    """What a mark says of its origin: time has come so far; nothing comes for now; nothing will ever come; what comes
    tells no time, for other splits are still to be read; from here on it does."""

    TIME = 0
    IDLE = 1
    FINAL = 2
    HOLD = 3
    RELEASE = 4


class Watermark:
    """The channels are known beforehand."""

    def __init__(self, channels: Iterable[Hashable]) -> None:
        self._times: dict[Hashable, int | None] = dict.fromkeys(channels)
        self._idle: set[Hashable] = set()
        self._final: set[Hashable] = set()
        self._held: set[Hashable] = set()
        self.value: int | None = None

    def seen(self, channel: Hashable, time_ms: int) -> None:
        """Records up to this time came over the channel."""
        if channel in self._held:
            return
        before = self._times.get(channel)
        if before is None or time_ms > before:
            self._times[channel] = time_ms
        self._idle.discard(channel)

    def busy(self, channel: Hashable) -> None:
        """Something came over the channel, whatever its time."""
        self._idle.discard(channel)

    def mark(self, channel: Hashable, mark: Mark, time_ms: int = 0) -> None:
        """What the sender says."""
        if mark is Mark.TIME:
            self.seen(channel, time_ms)
        elif mark is Mark.IDLE:
            self._idle.add(channel)
        elif mark is Mark.HOLD:
            self._held.add(channel)
            self._times[channel] = None  # what it told was of another split
        elif mark is Mark.RELEASE:
            self._held.discard(channel)
        else:
            self._final.add(channel)
            self._held.discard(channel)

    def advance(self) -> int | None:
        """The watermark now; None while there is none."""
        live = [c for c in self._times if c not in self._final]
        if not live:
            self.value = FOREVER
            return self.value
        told = [self._times[c] for c in live if c not in self._idle or c in self._held]
        if told and None not in told:
            least = min(time for time in told if time is not None)
            self.value = least if self.value is None else max(self.value, least)
        return self.value

    @property
    def is_final(self) -> bool:
        """Nothing will ever come."""
        return len(self._final) >= len(self._times)

    @property
    def is_idle(self) -> bool:
        """Nothing comes for now, or ever."""
        return all(c in self._idle or c in self._final for c in self._times)

    def is_held(self, channels: Iterable[Hashable]) -> bool:
        """Return True if one of these channels tells no time for now."""
        return any(c in self._held for c in channels)

    def origin_is(self, mark: Mark, channels: Iterable[Hashable]) -> bool:
        """True if all of these channels are idle (or final), or all final."""
        if mark is Mark.FINAL:
            return all(c in self._final for c in channels)
        return all(c in self._idle or c in self._final for c in channels)

    def saved(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        times = [(channel, time_ms) for channel, time_ms in self._times.items() if time_ms is not None]
        return {"value": self.value, "times": times, "final": self.is_final, "held": list(self._held)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there; channels that there are no longer are forgotten."""
        self.value = saved["value"]
        self._times.update({channel: time_ms for channel, time_ms in saved["times"] if channel in self._times})
        self._held.update(channel for channel in saved.get("held", ()) if channel in self._times)
        if saved["final"]:
            self._final.update(self._times)

    def check(self) -> None:
        """The watermark is not beyond a channel that is heard of and not final, unless that one fell behind later."""
        assert self._final <= self._times.keys(), "a final channel nobody knows"
        assert self.value != FOREVER or self.is_final, "the end of time came too soon"

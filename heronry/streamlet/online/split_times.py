"""Progress of event time of the splits of one source task. Pure.

A task that reads several splits in turn, such as partitions or files that grow, may be far ahead in one of them. Its
watermark is the least time of its active splits. A split is active from the start, until the source has looked for
records and found none for a while, and again from its next record on. A split that is active and has not stated a time
yet holds the watermark. After a restore, that is so for each split.

The time of a split is the greatest of those stated by its blocks. A line or record that has no valid time is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from heronry.streamlet.columns import times_of
from heronry.streamlet.decoding import UNREADABLE
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.rows import decoder_of
from heronry.streamlet.program import SourceStep
from heronry.streamlet.reading import LINES, FilePiece


class SplitTimes:
    """Times of the splits of one source task."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._times: dict[str, int | None] = {}
        self._unread: set[str] = set()
        self._empty_since: dict[str, float] = {}
        self._idle: set[str] = set()
        self._value: int | None = None

    def expect(self, splits: Iterable[str]) -> None:
        """Note the splits that the task is about to read."""
        for split in splits:
            if split not in self._times:
                self._times[split] = None
                self._unread.add(split)

    def read(self, split: str, time_ms: int | None) -> None:
        """Note that records of a split were read, and the time that they state, if any."""
        before = self._times.get(split)
        self._times[split] = time_ms if before is None or (time_ms is not None and time_ms > before) else before
        self._unread.discard(split)
        self.resume(split)

    def resume(self, split: str) -> None:
        """Note that a split has records that are still to be read."""
        self._idle.discard(split)
        self._empty_since.pop(split, None)

    def empty(self, split: str, now: float) -> None:
        """Note that the source has looked for records of a split and found none. ``now`` is in seconds."""
        if now - self._empty_since.setdefault(split, now) >= self._idle_seconds:
            self._idle.add(split)

    def end(self, split: str) -> None:
        """Note that a split has no more records."""
        self._idle.add(split)

    def end_missing(self, present: Iterable[str]) -> None:
        """Note that the source no longer has the other splits, such as deleted files."""
        for split in self._times.keys() - set(present):
            self.end(split)

    def watermark(self) -> int | None:
        """Return the watermark in ms since 1970 UTC. None if there is none yet. It never decreases.

        If no split is active, none holds the others back, so it is the greatest time.
        """
        active = self.active()
        if active is not None:
            times = [time for split in active or self._times if (time := self._times[split]) is not None]
            if times:
                time_ms = min(times) if active else max(times)
                self._value = time_ms if self._value is None else max(self._value, time_ms)
        return self._value

    def active(self) -> set[str] | None:
        """Return the active splits. None while one of them is still to be read."""
        active = self._times.keys() - self._idle
        return None if active & self._unread else active

    @property
    def are_any(self) -> bool:
        """True if the task has read, or is about to read, a split."""
        return bool(self._times)

    @property
    def are_several(self) -> bool:
        """True if the task has read, or is about to read, more than one split."""
        return len(self._times) > 1


class BlockTime:
    """Function that returns the event time that a block of a source states.

    Of lines, this is the time of the last one, because decoding all of them here would take the time that the chain
    takes for it again. Of rows, it is the greatest.
    """

    def __init__(self, step: SourceStep, latest_time: Callable[[], int]) -> None:
        self._step, self._latest_time = step, latest_time
        self._decoder = decoder_of(step.source)

    def __call__(self, values: tuple[Any, ...]) -> int | None:
        """Return the time in ms since 1970 UTC. None if no record has a valid time."""
        time, (file, first, _, header, data) = self._step.event_time, values
        if time is None or self._decoder is None:
            return None
        source = self._step.source
        if isinstance(source, FileSource) and source.format in LINES:
            data = data[data.rstrip(b"\n").rfind(b"\n") + 1 :]
        try:
            records = self._decoder.decode(file, FilePiece(first, header, data, 0, 0)).records
            found = times_of(self._step.name, time, records)
        except (*UNREADABLE, StepFailed):
            return None
        latest_ms = self._latest_time()
        return max((time_ms for time_ms in found if time_ms <= latest_ms), default=None)

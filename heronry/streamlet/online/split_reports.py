"""Progress of event time by split, for windows that take the event time from their own records. Pure.

A source that grows declares no event time if only a window downstream has one. The source knows its splits, and the
tasks that apply the window know the times, but none of them has read all blocks of a split. So the source states from
time to time which splits are active. It numbers these statements and sends each to all tasks downstream. A task that
has received a statement on every way from the source has also received all blocks sent before it. It then reports to
the reducer the greatest time of each split that it has seen so far, under the same number, and forwards the statement
to the chains downstream.

The reducer uses the reports of a number once it has them from all tasks. The time of the source task is then the least
time of its active splits, as if the source had declared the event time (split_times.py). A split whose records do not
reach the window has no time and is left out.

None of this is checkpointed. After a restore, the source makes no statement before it has read each active split.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class SplitReport(NamedTuple):
    """Statement of a source task, or report of a task downstream.

    Attributes:
        number: Number of the statement. It grows, also across restarts of the source task.
        active: The active splits.
        idle: True if the source task has been without records for a while.
        times: Greatest times in ms since 1970 UTC, by split, that were seen since the previous report.
    """

    number: int
    active: list[str]
    idle: bool
    times: dict[str, int]


class AlignedReports:
    """Reports about one source task, in order of their numbers, once all senders have sent a number."""

    def __init__(self, senders: Iterable[int]) -> None:
        self._reached = dict.fromkeys(senders, 0)
        self._waiting: list[SplitReport] = []

    def add(self, sender: int, report: SplitReport) -> list[SplitReport]:
        """Take a report, and return those that no sender can precede any more."""
        self._reached[sender] = max(self._reached.get(sender, 0), report.number)
        reached = min(self._reached.values())
        waiting = [*self._waiting, report]
        self._waiting = [found for found in waiting if found.number > reached]
        return sorted((found for found in waiting if found.number <= reached), key=lambda found: found.number)


class SplitWatermark:
    """Watermark of one source task, from the reports of all tasks that apply the window to its records."""

    def __init__(self, senders: Iterable[int]) -> None:
        self._reports = AlignedReports(senders)
        self._times: dict[str, int] = {}
        self.is_idle = False
        self.value: int | None = None

    def add(self, sender: int, report: SplitReport) -> bool:
        """Take a report. Return True if it completes a number. The value is then current."""
        ready = self._reports.add(sender, report)
        for found in ready:
            for split, time_ms in found.times.items():
                self._times[split] = max(time_ms, self._times.get(split, time_ms))
        if ready:
            active = ready[-1].active
            times = [self._times[split] for split in active or self._times if split in self._times]
            if times:
                time_ms = min(times) if active else max(times)
                self.value = time_ms if self.value is None else max(self.value, time_ms)
            self.is_idle = ready[-1].idle
        return bool(ready)

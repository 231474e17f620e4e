"""May a poll of the files store be left out? Told by what the file system says of the database, for two stat calls.

A transaction that only finds nothing new costs some 250 µs of CPU, and several processes of every topology would begin
five a second. Every commit writes into the log beside the database, so while size and time of both files stand still
there is nothing to find. Three things are not to be seen in them, and have a bound each:

* A commit shows in the log *before* readers may see it (SQLite syncs in between). So a log is trusted only once its
  last write is ``SETTLED_SECS`` old; that also covers file systems whose clocks are coarse.
* A clock that was set back gives old times to new writes: what lies in the future is not trusted either.
* Disks that fail, syncs that take longer yet: the database is read each ``SURE_EVERY_SECS`` in any case.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

SETTLED_SECS = 5.0
SURE_EVERY_SECS = 2.0

Trace = tuple[int, int, int, int] | None  # device, inode, size, time of the last write in ns; None: no such file


def traces_of(paths: Sequence[str]) -> tuple[Trace, ...]:
    """What the file system says of these files. Raises OSError, but not for a file that is missing."""
    return tuple(map(_trace, paths))


def _trace(path: str) -> Trace:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(slots=True)
class Glance:
    """Remembers the last read. ``now`` is in monotonic seconds, ``wall`` in seconds since 1970."""

    _traces: tuple[Trace, ...] | None = None
    _trusted_until: float = float("-inf")

    def needed(self, now: float, traces: tuple[Trace, ...]) -> bool:
        """True if the database must be read."""
        return now >= self._trusted_until or traces != self._traces

    def has_read(self, now: float, wall: float, traces: tuple[Trace, ...]) -> None:
        """The database was read. All three are from before the read, so that what came in between is seen later."""
        written = [trace[3] / 1e9 for trace in traces if trace is not None]
        settled = bool(written) and wall - max(written) >= SETTLED_SECS
        self._traces = traces
        self._trusted_until = now + SURE_EVERY_SECS if settled else now

    def forget(self) -> None:
        """Read next time, whatever the files say."""
        self._trusted_until = float("-inf")

"""Whether user code keeps more in its topology's volume than it was granted, and what follows.

A ``VolumeWatch`` is told what a look has found and answers why no task of this container may run; empty if they may.
Beyond the bound the tasks are ended, as beyond a memory limit: nothing else makes what user code writes stop for
certain, and what it holds open is free again. Logs, metrics and the package are not looked at, for each has a bound
of its own; so Heronry's own processes go on, and no complete checkpoint is touched. The tasks begin again
when a tenth of the bound is free.

What cannot be looked at is no way around it, and counts as beyond the bound, by name:

* a folder of user code's that is closed to its own user;
* a process that hides its descriptors, and with them files that were removed and go on growing. Every process is hidden
  for a moment while it changes its user; so it counts from the ``PATIENCE``-th look in a row on.

What was removed and is still open is seen in its own container only, hence it counts there as often as the topology has
containers with tasks: all of them together stay within the bound.

Cost: a look takes time in proportion to the files there are. The next one begins ``REST`` times as long after it, so
looking takes 5 % of a core at most, and after ``LEAST_SECONDS`` at the earliest. There can be no more files than the
bound allows, for a look goes no further.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from heron_runtime.failures import one_line
from heron_runtime.model.containers import volume_files
from heron_runtime.model.settings import MiB

ROOM = 0.9  # of the bound: no more than that when tasks begin again
PATIENCE = 3
REST = 20.0
LEAST_SECONDS, MOST_SECONDS = 2.0, 60.0
_NAME_CHARACTERS = 120
_CURE = (
    "Its tasks are ended, and begin again when there is room: remove files there as heronry-code, or submit it again "
    "with more topology.volume.disk"
)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a look has found: in folders, apart from those with bounds of their own; and in files that were removed and
    that a process of this container still has open. ``largest`` is the place that holds most of it."""

    bytes: int
    files: int
    removed_bytes: int = 0
    largest: str = ""
    closed: tuple[str, ...] = ()  # folders that cannot be read
    hiding: frozenset[str] = frozenset()  # processes whose descriptors cannot be read, told apart from later ones


@dataclass(slots=True)
class VolumeWatch:
    """What is known of one volume. ``trouble``: why no task may run now."""

    trouble: str = ""
    _hiding: dict[str, int] = field(default_factory=dict)  # process to looks in a row

    def looked(self, usage: Usage, granted_bytes: int, containers: int) -> str:
        """``containers``: how many have tasks. Returns ``trouble``."""
        self._hiding = {process: self._hiding.get(process, 0) + 1 for process in usage.hiding}
        share = ROOM if self.trouble else 1.0
        excess = _excess(usage, granted_bytes, containers, share, self._hides())
        self.trouble = f"{excess}. {_CURE}" if excess else ""
        return self.trouble

    def _hides(self) -> Collection[str]:
        return sorted(process for process, looks in self._hiding.items() if looks >= PATIENCE)


def pause_seconds(took_seconds: float) -> float:
    """From the end of a look that took so long to the beginning of the next."""
    return min(MOST_SECONDS, max(LEAST_SECONDS, REST * took_seconds))


def _excess(usage: Usage, granted_bytes: int, containers: int, share: float, hides: Collection[str]) -> str:
    removed = usage.removed_bytes * max(1, containers)
    if usage.bytes + removed > granted_bytes * share:
        found = f"the topology's volume is full: user code keeps {_mib(usage.bytes)} in files"
        if usage.removed_bytes:
            found += f" and {_mib(usage.removed_bytes)} in files that it removed and has open in this container"
        most = f", most of it in {_name(usage.largest)}" if usage.largest else ""
        return f"{found}{most}, of {_mib(granted_bytes)} (topology.volume.disk)"
    most_files = volume_files(granted_bytes)
    if usage.files > most_files * share:
        return (
            f"the topology's volume is full: user code keeps more files than the {most_files:,} that go with its "
            f"{_mib(granted_bytes)} (topology.volume.disk), most of them in {_name(usage.largest)}"
        )
    if usage.closed:
        return (
            f"the size of the topology's volume is unknown: {_name(usage.closed[0])} cannot be read, not even as the "
            f"user of user code; make it readable (chmod u+rx)"
        )
    if hides:
        return f"the size of the topology's volume is unknown: {_name(next(iter(hides)))} hides what it has open"
    return ""


def _mib(size: int) -> str:
    return f"{size / MiB:,.0f} MiB"


def _name(text: str) -> str:
    return one_line(text, _NAME_CHARACTERS)

"""Limits on the storage of a container: the quota of the topology's volume and free disk space.

A ``VolumeQuota`` receives the result of each scan of the volume and answers why the tasks of this container must not
run; the answer is empty if they may. Above the quota the tasks are ended, as they are above a memory limit. Nothing
else reliably stops user code from writing, and ending it releases the files it holds open. Logs, metrics and the
package are not counted, because each has a limit of its own. So Heronry's own processes continue, and complete
checkpoints stay untouched. The tasks start again when a tenth of the quota is free.

What cannot be scanned counts as above the quota, so that it cannot be used to evade it:

* a folder of user code that is closed to its own user;
* a process that hides its descriptors, and with them removed files that keep growing. Every process is hidden for a
  moment while it changes its user, so it counts only after ``PATIENCE`` consecutive scans.

Removed files that are still open are visible in their own container only. They count there multiplied by the number of
containers with tasks, so that all containers together stay within the quota.

Cost: a scan takes time in proportion to the number of files. The next one begins after a pause of ``REST`` times its
duration, so scanning takes at most 5 % of a core, and after at least ``LEAST_SECONDS``. A scan stops at the largest
number of files that the quota allows.

Logs, metrics and checkpoints continue when a disk is full: each drops or declines what it could not write. No process
dies of it, so the container's status reports it. A file system that does not count its own bytes or files reports a
total of zero; such a zero is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from heron_runtime.failures import one_line
from heron_runtime.model.containers import volume_files
from heron_runtime.model.settings import MiB

ROOM = 0.9  # of the quota: usage below which tasks start again
PATIENCE = 3
REST = 20.0
LEAST_SECONDS, MOST_SECONDS = 2.0, 60.0
_NAME_CHARACTERS = 120
_CURE = (
    "Its tasks are stopped until space is freed. Remove files there as heronry-code, or submit the topology again "
    "with a larger topology.volume.disk"
)
LEAST_FREE_BYTES = 4 << 20  # a store's log or a part of a checkpoint may need that much at once


@dataclass(frozen=True, slots=True)
class VolumeUsage:
    """Result of one scan of the volume.

    Counts the files in folders, except folders with limits of their own, and removed files that a process of this
    container still has open. ``largest`` is the folder that holds most of it.
    """

    bytes: int
    files: int
    removed_bytes: int = 0
    largest: str = ""
    closed: tuple[str, ...] = ()  # folders that cannot be read
    hiding: frozenset[str] = frozenset()  # unique names of processes whose descriptors cannot be read


@dataclass(slots=True)
class VolumeQuota:
    """Scan history of one volume; ``trouble`` is why no task may run now."""

    trouble: str = ""
    _hiding: dict[str, int] = field(default_factory=dict)  # process to consecutive scans

    def update(self, usage: VolumeUsage, granted_bytes: int, containers: int) -> str:
        """Judge one scan and return ``trouble``. ``containers`` is the number of containers with tasks."""
        self._hiding = {process: self._hiding.get(process, 0) + 1 for process in usage.hiding}
        share = ROOM if self.trouble else 1.0
        excess = _excess(usage, granted_bytes, containers, share, self._hides())
        self.trouble = f"{excess}. {_CURE}" if excess else ""
        return self.trouble

    def _hides(self) -> Collection[str]:
        return sorted(process for process, looks in self._hiding.items() if looks >= PATIENCE)


def pause_seconds(took_seconds: float) -> float:
    """Return the pause between a scan that took ``took_seconds`` and the next one."""
    return min(MOST_SECONDS, max(LEAST_SECONDS, REST * took_seconds))


def _excess(usage: VolumeUsage, granted_bytes: int, containers: int, share: float, hides: Collection[str]) -> str:
    removed = usage.removed_bytes * max(1, containers)
    if usage.bytes + removed > granted_bytes * share:
        text = f"the topology's volume is full: user code keeps {_mib(usage.bytes)} in files"
        if usage.removed_bytes:
            text += f" and {_mib(usage.removed_bytes)} in removed files that are open in this container"
        most = f", most of it in {_name(usage.largest)}" if usage.largest else ""
        return f"{text}{most}, of {_mib(granted_bytes)} (topology.volume.disk)"
    most_files = volume_files(granted_bytes)
    if usage.files > most_files * share:
        return (
            f"the topology's volume is full: user code keeps more than {most_files:,} files, the limit for "
            f"{_mib(granted_bytes)} (topology.volume.disk), most of them in {_name(usage.largest)}"
        )
    if usage.closed:
        return (
            f"the size of the topology's volume is unknown: {_name(usage.closed[0])} cannot be read, even by the "
            f"user of user code; make it readable (chmod u+rx)"
        )
    if hides:
        return f"the size of the topology's volume is unknown: {_name(next(iter(hides)))} hides its open files"
    return ""


def _mib(size: int) -> str:
    return f"{size / MiB:,.0f} MiB"


def _name(text: str) -> str:
    return one_line(text, _NAME_CHARACTERS)


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Space that unprivileged processes have left on the disk of ``folder``, and its totals."""

    folder: str
    free_bytes: int
    bytes: int
    free_files: int
    files: int


def describe_full_disk(spaces: Iterable[DiskSpace]) -> str:
    """Return a text with consequences and remedy for the first full disk, or "" if none is full."""
    for space in spaces:
        if space.bytes and space.free_bytes < LEAST_FREE_BYTES:
            shortage = f"{space.free_bytes >> 10} KiB left"
        elif space.files and not space.free_files:
            shortage = f"all of its {space.files} files are in use"
        else:
            continue
        return (
            f"the disk of {space.folder} is full: {shortage}. Logs and metrics lose lines and no checkpoint completes "
            "until there is space: free some there"
        )
    return ""

"""Use of a container's volume, and the memory limit of its control group.

A scan of the volume counts what lies in its folders, and removed files that are still open. It runs on one thread,
first as the user of this process. Where that is refused, the thread alone takes the file rights of the user of user
code. So it reads folders that are closed to all but their owner, and no process of that user can signal it. Links are
not followed. Files that disappear during the scan are skipped.

In a container with a memory limit the kernel's OOM killer ends the largest process by SIGKILL, which looks like any
other ``kill -9``. The control group counts its victims. When the count has grown, the reason of a death can name the
limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heron_container.core.storage import VolumeQuota, VolumeUsage, pause_seconds
from heron_runtime.code_user import CodeUser
from heron_runtime.launch import Launch
from heron_runtime.linux import files_as
from heron_runtime.model.containers import BYTES_A_FILE, volume_bytes, volume_files
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import MiB

MOST_OPEN = 100_000  # descriptors that a scan looks at; a process beyond it counts as hiding
BLOCK_BYTES = 512
log = logging.getLogger(__name__)
# (counter, limit) below the mount of control groups: version 2, then version 1.
FILES = (
    ("memory.events", "memory.max"),
    ("memory/memory.oom_control", "memory/memory.limit_in_bytes"),
)
UNLIMITED = 1 << 60


class VolumeMonitor:
    """Periodic scan of a topology's volume by a container with tasks.

    Calls ``on_trouble`` after each scan with the reason why no task may run, or "".
    """

    def __init__(self, launch: Launch, folder: Path, code_user: CodeUser, on_trouble: Callable[[str], None]) -> None:
        apart = (launch.log_dir, launch.metrics_dir, launch.package_dir)  # each has a limit of its own
        self._folders = VolumeFolders(folder, tuple(map(str, apart)), code_user)
        self._quota = VolumeQuota()
        self._granted_bytes, self._containers = 0, 0
        self._on_trouble = on_trouble
        self._planned = asyncio.Event()

    def set_plan(self, packing: PackingPlan, config: Mapping[str, Any]) -> None:
        """Set the quota and the number of containers. The first call starts the scans."""
        self._granted_bytes, self._containers = volume_bytes(config, packing), len(packing.containers)
        self._planned.set()

    async def run(self) -> None:
        """Scan until cancelled."""
        await self._planned.wait()
        while True:
            began = time.monotonic()
            try:
                usage = await asyncio.to_thread(scan_volume, self._folders, volume_files(self._granted_bytes))
            except OSError as error:  # of the volume's own folder, which does not belong to user code
                log.warning("cannot scan %s: %s", self._folders.folder, error)
            else:
                self._on_trouble(self._quota.update(usage, self._granted_bytes, self._containers))
            await asyncio.sleep(pause_seconds(time.monotonic() - began))


@dataclass(frozen=True, slots=True)
class VolumeFolders:
    """Scope of a scan: ``folder`` without the folders ``apart``, and the processes of ``code_user``."""

    folder: Path
    apart: tuple[str, ...]
    code_user: CodeUser


def scan_volume(folders: VolumeFolders, most_files: int) -> VolumeUsage:
    """Scan the volume. Blocks for milliseconds, or seconds if there are very many files.

    Raises:
        OSError: The volume's own folder cannot be read.
    """
    return _VolumeScan(folders, most_files).run()


@dataclass
class _FolderUsage:
    """Content of one folder without its subfolders."""

    bytes: int = 0
    files: int = 0
    folders: list[tuple[str, int]] = field(default_factory=list)  # path and owner


class _VolumeScan:
    def __init__(self, folders: VolumeFolders, most_files: int) -> None:
        self._folders = folders
        self._most_files = most_files
        self._root = str(folders.folder)
        self._device = os.stat(self._root).st_dev
        self._owner = folders.code_user.uid
        self._linked: set[int] = set()  # inodes with several names, and removed ones: each counts once
        self._closed: list[str] = []

    def run(self) -> VolumeUsage:
        """Scan the folders first, then the processes."""
        total, weights = _FolderUsage(), Counter[str]()
        waiting = [(self._root, os.stat(self._root).st_uid, "")]
        while waiting and total.files <= self._most_files:
            folder, owner, place = waiting.pop()
            folder_usage = self._folder(folder, owner)
            total.bytes += folder_usage.bytes
            total.files += folder_usage.files
            weights[place] += folder_usage.bytes + folder_usage.files * BYTES_A_FILE
            waiting += [
                (path, uid, place or path) for path, uid in folder_usage.folders if path not in self._folders.apart
            ]
        removed, hiding = self._removed()
        largest = max(weights, key=lambda place: weights[place]) or self._root
        return VolumeUsage(total.bytes, total.files, removed, largest, tuple(self._closed), hiding)

    def _folder(self, folder: str, owner: int) -> _FolderUsage:
        for who in (nullcontext, self._as_user):
            try:
                with who():
                    return self._entries(folder)
            except (FileNotFoundError, NotADirectoryError):
                return _FolderUsage()
            except PermissionError:
                continue
            except OSError:  # for example a path that is too long
                break
        if owner == self._owner:  # folders of others are not charged to user code
            self._closed.append(folder)
        return _FolderUsage()

    def _entries(self, folder: str) -> _FolderUsage:
        usage, linked = _FolderUsage(), set[int]()
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                usage.files += 1
                if status.st_nlink == 1 or stat.S_ISDIR(status.st_mode):
                    usage.bytes += status.st_blocks * BLOCK_BYTES
                elif status.st_ino not in self._linked and status.st_ino not in linked:
                    linked.add(status.st_ino)
                    usage.bytes += status.st_blocks * BLOCK_BYTES
                if stat.S_ISDIR(status.st_mode):
                    usage.folders.append((entry.path, status.st_uid))
                if usage.files > self._most_files:
                    break
        self._linked |= linked
        return usage

    def _as_user(self) -> AbstractContextManager[None]:
        return files_as(self._folders.code_user.uid, self._folders.code_user.gid)

    def _removed(self) -> tuple[int, frozenset[str]]:
        """Return the bytes of removed files that user code has open, and the processes that hide theirs."""
        total, seen, hiding = 0, 0, set[str]()
        with self._as_user():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if not self._is_user_s(pid):
                        continue
                    for descriptor in os.listdir(f"/proc/{pid}/fd"):
                        seen += 1
                        total += self._open_file(f"/proc/{pid}/fd/{descriptor}")
                    if seen > MOST_OPEN:
                        hiding.add(_process(pid))
                except PermissionError:
                    hiding.add(_process(pid))
                except OSError:
                    continue  # it has ended
                if seen > MOST_OPEN:
                    break
        return total, frozenset(hiding)

    def _open_file(self, path: str) -> int:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return 0
        if status.st_nlink or status.st_dev != self._device or status.st_ino in self._linked:
            return 0
        self._linked.add(status.st_ino)
        return status.st_blocks * BLOCK_BYTES

    def _is_user_s(self, pid: str) -> bool:
        """Return True for a process of user code. One that hides has a root-owned folder in /proc."""
        uid = os.stat(f"/proc/{pid}").st_uid
        if uid != 0 or self._owner == 0:
            return uid == self._owner
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) == self._owner for line in lines if line.startswith("Uid:")), False)


def _process(pid: str) -> str:
    """Return a name that no later process can have."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        return f"process {pid} ({name}, started at tick {rest.split()[19]})"
    except (OSError, IndexError):
        return f"process {pid}"


class MemoryLimit:
    """OOM kill counter of the control group at ``root``, which in a container is its own."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._counter: Path | None = None
        self._limit_bytes = 0
        for counter, limit in FILES:
            if self._counter is None and (root / counter).exists():
                self._counter, self._limit_bytes = root / counter, _number(root / limit)
        self._seen = self._count()

    def has_struck(self) -> bool:
        """Return True if the OOM killer has struck since the last call."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def explain(self, reason: str) -> str:
        """Append cause and remedy to the ``reason`` of a death by SIGKILL, if the limit caused it."""
        if not 0 < self._limit_bytes < UNLIMITED or not self.has_struck():
            return reason
        return (
            f"{reason}: out of memory, the container's limit is {self._limit_bytes // MiB} MiB; "
            "raise topology.component.rammap or topology.container.ram"
        )

    def _count(self) -> int:
        try:
            lines = self._counter.read_text().split("\n") if self._counter is not None else []
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max": no limit
        return 0

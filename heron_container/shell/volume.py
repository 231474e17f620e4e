"""Looks at a topology's volume: what is in its folders, and what was removed there and is still open.

Both as ourselves, and where that is refused as the user of user code, on one thread that alone has its rights for files
meanwhile: so folders are read that are closed to all but their owner, and nobody of that user can signal who looks.
Links are not followed. What ends or is removed while it is looked at is passed over.
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

from heron_container.core.volume import Usage, VolumeWatch, pause_seconds
from heron_runtime.code_user import CodeUser
from heron_runtime.kernel import files_as
from heron_runtime.launch import Launch
from heron_runtime.model.containers import BYTES_A_FILE, volume_bytes, volume_files
from heron_runtime.model.plan import PackingPlan

MOST_OPEN = 100_000  # descriptors looked at; who has more hides some
BLOCK_BYTES = 512
log = logging.getLogger(__name__)


class Volume:
    """The volume of a topology, watched by a container with tasks. ``judged`` is told after each look why no task may
    run; empty if they may."""

    def __init__(self, launch: Launch, folder: Path, code_user: CodeUser, judged: Callable[[str], None]) -> None:
        apart = (launch.log_dir, launch.metrics_dir, launch.package_dir)  # each with a bound of its own
        self._places = Places(folder, tuple(map(str, apart)), code_user)
        self._watch = VolumeWatch()
        self._granted_bytes, self._containers = 0, 0
        self._judged = judged
        self._planned = asyncio.Event()

    def plan(self, packing: PackingPlan, config: Mapping[str, Any]) -> None:
        """What is granted; the first one begins the watch."""
        self._granted_bytes, self._containers = volume_bytes(config, packing), len(packing.containers)
        self._planned.set()

    async def run(self) -> None:
        """Until cancelled."""
        await self._planned.wait()
        while True:
            began = time.monotonic()
            try:
                usage = await asyncio.to_thread(look, self._places, volume_files(self._granted_bytes))
            except OSError as error:  # of the volume's own folder, which is none of user code's
                log.warning("cannot look at %s: %s", self._places.folder, error)
            else:
                self._judged(self._watch.looked(usage, self._granted_bytes, self._containers))
            await asyncio.sleep(pause_seconds(time.monotonic() - began))


@dataclass(frozen=True, slots=True)
class Places:
    """What is looked at: ``folder`` without those that lie ``apart``, and the processes of ``code_user``."""

    folder: Path
    apart: tuple[str, ...]
    code_user: CodeUser


def look(places: Places, most_files: int) -> Usage:
    """Blocks, for milliseconds or, where there are very many files, for seconds. Raises OSError."""
    return _Look(places, most_files).whole()


@dataclass
class _Found:
    """What one folder holds, others in it apart."""

    bytes: int = 0
    files: int = 0
    folders: list[tuple[str, int]] = field(default_factory=list)  # and who owns them


class _Look:
    def __init__(self, places: Places, most_files: int) -> None:
        self._places = places
        self._most_files = most_files
        self._root = str(places.folder)
        self._device = os.stat(self._root).st_dev
        self._owner = places.code_user.uid
        self._linked: set[int] = set()  # inodes with several names, and those that were removed: each counts once
        self._closed: list[str] = []

    def whole(self) -> Usage:
        """The folders first, then the processes."""
        total, weights = _Found(), Counter[str]()
        waiting = [(self._root, os.stat(self._root).st_uid, "")]
        while waiting and total.files <= self._most_files:
            folder, owner, place = waiting.pop()
            found = self._folder(folder, owner)
            total.bytes += found.bytes
            total.files += found.files
            weights[place] += found.bytes + found.files * BYTES_A_FILE
            waiting += [(path, uid, place or path) for path, uid in found.folders if path not in self._places.apart]
        removed, hiding = self._removed()
        largest = max(weights, key=lambda place: weights[place]) or self._root
        return Usage(total.bytes, total.files, removed, largest, tuple(self._closed), hiding)

    def _folder(self, folder: str, owner: int) -> _Found:
        for who in (nullcontext, self._as_user):
            try:
                with who():
                    return self._entries(folder)
            except (FileNotFoundError, NotADirectoryError):
                return _Found()
            except PermissionError:
                continue
            except OSError:  # a path that is too long, for one
                break
        if owner == self._owner:  # what is not user code's is not its affair
            self._closed.append(folder)
        return _Found()

    def _entries(self, folder: str) -> _Found:
        found, linked = _Found(), set[int]()
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                found.files += 1
                if status.st_nlink == 1 or stat.S_ISDIR(status.st_mode):
                    found.bytes += status.st_blocks * BLOCK_BYTES
                elif status.st_ino not in self._linked and status.st_ino not in linked:
                    linked.add(status.st_ino)
                    found.bytes += status.st_blocks * BLOCK_BYTES
                if stat.S_ISDIR(status.st_mode):
                    found.folders.append((entry.path, status.st_uid))
                if found.files > self._most_files:
                    break
        self._linked |= linked
        return found

    def _as_user(self) -> AbstractContextManager[None]:
        return files_as(self._places.code_user.uid, self._places.code_user.gid)

    def _removed(self) -> tuple[int, frozenset[str]]:
        """Bytes in files without a name that user code has open, and the processes that do not show what they have."""
        total, looks, hiding = 0, 0, set[str]()
        with self._as_user():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if not self._is_user_s(pid):
                        continue
                    for descriptor in os.listdir(f"/proc/{pid}/fd"):
                        looks += 1
                        total += self._open_file(f"/proc/{pid}/fd/{descriptor}")
                    if looks > MOST_OPEN:
                        hiding.add(_process(pid))
                except PermissionError:
                    hiding.add(_process(pid))
                except OSError:
                    continue  # it has ended
                if looks > MOST_OPEN:
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
        """A process that hides has root's folder there, whoever it is."""
        uid = os.stat(f"/proc/{pid}").st_uid
        if uid != 0 or self._owner == 0:
            return uid == self._owner
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) == self._owner for line in lines if line.startswith("Uid:")), False)


def _process(pid: str) -> str:
    """A name that no later process has."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        return f"process {pid} ({name}, started at tick {rest.split()[19]})"
    except (OSError, IndexError):
        return f"process {pid}"

"""A control group of Linux for each container of the ``local`` cluster, where there is one that we may make.

Who was born in a group stays in it, with all its descendants, whatever they do to their parents, sessions, descriptors
and environment: so a container's group has everything that it has left behind, and all of it ends at once. A scheduler,
which is to outlive whoever starts it, goes out of any such group first.

A group is made below the one that we are in ourselves: in version 2 (also where it has no controllers, beside version
1), else in the freezer of version 1. Its folder is called ``heronry-TOPOLOGY-CONTAINER`` and is named in a file of the
topology's runtime folder, where whoever ends the container finds it, wherever he is himself.

Where the system lets us make none, all is as without (``heron_runtime.orphans``, the schedulers' ``remnants``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from heron_runtime.files import entries, replace_file
from heron_runtime.launch import Launch

PREFIX = "heronry-"
VERSION_2, FREEZER = "cgroup2", "freezer"
PROCS = "cgroup.procs"
OWN = "0"  # whoever writes this there goes there
END_SECONDS = 5.0
POLL_SECONDS = 0.01
_NAME = re.compile(PREFIX + r"[0-9a-f]{8}-\d+")
log = logging.getLogger(__name__)


def places(mountinfo: str, own: str) -> list[tuple[str, Path]]:
    """Where groups of ours may be: kind and folder, the better one first. Pure.

    ``mountinfo`` and ``own`` are what ``/proc/self/mountinfo`` and ``/proc/self/cgroup`` say. A folder is that of our
    own group, or the one above if that is one of Heronry's.
    """
    mounted = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(maxsplit=2)
        if kind == "cgroup2":
            mounted[VERSION_2] = (fields[3], fields[4])
        elif kind == "cgroup" and "freezer" in options.split(","):
            mounted[FREEZER] = (fields[3], fields[4])
    groups = {}
    for line in own.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            groups[VERSION_2] = path
        elif "freezer" in controllers.split(","):
            groups[FREEZER] = path
    found = []
    for kind in (VERSION_2, FREEZER):
        if kind in mounted and kind in groups:
            (root, mount), own_path = mounted[kind], PurePosixPath(groups[kind])
            if own_path.is_relative_to(root):
                parts = own_path.relative_to(root).parts
                ours = next((i for i, part in enumerate(parts) if part.startswith(PREFIX)), len(parts))
                found.append((kind, Path(mount, *parts[:ours])))
    return found


def place() -> Path | None:
    """The folder in which we may make groups, None if there is none."""
    return next(iter(_usable()), None)


def _usable() -> list[Path]:
    try:
        found = places(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    except OSError:
        return []
    return [folder for _, folder in found if _may_use(folder)]


def _may_use(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and os.access(folder / PROCS, os.W_OK)


def enter(launch: Launch, container: int) -> None:
    """Go into the group of this container, which is made if need be. For heron_container, before it has a child."""
    above = place()
    if above is None:
        return
    folder = above / f"{PREFIX}{Path(launch.runtime_dir).name}-{container}"
    if _NAME.fullmatch(folder.name) is None:  # a runtime folder that somebody else has named
        return
    try:
        replace_file(_record(launch, container), str(folder).encode())
        folder.mkdir(exist_ok=True)
        (folder / PROCS).write_text(OWN)
    except OSError as error:
        log.warning("this container has no control group: %s", error)
        with contextlib.suppress(OSError):
            folder.rmdir()


def leave() -> None:
    """Go out of the group of a container, if we are in one: we are to outlive it."""
    try:
        if PREFIX in Path("/proc/self/cgroup").read_text():
            for above in _usable():
                (above / PROCS).write_text(OWN)
    except OSError as error:
        log.warning("still in the control group of who started this process: %s", error)


def groups_of(launch: Launch) -> dict[int, ControlGroup]:
    """Container to group, of those that were ever made for this submission."""
    found = {}
    for path in entries(Path(launch.runtime_dir)):
        match = re.fullmatch(r"container(\d+)\.cgroup", path.name)
        group = group_of(launch, int(match[1])) if match else None
        if match and group is not None:
            found[int(match[1])] = group
    return found


def group_of(launch: Launch, container: int) -> ControlGroup | None:
    """The group of one container; None if it has none."""
    try:
        folder = Path(_record(launch, container).read_text())
    except (OSError, ValueError):
        return None
    named = folder.name == f"{PREFIX}{Path(launch.runtime_dir).name}-{container}" and _NAME.fullmatch(folder.name)
    return ControlGroup(folder) if named and folder.is_absolute() else None


def _record(launch: Launch, container: int) -> Path:
    return Path(launch.runtime_dir, f"container{container}.cgroup")


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A control group that may be gone already."""

    folder: Path

    def members(self) -> list[int]:
        """The processes in it and in those below."""
        found = []
        for folder in self._folders():
            with contextlib.suppress(OSError):
                found += [int(line) for line in (folder / PROCS).read_text().split()]
        return found

    def end(self, timeout_seconds: float = END_SECONDS) -> bool:
        """Kill all that is in it, so that none of it escapes by a fork, and remove it. We ourselves go out of it first.
        False if something does not end within the time."""
        deadline = time.monotonic() + timeout_seconds
        while members := self.members():
            if os.getpid() in members:
                leave()
                members = self.members()
            self._kill(everybody=os.getpid() not in members)
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return self.remove()

    def remove(self) -> bool:
        """True if it is gone, which one with processes in it does not go."""
        try:
            for folder in self._folders():
                folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _kill(self, *, everybody: bool) -> None:
        """``everybody``: we are not among them, so what stops the whole group may be used."""
        if everybody and _write(self.folder / "cgroup.kill", "1"):  # version 2, from Linux 5.14 on
            return
        switch, stop, go = (self.folder / "cgroup.freeze", "1", "0")
        if not switch.exists():
            switch, stop, go = (self.folder / "freezer.state", "FROZEN", "THAWED")
        frozen = everybody and _write(switch, stop)
        try:
            for pid in self.members():
                if pid != os.getpid():
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
        finally:
            if frozen:
                _write(switch, go)

    def _folders(self) -> Iterator[Path]:
        """It and all below it, the lowest first."""
        for place, _, _ in os.walk(self.folder, topdown=False):
            yield Path(place)


def _write(file: Path, text: str) -> bool:
    try:
        with open(file, "r+") as opened:
            opened.write(text)
    except OSError:
        return False
    return True

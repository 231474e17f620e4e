"""Linux control group for each container of the `local` cluster, where one can be created.

A process stays in the group it was born in, with all its descendants, whatever they do to their parents, sessions,
descriptors and environment. The group of a container thus holds all that the container has left, and all of it ends at
once. A scheduler outlives its starter and therefore first leaves any such group.

A group is created below that of this process: in version 2 (even without controllers, beside version 1), or else in the
freezer of version 1. Its folder is called `heronry-TOPOLOGY-CONTAINER`. A file in the runtime folder of the topology
names it, so that any process which ends the container finds it.

If the system permits no group, other means end left processes (`heron_runtime.orphans`, `remnants` of the schedulers).
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
OWN = "0"  # a process that writes this moves itself there
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
    if _NAME.fullmatch(folder.name) is None:  # a runtime folder with a foreign name
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
            self._kill(is_outside=os.getpid() not in members)
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

    def _kill(self, *, is_outside: bool) -> None:
        """Kill the members. `is_outside`: this process is not a member, so the whole group may be stopped at once."""
        if is_outside and _write(self.folder / "cgroup.kill", "1"):  # version 2, from Linux 5.14 on
            return
        switch, stop, go = (self.folder / "cgroup.freeze", "1", "0")
        if not switch.exists():
            switch, stop, go = (self.folder / "freezer.state", "FROZEN", "THAWED")
        frozen = is_outside and _write(switch, stop)
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

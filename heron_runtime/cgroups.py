"""Linux control group for each container of the `local` cluster, where one can be created.

A process and all its descendants stay in the group in which the process was created. Changing the parent, session,
descriptors or environment does not move them. The group therefore holds every process that a container has left behind,
and all of them can be killed at once. A scheduler outlives the process that started it, so it first leaves any such
group.

A group is created below the group of this process: in version 2 (even without controllers, next to version 1), or else
in the freezer of version 1. Its folder is called `heronry-TOPOLOGY-CONTAINER`. A file in the runtime folder of the
topology holds its path, so that any process that ends the container can find it.

If the system does not permit groups, other means end leftover processes (`heron_runtime.orphans`, and `remnants` of the
schedulers).
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
    """Return the folders below which control groups may be created, the preferred one first.

    A folder is that of this process's own group. If that is one of Heronry's groups or below one, it is the folder
    above Heronry's group.

    Args:
        mountinfo: Content of ``/proc/self/mountinfo``.
        own: Content of ``/proc/self/cgroup``.

    Returns:
        Pairs of kind (``VERSION_2`` or ``FREEZER``) and folder.
    """
    mounted = {}
    for line in mountinfo.splitlines():
        mount_fields, _, right = line.partition(" - ")
        fields, (kind, _, options) = mount_fields.split(), right.split(maxsplit=2)
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
    hierarchies = []
    for kind in (VERSION_2, FREEZER):
        if kind in mounted and kind in groups:
            (root, mount), own_path = mounted[kind], PurePosixPath(groups[kind])
            if own_path.is_relative_to(root):
                parts = own_path.relative_to(root).parts
                ours = next((i for i, part in enumerate(parts) if part.startswith(PREFIX)), len(parts))
                hierarchies.append((kind, Path(mount, *parts[:ours])))
    return hierarchies


def place() -> Path | None:
    """Return the folder in which this process may create groups, or None."""
    return next(iter(_usable()), None)


def _usable() -> list[Path]:
    try:
        hierarchies = places(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    except OSError:
        return []
    return [folder for _, folder in hierarchies if _may_use(folder)]


def _may_use(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and os.access(folder / PROCS, os.W_OK)


def enter(launch: Launch, container: int) -> None:
    """Move this process into the group of a container and create the group if needed.

    `heron_container` calls this before it starts a child process. A failure is logged, not raised.
    """
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
    """Move this process out of the group of a container, if it is in one, so that it outlives the container."""
    try:
        if PREFIX in Path("/proc/self/cgroup").read_text():
            for above in _usable():
                (above / PROCS).write_text(OWN)
    except OSError as error:
        log.warning("still in the control group of who started this process: %s", error)


def groups_of(launch: Launch) -> dict[int, ControlGroup]:
    """Return the groups that were created for this submission, by container. Groups may be gone already."""
    groups = {}
    for path in entries(Path(launch.runtime_dir)):
        match = re.fullmatch(r"container(\d+)\.cgroup", path.name)
        group = group_of(launch, int(match[1])) if match else None
        if match and group is not None:
            groups[int(match[1])] = group
    return groups


def group_of(launch: Launch, container: int) -> ControlGroup | None:
    """Return the group of one container, or None if none was recorded."""
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
        """Return the ids of the processes in this group and in the groups below it."""
        pids = []
        for folder in self._folders():
            with contextlib.suppress(OSError):
                pids += [int(line) for line in (folder / PROCS).read_text().split()]
        return pids

    def end(self, timeout_seconds: float = END_SECONDS) -> bool:
        """Kill all members, so that none escapes by a fork, and remove the group.

        This process leaves the group first.

        Returns:
            False if a member does not end within the timeout or the group cannot be removed.
        """
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
        """Remove the group and those below it. Return True if it is gone; a group with processes stays."""
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
        """Yield the folder of this group and all folders below it, the lowest first."""
        for place, _, _ in os.walk(self.folder, topdown=False):
            yield Path(place)


def _write(file: Path, text: str) -> bool:
    try:
        with open(file, "r+") as opened:
            opened.write(text)
    except OSError:
        return False
    return True

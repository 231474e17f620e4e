"""Detection of the processes that a container whose leader is dead has left on this host.

Descent is the reliable way (``heron_runtime.orphans``), but it fails if a whole line of parents was killed. This module
uses two other properties. A daemon does not lose them by fork, setsid, chdir or closing its descriptors. The first is
the mark in the environment that ``heron_container`` gives to all its descendants, which exec preserves. The second is
the container's heartbeat file, which every process of the container has mapped until an exec. Only a program that was
started with an empty environment has neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil

from heron_runtime.launch import Launch
from heron_runtime.spawn import MARK


def mark_of(topology_id: str, container: int) -> str:
    """Return the value of the mark."""
    return f"{topology_id}/{container}"


def remnants(launch: Launch, container: int | None = None) -> list[psutil.Process]:
    """Return living marked processes of this submission or container, except the caller."""
    one = container is not None
    mark = f"{MARK}={launch.topology_id}/" if container is None else f"{MARK}={mark_of(launch.topology_id, container)}"
    heartbeats = f"{launch.runtime_dir}/beats" if container is None else f"{launch.heartbeats(container)}/"
    found = []
    for pid in _processes():
        try:
            if _has_mark(pid, mark, whole=one) or _has_mapped(pid, heartbeats):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        except (OSError, psutil.Error):
            continue  # it has ended meanwhile, or belongs to another user
    return found


def _processes() -> Iterator[int]:
    own = os.getpid()
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own)


def _has_mark(pid: int, mark: str, *, whole: bool) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        variables = file.read().split(b"\0")
    wanted = mark.encode()
    return any(variable == wanted if whole else variable.startswith(wanted) for variable in variables)


def _has_mapped(pid: int, path: str) -> bool:
    if "python" not in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
        return False  # other programs do not map our files, and the maps of some are long
    with open(f"/proc/{pid}/maps", errors="replace") as file:
        return path in file.read()

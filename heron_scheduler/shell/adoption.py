"""What a scheduler finds when it starts: containers that an earlier scheduler started and that run on.

Two witnesses are asked. The lock file that each heron_container keeps on this host names its process, even while the
state store is away; its record in the store names it, too. A process is adopted only if it is alive, ours, has the
right title and began when the witness says. Where the leader is dead but its process group is not, the remains are
adopted as such: they must be gone before the container is started again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from heron_control.schedulers.identity import group_members, is_process, last_holder, process_title
from heron_runtime.files import entries
from heron_runtime.launch import Launch
from heron_runtime.model.ids import container_name
from heron_runtime.state import topologies
from heron_runtime.state.store import StateStore


@dataclass(frozen=True, slots=True)
class Found:
    """A container that is there: its process group, and whether its heron_container lives."""

    number: int
    group: int
    leader_alive: bool


def find_containers(launch: Launch, store: StateStore) -> list[Found]:
    """All containers of this submission of which something runs on this host. Blocks. Raises StoreUnavailable."""
    witnesses: dict[int, list[tuple[int, float]]] = {}
    for number, pid, started in [*_from_locks(launch), *_from_records(launch, store)]:
        witnesses.setdefault(number, []).append((pid, started))
    found = []
    for number, claims in sorted(witnesses.items()):
        title = process_title(launch.topology, container_name(number))
        living = [pid for pid, started in claims if is_process(pid, title, started)]
        remains = [pid for pid, started in claims if _remains(launch, pid, started)]
        if living:
            found.append(Found(number, living[0], True))
        elif remains:
            found.append(Found(number, remains[0], False))
    return found


def _from_locks(launch: Launch) -> Iterator[tuple[int, int, float]]:
    for path in entries(Path(launch.runtime_dir)):
        match = re.fullmatch(r"container(\d+)\.lock", path.name)
        holder = last_holder(path) if match else None
        if match and holder is not None and holder.topology_id == launch.topology_id:
            yield int(match[1]), holder.pid, holder.started


def _from_records(launch: Launch, store: StateStore) -> Iterator[tuple[int, int, float]]:
    for location in topologies.containers(store, launch.topology):
        if location.topology_id == launch.topology_id and location.host == launch.host:
            yield location.container, location.pid, location.incarnation / 1000


def _remains(launch: Launch, group: int, started: float) -> bool:
    """True if processes of this topology are left in the group of a dead leader."""
    for pid in group_members(group):
        try:
            process = psutil.Process(pid)
            ours = " ".join(process.cmdline()).startswith(process_title(launch.topology, ""))
            if process.create_time() >= started - 5 and (ours or process.cwd() == launch.home):
                return True
        except psutil.Error:
            continue
    return False

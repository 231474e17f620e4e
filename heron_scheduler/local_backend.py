"""Containers as process groups of this host.

Containers that an earlier scheduler started continue to run and are adopted. Two sources name their processes: the lock
file that each heron_container keeps on this host, readable even while the state store is unavailable, and its record in
the store. A process is adopted only if it is alive, belongs to this user, has the right title and started at the
recorded time. If the leader is dead but its process group is not, the group is adopted: it must end before the
container is started again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import psutil

from heron_control.schedulers.containers import ContainerRow
from heron_control.schedulers.identity import (
    container_lock,
    group_exists,
    group_members,
    is_held,
    is_process,
    kill_group,
    last_holder,
    process_title,
    remnants,
)
from heron_runtime.cgroups import group_of
from heron_runtime.files import entries
from heron_runtime.launch import Launch
from heron_runtime.linux import become_subreaper
from heron_runtime.model.ids import container_name
from heron_runtime.orphans import end_orphans
from heron_runtime.spawn import start_session
from heron_runtime.state import topologies
from heron_runtime.state.store import StateStore
from heron_scheduler.container_supervisor import RunningContainer, log_file

LOOK_CLOSER_EVERY = 20
log = logging.getLogger(__name__)


def find_containers(launch: Launch, store: StateStore) -> list[RunningContainer]:
    """Return all containers of this submission that have processes on this host. Blocks.

    Raises:
        StoreUnavailable: The state store is unavailable.
    """
    witnesses: dict[int, list[tuple[int, float]]] = {}
    for number, pid, started in [*_from_locks(launch), *_from_records(launch, store)]:
        witnesses.setdefault(number, []).append((pid, started))
    containers = []
    for number, claims in sorted(witnesses.items()):
        title = process_title(launch.topology, container_name(number))
        living = [pid for pid, started in claims if is_process(pid, title, started)]
        remains = [pid for pid, started in claims if _remains(launch, pid, started)]
        if living:
            containers.append(RunningContainer(number, living[0], True))
        elif remains:
            containers.append(RunningContainer(number, remains[0], False))
    return containers


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
    """Return True if processes of this topology are left in the group of a dead leader."""
    for pid in group_members(group):
        try:
            process = psutil.Process(pid)
            ours = " ".join(process.cmdline()).startswith(process_title(launch.topology, ""))
            if process.create_time() >= started - 5 and (ours or process.cwd() == launch.home):
                return True
        except psutil.Error:
            continue
    return False


class LocalBackend:
    """Process groups of this host.

    Processes that a container leaves behind are re-parented to this process if it started the leader
    (``heron_runtime.orphans``). Otherwise they are found by the control group or their marks.
    """

    confirm_seconds = 0.05

    def __init__(self, launch: Launch, launch_file: Path) -> None:
        self._launch = launch
        self._launch_file = launch_file
        self._polls = 0
        become_subreaper()

    def metrics_launch(self) -> Launch:
        """Return the launch itself: all containers share one runtime folder."""
        return self._launch

    def find(self, store: StateStore) -> list[RunningContainer]:
        """Find containers by lock files and records."""
        return find_containers(self._launch, store)

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start the container in a session of its own."""
        self._clear(number)
        arguments = ("--launch", str(self._launch_file), "--container", str(number), "--own-log")
        return start_session("heron_container", arguments, self._launch.home, log_file(self._launch, number))

    def terminate(self, number: int, leader: int) -> None:
        """Send SIGTERM to the leader."""
        with contextlib.suppress(ProcessLookupError):  # its end is about to be reported
            os.kill(leader, signal.SIGTERM)

    def kill(self, number: int, group: int) -> None:
        """Send SIGKILL to the group."""
        kill_group(group)

    async def find_ended(self, ending: Sequence[ContainerRow], leaders: Collection[int]) -> list[int]:
        """Look the containers up in the process table."""
        self._polls += 1
        closely = self._polls % LOOK_CLOSER_EVERY == 0  # zombies without a parent that reaps them do not count
        if end_orphans(leaders):
            return []
        return [row.number for row in ending if self._has_ended(row, closely)]

    def _has_ended(self, row: ContainerRow, closely: bool) -> bool:
        ended = not row.group or not group_exists(row.group) or (closely and not group_members(row.group))
        return ended and self._nothing_left(row.number)

    def _nothing_left(self, number: int) -> bool:
        pids = remnants(self._launch, number)
        for process in pids:
            log.warning("killing process %d, an orphan of container %d", process.pid, number)
            with contextlib.suppress(psutil.Error):
                process.kill()
        group = group_of(self._launch, number)
        if group is None:
            return not pids
        for pid in group.members():
            log.warning("killing process %d, left in the control group of container %d", pid, number)
        return group.end(timeout_seconds=0.0) and not pids  # polled again if not all end at once

    def _clear(self, number: int) -> None:
        """End what an earlier container has left in its control group."""
        group = group_of(self._launch, number)
        if group is not None and not is_held(container_lock(self._launch.runtime_dir, number)) and not group.end():
            log.error("processes %s of container %d do not end", group.members(), number)

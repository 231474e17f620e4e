"""What containers run on: what differs between process groups of this host and steps of a Slurm job.

``ContainersShell`` owns the core and the loop; a ground starts, signals and confirms. On either a container's leader is
watched as a process of this host: heron_container itself, or the srun that holds its step.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from heron_control.schedulers.containers import ContainerRow
from heron_control.schedulers.identity import container_lock, group_exists, group_members, is_held, kill_group
from heron_control.schedulers.remnants import remnants
from heron_runtime.cgroups import group_of
from heron_runtime.launch import Launch
from heron_runtime.linux import become_subreaper
from heron_runtime.model.ids import container_name
from heron_runtime.orphans import end_orphans
from heron_runtime.spawn import start_session
from heron_runtime.state.store import StateStore
from heron_scheduler.shell.adoption import Found, find_containers

LOOK_CLOSER_EVERY = 20
log = logging.getLogger(__name__)


class Ground(Protocol):
    """All but ``find`` is called on the event loop, and does not block it."""

    confirm_seconds: float  # between two looks at what is ending

    def beside_master(self) -> Launch:
        """The launch by which the metrics manager of container 0 is found, which speaks for the scheduler, too."""

    def find(self, store: StateStore) -> list[Found]:
        """What an earlier scheduler has started and runs on. Blocks. Raises StoreError, SchedulerError."""

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start a container; returns its leader. Raises OSError."""

    def terminate(self, number: int, leader: int) -> None:
        """Ask heron_container to stop."""

    def kill(self, number: int, group: int) -> None:
        """End all that is left of a container."""

    async def gone(self, ending: Sequence[ContainerRow], leaders: Collection[int]) -> list[int]:
        """Those of these containers of which certainly nothing is left. ``leaders``: our living children."""


def log_file(launch: Launch, number: int) -> Path:
    """Where what a container's leader prints goes."""
    return launch.log_dir / f"{container_name(number)}.log"


class LocalGround:
    """Process groups of this host. What a container has left comes to us if we started its leader
    (``heron_runtime.orphans``), else it is found by its control group or its marks."""

    confirm_seconds = 0.05

    def __init__(self, launch: Launch, launch_file: Path) -> None:
        self._launch = launch
        self._launch_file = launch_file
        self._looks = 0
        become_subreaper()

    def beside_master(self) -> Launch:
        """All are in one runtime folder."""
        return self._launch

    def find(self, store: StateStore) -> list[Found]:
        """By lock files and records."""
        return find_containers(self._launch, store)

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """In a session of its own."""
        self._clear(number)
        arguments = ("--launch", str(self._launch_file), "--container", str(number), "--own-log")
        return start_session("heron_container", arguments, self._launch.home, log_file(self._launch, number))

    def terminate(self, number: int, leader: int) -> None:
        """SIGTERM to the leader."""
        with contextlib.suppress(ProcessLookupError):  # its end is about to be told
            os.kill(leader, signal.SIGTERM)

    def kill(self, number: int, group: int) -> None:
        """SIGKILL to the group."""
        kill_group(group)

    async def gone(self, ending: Sequence[ContainerRow], leaders: Collection[int]) -> list[int]:
        """Looked up in the table of processes."""
        self._looks += 1
        closely = self._looks % LOOK_CLOSER_EVERY == 0  # zombies that nobody reaps are not processes
        if end_orphans(leaders):
            return []
        return [row.number for row in ending if self._is_gone(row, closely)]

    def _is_gone(self, row: ContainerRow, closely: bool) -> bool:
        ended = not row.group or not group_exists(row.group) or (closely and not group_members(row.group))
        return ended and self._nothing_left(row.number)

    def _nothing_left(self, number: int) -> bool:
        left = remnants(self._launch, number)
        for process in left:
            log.warning("ending process %d, which container %d has left behind", process.pid, number)
            with contextlib.suppress(psutil.Error):
                process.kill()
        group = group_of(self._launch, number)
        if group is None:
            return not left
        for pid in group.members():
            log.warning("ending process %d, which is left in the control group of container %d", pid, number)
        return group.end(timeout_seconds=0.0) and not left  # who does not end at once is looked at again

    def _clear(self, number: int) -> None:
        """What a container whose end nobody has seen has left in its control group."""
        group = group_of(self._launch, number)
        if group is not None and not is_held(container_lock(self._launch.runtime_dir, number)) and not group.end():
            log.error("processes %s of container %d do not end", group.members(), number)

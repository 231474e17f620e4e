"""Supervision of a topology's containers: owner of the container table, on one event loop.

The ends of leaders are reported by pidfd, for started and adopted containers alike. While a container is ending, the
backend is polled until nothing of the container is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heron_control.schedulers.containers import (
    ContainerRow,
    ContainerTable,
    Effect,
    KillGroup,
    StartContainer,
    TerminateContainer,
    container_statuses,
)
from heron_control.schedulers.identity import exit_in_words
from heron_control.schedulers.timers import DeadlineTimer, now_ms
from heron_runtime.launch import Launch
from heron_runtime.model.ids import container_name
from heron_runtime.state.store import StateStore
from heron_runtime.wire.container import ProcessState, ProcessStatus, SchedulerStatus

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """Running container: its process group, and whether its heron_container lives."""

    number: int
    group: int
    leader_alive: bool


class ContainerBackend(Protocol):
    """Starts, stops and confirms containers on one kind of host.

    A container's leader is watched as a process of this host: heron_container itself, or the srun that holds its step.
    All methods but ``find`` run on the event loop and must not block.
    """

    confirm_seconds: float  # interval between two polls of ending containers

    def metrics_launch(self) -> Launch:
        """Return the launch of container 0, whose metrics manager reports for the scheduler."""

    def find(self, store: StateStore) -> list[RunningContainer]:
        """Return containers that an earlier scheduler started and that still run. Blocks.

        Raises:
            StoreError: The state store is unavailable.
            SchedulerError: The backend cannot be asked.
        """

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start a container and return its leader.

        Raises:
            OSError: The leader cannot be started.
        """

    def terminate(self, number: int, leader: int) -> None:
        """Ask heron_container to stop."""

    def kill(self, number: int, group: int) -> None:
        """Kill all that is left of a container."""

    async def find_ended(self, ending: Sequence[ContainerRow], leaders: Collection[int]) -> list[int]:
        """Return the containers of which certainly nothing is left.

        Args:
            ending: Containers that are ending.
            leaders: Process ids of our living children.
        """


def log_file(launch: Launch, number: int) -> Path:
    """Return the log file for the output of a container's leader."""
    return launch.log_dir / f"{container_name(number)}.log"


class ContainerSupervisor:
    """Supervisor of the containers of one topology."""

    def __init__(self, launch: Launch, backend: ContainerBackend) -> None:
        self._launch = launch
        self._backend = backend
        self._started = time.time()
        self._loop = asyncio.get_running_loop()
        self.core = ContainerTable.of(launch.settings)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # by number; adopted ones are not our children
        self._alarm = DeadlineTimer(lambda: self.act(self.core.tick(now_ms())))
        self._confirming: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.done = asyncio.Event()

    def adopt(self, containers: Iterable[RunningContainer]) -> None:
        """Take over running containers. Called before ``want``."""
        for container in containers:
            number, group = container.number, container.group
            alive = container.leader_alive
            log.info("adopting container %d (process %d%s)", number, group, "" if alive else ", without its leader")
            self.act(self.core.adopt(now_ms(), number, group, alive))
            if alive:
                self._watch(number, group)

    def want(self, numbers: Iterable[int]) -> None:
        """Set the containers that should run."""
        self.act(self.core.want(now_ms(), numbers))

    def stop(self) -> None:
        """End all containers; ``done`` is set when nothing is left."""
        self.act(self.core.stop(now_ms()))

    async def restart(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Restart containers; return when each has been started again.

        Raises:
            KeyError: A container is unknown.
        """
        before = {number: self.core.rows[number].restarts for number in numbers}
        for number in before:
            log.info("restarting container %d on request", number)
            self.act(self.core.restart(now_ms(), number))
        while not self.core.stopping and any(
            self.core.rows[n].restarts == restarts or not self.core.rows[n].group for n, restarts in before.items()
        ):
            self._changed.clear()
            await self._changed.wait()
        return tuple(before)

    def status(self) -> SchedulerStatus:
        """Return the status of the scheduler and its containers."""
        state = ProcessState.STOPPED if self.core.stopping else ProcessState.RUNNING
        own = ProcessStatus("heron_scheduler", "heron_scheduler", -1, "", 0, os.getpid(), state, self._started)
        return SchedulerStatus(own, container_statuses(self.core, now_ms(), time.time()))

    def act(self, effects: Iterable[Effect]) -> None:
        """Carry out effects of the container table, and schedule what follows."""
        for effect in effects:
            match effect:
                case StartContainer(number):
                    self._start(number)
                case TerminateContainer(number, pid):
                    log.info("stopping container %d (process %d)", number, pid)
                    self._backend.terminate(number, pid)
                case KillGroup(number, group):
                    log.warning("killing what is left of container %d (process group %d)", number, group)
                    self._backend.kill(number, group)
        self._alarm.set(self.core.next_deadline_ms())
        if self.core.ending() and self._confirming is None:
            self._confirming = self._loop.create_task(self._confirm())
            self._confirming.add_done_callback(_raise_failure)
        if self.core.stopping and self.core.all_over():
            self.done.set()
        self._changed.set()

    def _start(self, number: int) -> None:
        row = self.core.rows[number]
        log.info("starting container %d%s", number, f" (restart {row.restarts})" if row.restarts else "")
        try:
            process = self._backend.start(number)
        except OSError as error:
            self._loop.call_soon(self._not_started, number, f"not started: {error}")
            return
        self._processes[number] = process
        self.act(self.core.born(now_ms(), number, process.pid))
        self._watch(number, process.pid)

    def _not_started(self, number: int, reason: str) -> None:
        log.error("container %d: %s", number, reason)
        self.act(self.core.ended(now_ms(), number, reason))

    def _watch(self, number: int, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._loop.call_soon(self._leader_ended, number, -1)
            return
        self._loop.add_reader(pidfd, self._leader_ended, number, pidfd)

    def _leader_ended(self, number: int, pidfd: int) -> None:
        if pidfd >= 0:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        process = self._processes.pop(number, None)
        code = process.wait() if process is not None else None
        reason = "ended" if code is None else exit_in_words(code, self._last_line(number))
        (log.info if self.core.stopping else log.error)("container %d has ended: %s", number, reason)
        self.act(self.core.ended(now_ms(), number, reason))

    async def _confirm(self) -> None:
        """Poll the backend until nothing of the ending containers is left."""
        try:
            while ending := self.core.ending():
                await asyncio.sleep(self._backend.confirm_seconds)
                leaders = [process.pid for process in self._processes.values()]
                for number in await self._backend.find_ended(ending, leaders):
                    self.act(self.core.gone(now_ms(), number))
        finally:
            self._confirming = None

    def _last_line(self, number: int) -> str:
        try:
            with open(log_file(self._launch, number), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 2000))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _raise_failure(task: asyncio.Task[None]) -> None:
    """Raise the exception of a task, so that the loop's handler logs it."""
    if not task.cancelled():
        task.result()

"""The scheduler at work: owns the core, starts and watches containers, on one event loop.

Ends of leaders are told by pidfd, whether we started them or adopted them. That nothing of a container is left is
looked up again and again while some container is ending, and never otherwise. What that means is the ``Ground``'s.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import time
from collections.abc import Iterable

from heron_control.schedulers.alarm import Alarm, now_ms
from heron_control.schedulers.containers import (
    Containers,
    Effect,
    KillGroup,
    StartContainer,
    TerminateContainer,
    container_statuses,
)
from heron_control.schedulers.endings import exit_in_words
from heron_runtime.launch import Launch
from heron_runtime.wire.container import ProcessState, ProcessStatus, SchedulerStatus
from heron_scheduler.shell.adoption import Found
from heron_scheduler.shell.ground import Ground, log_file

log = logging.getLogger(__name__)


class ContainersShell:
    """The containers of one topology."""

    def __init__(self, launch: Launch, ground: Ground) -> None:
        self._launch = launch
        self._ground = ground
        self._started = time.time()
        self._loop = asyncio.get_running_loop()
        self.core = Containers.of(launch.settings)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # by number; adopted ones are not ours to reap
        self._alarm = Alarm(lambda: self.act(self.core.tick(now_ms())))
        self._confirming: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.over = asyncio.Event()

    def adopt(self, found: Iterable[Found]) -> None:
        """Take over what runs already; before ``want``."""
        for container in found:
            number, group = container.number, container.group
            alive = container.leader_alive
            log.info("container %d runs already (process %d%s)", number, group, "" if alive else ", without its leader")
            self.act(self.core.adopt(now_ms(), number, group, alive))
            if alive:
                self._watch(number, group)

    def want(self, numbers: Iterable[int]) -> None:
        """Exactly these containers are to run."""
        self.act(self.core.want(now_ms(), numbers))

    def stop(self) -> None:
        """End all; ``over`` is set when nothing is left."""
        self.act(self.core.stop(now_ms()))

    async def restart(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Stop and start these; returns when each has been started anew. Raises KeyError."""
        before = {number: self.core.rows[number].restarts for number in numbers}
        for number in before:
            log.info("restarting container %d, as asked", number)
            self.act(self.core.restart(now_ms(), number))
        while not self.core.stopping and any(
            self.core.rows[n].restarts == restarts or not self.core.rows[n].group for n, restarts in before.items()
        ):
            self._changed.clear()
            await self._changed.wait()
        return tuple(before)

    def status(self) -> SchedulerStatus:
        """The scheduler itself and its containers."""
        state = ProcessState.STOPPED if self.core.stopping else ProcessState.RUNNING
        own = ProcessStatus("heron_scheduler", "heron_scheduler", -1, "", 0, os.getpid(), state, self._started)
        return SchedulerStatus(own, container_statuses(self.core, now_ms(), time.time()))

    def act(self, effects: Iterable[Effect]) -> None:
        """Do what the core has decided, and see to what follows."""
        for effect in effects:
            match effect:
                case StartContainer(number):
                    self._start(number)
                case TerminateContainer(number, pid):
                    log.info("stopping container %d (process %d)", number, pid)
                    self._ground.terminate(number, pid)
                case KillGroup(number, group):
                    log.warning("killing what is left of container %d (process group %d)", number, group)
                    self._ground.kill(number, group)
        self._alarm.set(self.core.next_deadline_ms())
        if self.core.ending() and self._confirming is None:
            self._confirming = self._loop.create_task(self._confirm())
            self._confirming.add_done_callback(_raise_fault)
        if self.core.stopping and self.core.all_over():
            self.over.set()
        self._changed.set()

    def _start(self, number: int) -> None:
        row = self.core.rows[number]
        log.info("starting container %d%s", number, f" (restart {row.restarts})" if row.restarts else "")
        try:
            process = self._ground.start(number)
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
        """Is anything left of the containers that are ending?"""
        try:
            while ending := self.core.ending():
                await asyncio.sleep(self._ground.confirm_seconds)
                leaders = [process.pid for process in self._processes.values()]
                for number in await self._ground.gone(ending, leaders):
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


def _raise_fault(task: asyncio.Task[None]) -> None:
    """A fault of ours goes to the loop's handler, and so into the log."""
    if not task.cancelled():
        task.result()

"""Container table: decides which containers to start, end and restart, for every scheduler. Pure.

The table receives facts and returns orders. A container is a *group* of processes whose leader is ``heron_container``:
a process group on the local cluster, a Docker container with Docker. When the leader ends, the others end as well; the
rest is killed after a grace period. A container is started again only when its whole group has ended (``gone``), so
two groups of one number never exist at the same time. The first restart is immediate. Then the delay doubles while the
container keeps dying young.

Memory: one row for each number that the packing plans have named, because a pending restart is a field of its row. A
row takes at most ``ROW_BYTES``. There are at most as many effects as rows.

::

    absent ─start→ up ─ended→ ending ─gone→ waiting ─due→ up
    up ─(restart, stop)→ stopping ─ended→ ending ─gone→ waiting, or over
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from heron_runtime.model.backoff import Backoff, BackoffPolicy
from heron_runtime.model.ids import container_name
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.container import LAST_ERROR_CHARACTERS, ProcessState, ProcessStatus

STOP_MARGIN_MS = 3000  # heron_container stops its children in two waves, each with a grace time
END_GRACE_MS = 2000
ROW_BYTES = 4096 + 4 * LAST_ERROR_CHARACTERS  # a character may take four bytes


def stop_grace_ms(settings: Mapping[str, Any]) -> int:
    """Return the time that a heron_container may take to stop."""
    return 2 * int(setting(settings, Keys.HERON_STOP_GRACE_SECS) * 1000) + STOP_MARGIN_MS


class ContainerStage(StrEnum):
    """Stage in the life of a container."""

    UP = "up"
    STOPPING = "stopping"  # asked to stop
    ENDING = "ending"  # the leader has ended, the rest must end
    WAITING = "waiting"  # for its next start
    OVER = "over"  # it will not run again


SHOWN = {
    ContainerStage.UP: ProcessState.RUNNING,
    ContainerStage.STOPPING: ProcessState.RESTARTING,
    ContainerStage.ENDING: ProcessState.RESTARTING,
    ContainerStage.WAITING: ProcessState.RESTARTING,
    ContainerStage.OVER: ProcessState.STOPPED,
}


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Order to start heron_container; ``born``, or ``ended`` and ``gone``, answers it."""

    number: int


@dataclass(frozen=True, slots=True)
class TerminateContainer:
    """Order to send SIGTERM to heron_container."""

    number: int
    pid: int


@dataclass(frozen=True, slots=True)
class KillGroup:
    """Order to kill every process of the container."""

    number: int
    group: int


Effect = StartContainer | TerminateContainer | KillGroup


@dataclass(slots=True)
class ContainerRow:
    """Row of one container. Times are monotonic milliseconds; ``group`` is the leader's process id."""

    number: int
    backoff: Backoff
    stage: ContainerStage = ContainerStage.UP
    group: int = 0  # 0 while it has no processes
    since_ms: int = 0
    born_ms: int = 0
    kill_ms: int | None = None
    due_ms: int | None = None
    wanted: bool = True
    end_requested: bool = False  # its end was requested, so it does not count as a death
    restarts: int = 0
    last_error: str = ""


@dataclass(slots=True)
class ContainerTable:
    """Containers of a topology.

    ``stop_grace_ms`` is the time for a leader to stop on request, ``end_grace_ms`` that for the processes it leaves.
    """

    policy: BackoffPolicy
    stop_grace_ms: int
    end_grace_ms: int
    rows: dict[int, ContainerRow] = field(default_factory=dict)
    stopping: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ContainerTable:
        """Create the table with the times in a topology's settings."""
        return cls(BackoffPolicy.of(settings), stop_grace_ms(settings), END_GRACE_MS)

    def want(self, now_ms: int, numbers: Iterable[int]) -> list[Effect]:
        """Set the wanted containers; start new ones. One that is left out is not restarted after its end."""
        effects: list[Effect] = []
        wanted = sorted(set(numbers))
        for number in wanted:
            row = self.rows.get(number)
            if self.stopping or (row is not None and row.wanted):
                continue
            if row is None or row.stage is ContainerStage.OVER:
                self.rows[number] = self._row(number, now_ms)
                effects.append(StartContainer(number))
            else:
                row.wanted = True  # its processes have not ended yet
        for number, row in self.rows.items():
            if number not in wanted:
                row.wanted = False
                if row.stage is ContainerStage.WAITING:
                    self._move(row, ContainerStage.OVER, now_ms)
        return effects

    def adopt(self, now_ms: int, number: int, group: int, leader_alive: bool) -> list[Effect]:
        """Add a container of an earlier scheduler, possibly without its leader. Called before ``want``."""
        row = self._row(number, now_ms)
        row.group = group
        self.rows[number] = row
        if leader_alive:
            return []
        return self.ended(now_ms, number, "found without its heron_container")

    def born(self, now_ms: int, number: int, group: int) -> list[Effect]:
        """Record that heron_container exists."""
        row = self.rows[number]
        row.group, row.born_ms = group, now_ms
        return self._stop(now_ms, row) if self.stopping else []

    def ended(self, now_ms: int, number: int, reason: str) -> list[Effect]:
        """Record that heron_container has ended or could not be started. Its group may still exist."""
        row = self.rows[number]
        if row.stage not in (ContainerStage.UP, ContainerStage.STOPPING):
            return []
        row.end_requested = row.stage is ContainerStage.STOPPING
        row.last_error = row.last_error if row.end_requested else reason[:LAST_ERROR_CHARACTERS]
        row.kill_ms = now_ms + self.end_grace_ms
        self._move(row, ContainerStage.ENDING, now_ms)
        return []

    def gone(self, now_ms: int, number: int) -> list[Effect]:
        """Record that no process of the container is left."""
        row = self.rows[number]
        if row.stage is not ContainerStage.ENDING:
            return []
        row.group, row.kill_ms = 0, None
        if self.stopping or not row.wanted:
            self._move(row, ContainerStage.OVER, now_ms)
            return []
        row.due_ms = now_ms + (0 if row.end_requested else row.backoff.died(now_ms - row.born_ms))
        self._move(row, ContainerStage.WAITING, now_ms)
        return self.tick(now_ms)

    def restart(self, now_ms: int, number: int) -> list[Effect]:
        """Stop and start a container, or start it now if it waits. Resets its restart delay.

        Raises:
            KeyError: The container is unknown.
        """
        row = self.rows[number]
        row.backoff.forget()
        if row.stage is ContainerStage.WAITING:
            row.due_ms = now_ms
            return self.tick(now_ms)
        return self._stop(now_ms, row) if row.stage is ContainerStage.UP else []

    def stop(self, now_ms: int) -> list[Effect]:
        """Stop all containers at the end of the topology. Idempotent."""
        if self.stopping:
            return []
        self.stopping = True
        effects: list[Effect] = []
        for row in self.rows.values():
            if row.stage is ContainerStage.UP:
                effects += self._stop(now_ms, row)
            elif row.stage is ContainerStage.WAITING:
                self._move(row, ContainerStage.OVER, now_ms)
        return effects

    def tick(self, now_ms: int) -> list[Effect]:
        """Return the starts and kills that are due."""
        effects: list[Effect] = []
        for row in self.rows.values():
            if row.kill_ms is not None and row.kill_ms <= now_ms and row.group:
                row.kill_ms = now_ms + self.end_grace_ms
                effects.append(KillGroup(row.number, row.group))
            if row.due_ms is not None and row.due_ms <= now_ms:
                row.restarts += 1
                row.born_ms = now_ms
                self._move(row, ContainerStage.UP, now_ms)
                effects.append(StartContainer(row.number))
        return effects

    def next_deadline_ms(self) -> int | None:
        """Return when ``tick`` has work to do, or None."""
        times = [t for row in self.rows.values() for t in (row.kill_ms, row.due_ms) if t is not None]
        return min(times, default=None)

    def ending(self) -> list[ContainerRow]:
        """Return the containers whose end must be confirmed by ``gone``."""
        return [row for row in self.rows.values() if row.stage is ContainerStage.ENDING]

    def all_over(self) -> bool:
        """Return True when no container runs or will run."""
        return all(row.stage is ContainerStage.OVER for row in self.rows.values())

    def check(self) -> None:
        """Assert the invariants."""
        groups = [row.group for row in self.rows.values() if row.group]
        assert len(groups) == len(set(groups)), "two containers claim one process group"
        for number, row in self.rows.items():
            assert number == row.number
            assert len(row.last_error) <= LAST_ERROR_CHARACTERS, "a row is bounded"
            assert (row.stage is ContainerStage.WAITING) == (row.due_ms is not None)
            assert row.group == 0 or row.stage not in (ContainerStage.WAITING, ContainerStage.OVER)
            assert not (row.stage is ContainerStage.WAITING and (self.stopping or not row.wanted))

    def _row(self, number: int, now_ms: int) -> ContainerRow:
        return ContainerRow(number, Backoff(self.policy), since_ms=now_ms, born_ms=now_ms)

    def _stop(self, now_ms: int, row: ContainerRow) -> list[Effect]:
        if not row.group:
            return []  # it is being started; ``born`` stops it if all must stop
        row.kill_ms = now_ms + self.stop_grace_ms
        self._move(row, ContainerStage.STOPPING, now_ms)
        return [TerminateContainer(row.number, row.group)]

    @staticmethod
    def _move(row: ContainerRow, stage: ContainerStage, now_ms: int) -> None:
        row.stage = stage
        row.since_ms = now_ms
        if stage is not ContainerStage.WAITING:
            row.due_ms = None


def container_statuses(containers: ContainerTable, now_ms: int, now: float) -> tuple[ProcessStatus, ...]:
    """Return the table for others. ``now_ms`` (monotonic) and ``now`` (since 1970) are one instant."""
    return tuple(
        ProcessStatus(
            kind="heron_container",
            name=container_name(row.number),
            container=row.number,
            component="",
            task=0,
            pid=row.group,
            state=SHOWN[row.stage],
            since=now - (now_ms - row.since_ms) / 1000,
            restarts=row.restarts,
            last_error=row.last_error,
            young_deaths=row.backoff.young_deaths,
        )
        for _, row in sorted(containers.rows.items())
    )

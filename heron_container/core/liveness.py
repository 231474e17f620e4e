"""Detection of dead peers: processes that are silent for too long, and a missing scheduler.

Each tick the shell passes the beat number of every live process and the CPU time of the silent ones. Silence is counted
in the watcher's *own ticks*: one tick adds the time that passed, but never more than ``TICK_CAP`` times the usual tick.
When the watcher or the whole machine was stopped for an hour, every process still has nearly all of its lease left to
beat again. A pause of the watcher therefore kills no process.

A process is suspected after ``suspect_ms`` without a beat. It is killed after ``kill_ms`` without a beat *and* without
CPU progress (a long computation that starves the heartbeat is not a death), and after ``always_ms`` in any case. At
most one process is condemned per ``STAGGER_MS``, so that a stalled machine does not lose all of them at once. Work that
is known to silence a process (a thread dump, a profiler) extends its lease.

Containers and the scheduler watch each other: when the scheduler's node disappears, a container starts it again. One
observation without the node proves little, since the node of a restarted session is absent for a moment. So it takes
``PATIENCE`` consecutive observations, and a scheduler that keeps dying is started with growing delays. Container 0 acts
first. The others wait longer, each number a little more: they act only if scheduler and container 0 died together,
because neither could restart the other then. Two containers that act at once do no harm: the second scheduler ends at
the lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from heron_runtime.model.backoff import Backoff, BackoffPolicy

TICK_CAP = 2
STAGGER_MS = 1000
CPU_PROGRESS_SECONDS = 0.05  # idle background threads use less than this
PATIENCE = 2
LATER = 2  # additional observations in every container but 0
LAST = 10  # container numbers above it wait no longer


class Judgement(Enum):
    """State of a silent process."""

    SUSPECT = "suspect"
    HUNG = "no heartbeat and no CPU progress"
    SILENT = "no heartbeat"


@dataclass(frozen=True, slots=True)
class Silence:
    """Silent process that is suspected, or condemned (HUNG, SILENT)."""

    slot: int
    judgement: Judgement
    silence_ms: int

    def reason(self) -> str:
        """Return the reason as text for logs and ``last_error``."""
        return f"killed: {self.judgement.value} for {self.silence_ms / 1000:.1f} s"


@dataclass(slots=True)
class _WatchedProcess:
    beat: int = 0
    silence_ms: int = 0
    idle_ms: int = 0
    cpu_seconds: float | None = None
    lease_ms: int = 0
    suspected: bool = False
    condemned: bool = False


@dataclass(slots=True)
class Liveness:
    """Judge of the processes of one container. Limits are in milliseconds."""

    suspect_ms: int
    kill_ms: int
    always_ms: int
    tick_ms: int
    _watched: dict[int, _WatchedProcess] = field(default_factory=dict)
    _until_next_ms: int = 0

    def watch(self, slot: int) -> None:
        """Watch the new process of this slot. Its start counts as a beat."""
        self._watched[slot] = _WatchedProcess()

    def forget(self, slot: int) -> None:
        """Stop watching this slot, whose process has ended."""
        self._watched.pop(slot, None)

    def extend(self, slot: int, lease_ms: int) -> None:
        """Do not count the next ``lease_ms`` of silence of this process, which is busy on purpose."""
        watched = self._watched.get(slot)
        if watched is not None:
            watched.lease_ms = max(watched.lease_ms, lease_ms)

    def silent_slots(self) -> list[int]:
        """Return the silent slots, whose CPU time the next tick needs."""
        return [slot for slot, w in self._watched.items() if w.silence_ms >= min(self.suspect_ms, self.kill_ms) // 8]

    def tick(self, passed_ms: int, beats: Mapping[int, int], cpu_seconds: Mapping[int, float]) -> list[Silence]:
        """Count one tick and return the processes to suspect or to kill.

        Args:
            passed_ms: Time since the last tick.
            beats: Beat number of each slot.
            cpu_seconds: CPU time used by each silent slot.
        """
        counted_ms = min(passed_ms, TICK_CAP * self.tick_ms)
        self._until_next_ms = max(0, self._until_next_ms - counted_ms)
        silences = []
        for slot, watched in sorted(self._watched.items()):
            if watched.condemned:
                continue
            self._count(watched, counted_ms, beats.get(slot, 0), cpu_seconds.get(slot))
            silence = self._judge(slot, watched)
            if silence is not None:
                silences.append(silence)
        return silences

    def check(self) -> None:
        """Assert the invariants."""
        for watched in self._watched.values():
            assert watched.silence_ms >= watched.idle_ms >= 0
            assert watched.lease_ms >= 0

    def _count(self, watched: _WatchedProcess, counted_ms: int, beat: int, cpu_seconds: float | None) -> None:
        if beat != watched.beat:
            watched.beat, watched.silence_ms, watched.idle_ms = beat, 0, 0
            watched.cpu_seconds, watched.suspected = None, False
            return
        leased_ms = min(watched.lease_ms, counted_ms)
        watched.lease_ms -= leased_ms
        watched.silence_ms += counted_ms - leased_ms
        if cpu_seconds is None:
            return
        if watched.cpu_seconds is None or cpu_seconds - watched.cpu_seconds >= CPU_PROGRESS_SECONDS:
            watched.cpu_seconds, watched.idle_ms = cpu_seconds, 0
        else:
            watched.idle_ms += counted_ms - leased_ms

    def _judge(self, slot: int, watched: _WatchedProcess) -> Silence | None:
        # CPU time is read only for processes that are already silent, so a hung one outlives kill_ms a little.
        hung = watched.idle_ms >= self.kill_ms
        silent = watched.silence_ms >= self.always_ms
        if (hung or silent) and self._until_next_ms == 0:
            watched.condemned = True
            self._until_next_ms = min(STAGGER_MS, self.kill_ms)
            return Silence(slot, Judgement.SILENT if silent and not hung else Judgement.HUNG, watched.silence_ms)
        if watched.silence_ms >= self.suspect_ms and not watched.suspected:
            watched.suspected = True
            return Silence(slot, Judgement.SUSPECT, watched.silence_ms)
        return None


def scheduler_patience(container: int) -> int:
    """Return the number of failed observations after which this container starts a scheduler."""
    return PATIENCE + (LATER + min(container, LAST) if container else 0)


@dataclass(slots=True)
class SchedulerWatch:
    """Decision when to start a scheduler."""

    policy: BackoffPolicy
    patience: int = PATIENCE  # observations without the node
    _backoff: Backoff = field(init=False)
    _missing: int = 0
    _started_ms: int | None = None
    _not_before_ms: int = 0

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.policy)

    def observe(self, now_ms: int, present: bool) -> bool:
        """Record one look at the store; return True if a scheduler must be started now."""
        if present:
            self._missing = 0
            return False
        self._missing += 1
        if self._missing < self.patience or now_ms < self._not_before_ms:
            return False
        lived_ms = self.policy.reset_ms if self._started_ms is None else now_ms - self._started_ms
        self._backoff.died(lived_ms)
        # The new scheduler needs time to create its node; the delay grows while it does not.
        self._not_before_ms = now_ms + max(self.policy.delay_ms(self._backoff.young_deaths + 1), 2000)
        self._started_ms = now_ms
        self._missing = 0
        return True

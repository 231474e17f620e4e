"""Which processes are silent for so long that they must be taken for dead.

Each tick the shell passes the beat number of every live process and, for those that are silent, the CPU time they
have used. Silence is counted in the watcher's *own ticks*: one tick adds the time that passed, but never more than
``TICK_CAP`` times the usual tick. So when the watcher, or the whole machine, was stopped for an hour, every process
still has nearly all of its lease left to beat again: one's own pause accuses nobody.

A process is suspected after ``suspect_ms`` without a beat; it is killed after ``kill_ms`` without a beat *and*
without CPU progress (a long computation that starves the heartbeat is no death), and after ``always_ms`` in any
case. At most one process is condemned per ``STAGGER_MS``, so that a machine that stalls does not lose everything at
once. Work that is known to silence a process (a thread dump, a profiler) extends its lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

TICK_CAP = 2
STAGGER_MS = 1000
CPU_PROGRESS_SECONDS = 0.05  # less than this is what idle background threads use


class Judgement(Enum):
    """What is to be said of a silent process."""

    SUSPECT = "suspect"
    HUNG = "no heartbeat and no CPU progress"
    SILENT = "no heartbeat"


@dataclass(frozen=True, slots=True)
class Silence:
    """A process is silent: it is suspected, or condemned (HUNG, SILENT)."""

    slot: int
    judgement: Judgement
    silence_ms: int

    def reason(self) -> str:
        """In words, for logs and ``last_error``."""
        return f"killed: {self.judgement.value} for {self.silence_ms / 1000:.1f} s"


@dataclass(slots=True)
class _Watched:
    beat: int = 0
    silence_ms: int = 0
    idle_ms: int = 0
    cpu_seconds: float | None = None
    lease_ms: int = 0
    suspected: bool = False
    condemned: bool = False


@dataclass(slots=True)
class Liveness:
    """Judges the processes of one container. Limits are in milliseconds."""

    suspect_ms: int
    kill_ms: int
    always_ms: int
    tick_ms: int
    _watched: dict[int, _Watched] = field(default_factory=dict)
    _until_next_ms: int = 0

    def watch(self, slot: int) -> None:
        """A new process has this slot; its birth counts as a beat."""
        self._watched[slot] = _Watched()

    def forget(self, slot: int) -> None:
        """The process of this slot has ended."""
        self._watched.pop(slot, None)

    def extend(self, slot: int, lease_ms: int) -> None:
        """Something keeps this process busy on purpose: do not count this much of its silence."""
        watched = self._watched.get(slot)
        if watched is not None:
            watched.lease_ms = max(watched.lease_ms, lease_ms)

    def wants_cpu(self) -> list[int]:
        """The slots whose CPU time the next tick should be told: the silent ones."""
        return [slot for slot, w in self._watched.items() if w.silence_ms >= min(self.suspect_ms, self.kill_ms) // 8]

    def tick(self, passed_ms: int, beats: Mapping[int, int], cpu_seconds: Mapping[int, float]) -> list[Silence]:
        """One tick: ``passed_ms`` since the last one, the beat of each slot, the CPU seconds of silent ones."""
        counted_ms = min(passed_ms, TICK_CAP * self.tick_ms)
        self._until_next_ms = max(0, self._until_next_ms - counted_ms)
        found = []
        for slot, watched in sorted(self._watched.items()):
            if watched.condemned:
                continue
            self._count(watched, counted_ms, beats.get(slot, 0), cpu_seconds.get(slot))
            silence = self._judge(slot, watched)
            if silence is not None:
                found.append(silence)
        return found

    def check(self) -> None:
        """Assert the invariants."""
        for watched in self._watched.values():
            assert watched.silence_ms >= watched.idle_ms >= 0
            assert watched.lease_ms >= 0

    def _count(self, watched: _Watched, counted_ms: int, beat: int, cpu_seconds: float | None) -> None:
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

    def _judge(self, slot: int, watched: _Watched) -> Silence | None:
        # CPU is watched only when a process is silent already, so a hung one lives a little longer than kill_ms.
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

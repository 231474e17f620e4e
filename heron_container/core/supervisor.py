"""The life of every process of a container, as a table.

The supervisor is told what happened (a process was born, ended, says that it works, time passed) and answers with
what to do (start, terminate, kill). It knows no process, clock or file. Each process goes its own way through
``TRANSITIONS``: nothing ever waits for another process, except that restarts due at the same instant are started
``STAGGER_MS`` apart, so that the death of many (of the zygote, say) does not become one burst of work.

A process is *alive* from the moment its start is ordered until its end is confirmed; only a process that is not
alive is started. So a slot never has two live processes. The first restart is at once, then the delay doubles while
the process keeps dying young (``heron_runtime.model.backoff``).

A process that exits with EXIT_REPLACED was told that a newer incarnation has its place. It is *dead*: the shell is
asked to find out whether the whole container was replaced; if it was not, the process is tried again after the
longest delay. If a plan has come since it was started, it may have left by the one before, and is started at once.

Instances may be *held*: those that live are killed, and none is started until that is over. Everything else goes on.

Memory: one row for each slot of the container's plan, whatever happens, since a restart that is due is a field of its
row; a row holds ``ROW_BYTES`` at most. Effects are as many as rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from heron_container.core.processes import ProcessSpec
from heron_runtime.model.backoff import Backoff, BackoffPolicy
from heron_runtime.wire.container import LAST_ERROR_CHARACTERS, ProcessState

STAGGER_MS = 20
KILL_AGAIN_MS = 1000
ROW_BYTES = 4096 + 2 * 4 * LAST_ERROR_CHARACTERS  # a character may take four bytes; an error, and a reason to kill


class Event(Enum):
    """What can happen to a process, as far as its state is concerned."""

    WORKS = "works"  # it says that it does its work
    IDLES = "idles"  # it says that it does not, any more
    ENDED = "ended"
    ENDED_UNWANTED = "ended, not wanted"  # its end was asked for
    REPLACED = "replaced"
    DUE = "due"  # its delay is over
    UNWANTED = "unwanted"  # it shall not be started again


_S = ProcessState
TRANSITIONS: dict[tuple[ProcessState, Event], ProcessState] = {
    (_S.STARTING, Event.WORKS): _S.RUNNING,
    (_S.RUNNING, Event.IDLES): _S.STARTING,
    (_S.STARTING, Event.ENDED): _S.RESTARTING,
    (_S.RUNNING, Event.ENDED): _S.RESTARTING,
    (_S.STARTING, Event.REPLACED): _S.DEAD,
    (_S.RUNNING, Event.REPLACED): _S.DEAD,
    (_S.RESTARTING, Event.DUE): _S.STARTING,
    (_S.DEAD, Event.DUE): _S.STARTING,
    (_S.STARTING, Event.ENDED_UNWANTED): _S.STOPPED,
    (_S.RUNNING, Event.ENDED_UNWANTED): _S.STOPPED,
    (_S.RESTARTING, Event.UNWANTED): _S.STOPPED,
    (_S.DEAD, Event.UNWANTED): _S.STOPPED,
}
LIVE = frozenset({_S.STARTING, _S.RUNNING})


def transition_table() -> str:
    """The table as text, one transition a line."""
    return "\n".join(f"{state:<10}  {event.value:<17}  → {after}" for (state, event), after in TRANSITIONS.items())


@dataclass(frozen=True, slots=True)
class Start:
    """Start this process now; answer with ``born`` or ``ended``."""

    spec: ProcessSpec
    restarts: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask this process to stop (SIGTERM)."""

    slot: int
    pid: int


@dataclass(frozen=True, slots=True)
class Kill:
    """End this process (SIGKILL)."""

    slot: int
    pid: int


@dataclass(frozen=True, slots=True)
class FindReplacement:
    """This process says it was replaced: find out whether the whole container was."""

    slot: int


Effect = Start | Terminate | Kill | FindReplacement


@dataclass(slots=True)
class Process:
    """One row of the process table. Times are monotonic milliseconds."""

    spec: ProcessSpec
    backoff: Backoff
    state: ProcessState = ProcessState.STARTING
    since_ms: int = 0
    pid: int = 0  # 0 while there is none, or while it is being born
    born_ms: int = 0
    restarts: int = 0
    wanted: bool = True
    again: bool = False  # a plan after the one it was started by wants it, too
    uncounted: bool = False  # its next start is no restart: it has ended for the sake of a plan, or been held
    last_error: str = ""
    due_ms: int | None = None  # next start
    kill_ms: int | None = None  # end of its grace
    kill_reason: str = ""

    @property
    def alive(self) -> bool:
        """True from the order to start until the confirmed end."""
        return self.state in LIVE


@dataclass(slots=True)
class Supervisor:
    """The process table of one container."""

    policy: BackoffPolicy
    grace_ms: int
    processes: dict[int, Process] = field(default_factory=dict)
    stopping: bool = False
    held: str = ""  # why no instance may run now
    _next_restart_ms: int = 0

    def want(self, now_ms: int, specs: Iterable[ProcessSpec], *, settled: bool = True) -> list[Effect]:
        """These processes are wanted: start new ones. Those left out are asked to end, and their rows go with them;
        but if it is not ``settled`` that they are left out, they stay. One that was left out and is wanted again is
        started when the process before it has ended."""
        effects: list[Effect] = []
        wanted = {spec.slot: spec for spec in specs}
        for slot, process in list(self.processes.items()):
            if slot not in wanted:
                process.again = False
                effects += self._left_out(process, now_ms) if settled else []
            elif not self.stopping:
                process.wanted = process.again = True
                if process.state is _S.DEAD:  # told that its place is another's, which a new plan may have changed
                    process.due_ms = now_ms
        for slot, spec in sorted(wanted.items()):
            if slot not in self.processes and not self.stopping:
                self.processes[slot] = process = Process(spec, Backoff(self.policy), since_ms=now_ms, born_ms=now_ms)
                if self._is_held(process):
                    process.state, process.due_ms, process.uncounted = _S.RESTARTING, now_ms, True
                    continue
                effects.append(Start(spec, 0))
        return effects + self.tick(now_ms)

    def born(self, now_ms: int, slot: int, pid: int) -> list[Effect]:
        """The process exists."""
        process = self.processes[slot]
        process.pid, process.born_ms = pid, now_ms
        # Asked to stop, left out, or held while it was being born.
        if not self.stopping:
            if self._is_held(process):
                return self.kill(slot, self.held)
            return [] if process.wanted else self._left_out(process, now_ms)
        return self._stop_those_whose_turn_it_is(now_ms)

    def phase(self, now_ms: int, slot: int, works: bool) -> None:
        """What its heartbeat slot says."""
        process = self.processes[slot]
        if works and process.state is _S.STARTING and process.pid:
            self._move(process, Event.WORKS, now_ms)
        elif not works and process.state is _S.RUNNING:
            self._move(process, Event.IDLES, now_ms)

    def ended(self, now_ms: int, slot: int, reason: str, replaced: bool = False, anew: bool = False) -> list[Effect]:
        """The process is gone for certain, or could not be started. ``anew``: it has ended so that another one begins
        with other settings, which is no fault. Nor is it one to have left by a plan that another has followed."""
        process = self.processes[slot]
        if not process.alive:
            return []
        anew, process.again = process.wanted and (anew or (replaced and process.again)), False
        if not anew:
            process.last_error = (process.kill_reason or reason)[:LAST_ERROR_CHARACTERS]
        process.pid, process.kill_ms, process.kill_reason = 0, None, ""
        if not process.wanted:
            self._move(process, Event.ENDED_UNWANTED, now_ms)
            self._forget_if_over(slot)
            return self._stop_those_whose_turn_it_is(now_ms) if self.stopping else []
        if anew:
            self._move(process, Event.ENDED, now_ms)
            process.due_ms, process.uncounted = now_ms, True
            return self.tick(now_ms)
        delay_ms = process.backoff.died(now_ms - process.born_ms)
        if replaced:
            self._move(process, Event.REPLACED, now_ms)
            process.due_ms = now_ms + self.policy.max_ms
            return [FindReplacement(slot)]
        self._move(process, Event.ENDED, now_ms)
        process.due_ms = now_ms + delay_ms
        return self.tick(now_ms)

    def kill(self, slot: int, reason: str) -> list[Effect]:
        """End a process that hangs; ``reason`` becomes its last error."""
        process = self.processes[slot]
        if not process.alive or not process.pid:
            return []
        process.kill_reason = reason[:LAST_ERROR_CHARACTERS]
        return [Kill(slot, process.pid)]

    def hold(self, now_ms: int, why: str) -> list[Effect]:
        """End all instances, and start none before this is called with an empty ``why``; then those that are due."""
        self.held = why
        if not why:
            return self.tick(now_ms)
        return [effect for slot, p in self.processes.items() if p.spec.is_instance for effect in self.kill(slot, why)]

    def stop(self, now_ms: int) -> list[Effect]:
        """Ask all to stop, the metrics manager when the others are gone. Idempotent.

        Who is still there after its grace is killed, so all are gone after twice the grace.
        """
        if self.stopping:
            return []
        self.stopping = True
        for process in self.processes.values():
            self._unwanted(process, now_ms)
        return self._stop_those_whose_turn_it_is(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        due = [p for p in self._startable() if p.due_ms is not None and p.due_ms <= now_ms]
        for process in sorted(due, key=lambda p: (p.due_ms or 0, p.spec.slot)):
            if now_ms < self._next_restart_ms:
                break
            self._next_restart_ms = now_ms + STAGGER_MS
            process.due_ms = None
            process.restarts += not process.uncounted
            process.uncounted = False
            process.born_ms = now_ms
            self._move(process, Event.DUE, now_ms)
            effects.append(Start(process.spec, process.restarts))
        for process in self.processes.values():
            if process.kill_ms is not None and process.kill_ms <= now_ms and process.pid:
                process.kill_ms = now_ms + KILL_AGAIN_MS
                effects.append(Kill(process.spec.slot, process.pid))
        return effects

    def next_deadline_ms(self) -> int | None:
        """When ``tick`` has something to do."""
        due = [max(p.due_ms, self._next_restart_ms) for p in self._startable() if p.due_ms is not None]
        kills = [p.kill_ms for p in self.processes.values() if p.kill_ms is not None]
        return min(due + kills, default=None)

    def all_ended(self) -> bool:
        """True when no process is alive."""
        return not any(process.alive for process in self.processes.values())

    def check(self) -> None:
        """Assert the invariants."""
        pids = [p.pid for p in self.processes.values() if p.pid]
        assert len(pids) == len(set(pids)), "two slots claim one process"
        for slot, process in self.processes.items():
            assert slot == process.spec.slot
            assert process.wanted or process.alive or self.stopping, "a row of what was left out has stayed"
            assert max(len(process.last_error), len(process.kill_reason)) <= LAST_ERROR_CHARACTERS, "a row is bounded"
            assert process.alive or process.pid == 0, "a process that ended has a pid"
            waits = process.state in (_S.RESTARTING, _S.DEAD)
            assert waits == (process.due_ms is not None), "due ⇔ waits for a start"
            assert process.wanted or process.due_ms is None, "an unwanted process waits for a start"
            assert process.kill_ms is None or process.alive

    def _startable(self) -> list[Process]:
        return [process for process in self.processes.values() if not self._is_held(process)]

    def _is_held(self, process: Process) -> bool:
        return bool(self.held) and process.spec.is_instance

    def _stop_those_whose_turn_it_is(self, now_ms: int) -> list[Effect]:
        alive = [process for process in self.processes.values() if process.alive]
        first = [process for process in alive if not process.spec.stops_last]
        effects: list[Effect] = []
        for process in first or alive:
            if process.pid and process.kill_ms is None:  # not asked yet
                process.kill_ms = now_ms + self.grace_ms
                effects.append(Terminate(process.spec.slot, process.pid))
        return effects

    def _left_out(self, process: Process, now_ms: int) -> list[Effect]:
        self._unwanted(process, now_ms)
        self._forget_if_over(process.spec.slot)
        if self.stopping or not process.pid or process.kill_ms is not None:
            return []
        process.kill_ms = now_ms + self.grace_ms
        return [Terminate(process.spec.slot, process.pid)]

    def _unwanted(self, process: Process, now_ms: int) -> None:
        process.wanted = False
        process.due_ms = None
        if (process.state, Event.UNWANTED) in TRANSITIONS:
            self._move(process, Event.UNWANTED, now_ms)

    def _forget_if_over(self, slot: int) -> None:
        """No row stays of what a plan has left out; when all stop, the rows say so."""
        process = self.processes[slot]
        if not self.stopping and not process.wanted and not process.alive:
            del self.processes[slot]

    def _move(self, process: Process, event: Event, now_ms: int) -> None:
        process.state = TRANSITIONS[process.state, event]
        process.since_ms = now_ms

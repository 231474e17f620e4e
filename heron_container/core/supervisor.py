"""Process table of a container: which processes run, and what happens when they start, end or hang.

The processes of a container follow from the packing plan and the configuration (``heron_runtime.model.containers``).
Each has a *slot*: its place among the container's heartbeat files, which it keeps as long as the container lives.

The supervisor receives facts (a process started, ended, reports that it works, time passed) and returns orders (start,
terminate, kill). It uses no process, clock or file itself. Each process moves through ``TRANSITIONS`` independently of
the others. Only restarts that are due at the same instant are started ``STAGGER_MS`` apart, so that the death of many
(of the zygote, for example) does not become one burst of work.

A process is *alive* from the order to start it until its end is confirmed. Only a process that is not alive is started,
so a slot never has two live processes. The first restart is immediate; then the delay doubles while the process keeps
dying young (``heron_runtime.model.backoff``).

A process that exits with EXIT_REPLACED was told that a newer incarnation has taken its place. It is *dead*: the shell
finds out whether the whole container was replaced. If it was not, the process is tried again after the longest delay.
If a plan has arrived since the process was started, it may have left because of the earlier plan, and is started at
once.

Instances may be *held*: living ones are killed and none is started until the hold ends. All other processes continue.

Memory: one row for each slot of the container's plan, because a pending restart is a field of its row. A row takes at
most ``ROW_BYTES``. There are at most as many effects as rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from heron_runtime.model.backoff import Backoff, BackoffPolicy
from heron_runtime.model.containers import INSTANCE, METRICS_MANAGER, processes_in
from heron_runtime.model.plan import PackingPlan
from heron_runtime.wire.container import LAST_ERROR_CHARACTERS, ProcessState

STAGGER_MS = 20
KILL_AGAIN_MS = 1000
ROW_BYTES = 4096 + 2 * 4 * LAST_ERROR_CHARACTERS  # an error and a reason to kill, four bytes per character at most


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Process that should run. ``kind`` is its package, ``name`` names its log file and title."""

    slot: int
    kind: str
    name: str
    component: str = ""
    task: int = 0

    @property
    def stops_last(self) -> bool:
        """True for the metrics manager, which takes the last reports of the others."""
        return self.kind == METRICS_MANAGER

    @property
    def is_instance(self) -> bool:
        """True for the process of a task."""
        return self.kind == INSTANCE


def build_process_specs(
    container: int, plan: PackingPlan, config: Mapping[str, Any], known: Mapping[int, int] | None = None
) -> list[ProcessSpec]:
    """Return the processes of a container with their slots.

    Args:
        container: Number of the container.
        plan: Packing plan of the topology.
        config: Configuration of the topology.
        known: Slots of running tasks, which keep them. New tasks get unused slots.

    Raises:
        KeyError: The topology has no such container.
    """
    slots = dict(known or {})
    specs: list[ProcessSpec] = []
    for rank, placed in enumerate(processes_in(container, plan, config)):
        slot = slots.setdefault(placed.task, max(slots.values(), default=1) + 1) if placed.task else rank
        specs.append(ProcessSpec(slot, *placed))
    return specs


class Event(Enum):
    """Event that changes the state of a process."""

    WORKS = "works"  # it reports that it does its work
    IDLES = "idles"  # it reports that it no longer does
    ENDED = "ended"
    ENDED_UNWANTED = "ended, not needed"  # it was asked to end
    REPLACED = "replaced"
    DUE = "due"  # its delay is over
    UNWANTED = "unwanted"  # it must not be started again


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
    """Return the transition table as text, one transition per line."""
    return "\n".join(f"{state:<10}  {event.value:<17}  → {after}" for (state, event), after in TRANSITIONS.items())


@dataclass(frozen=True, slots=True)
class Start:
    """Order to start a process now; ``on_started`` or ``on_exit`` answers it."""

    spec: ProcessSpec
    restarts: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Order to send SIGTERM to a process."""

    slot: int
    pid: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Order to send SIGKILL to a process."""

    slot: int
    pid: int


@dataclass(frozen=True, slots=True)
class FindReplacement:
    """Order to find out whether the whole container of a replaced process was replaced."""

    slot: int


Effect = Start | Terminate | Kill | FindReplacement


@dataclass(slots=True)
class Process:
    """Row of the process table. Times are monotonic milliseconds."""

    spec: ProcessSpec
    backoff: Backoff
    state: ProcessState = ProcessState.STARTING
    since_ms: int = 0
    pid: int = 0  # 0 without a process, or while it is being started
    born_ms: int = 0
    restarts: int = 0
    wanted: bool = True
    in_newer_plan: bool = False  # wanted also by a plan newer than the one it was started by
    uncounted: bool = False  # its next start does not count as a restart: it ended for a plan, or was held
    last_error: str = ""
    due_ms: int | None = None  # next start
    kill_ms: int | None = None  # end of its grace period
    kill_reason: str = ""

    @property
    def alive(self) -> bool:
        """True from the order to start until the confirmed end."""
        return self.state in LIVE


@dataclass(slots=True)
class Supervisor:
    """Process table of one container."""

    policy: BackoffPolicy
    grace_ms: int
    processes: dict[int, Process] = field(default_factory=dict)
    stopping: bool = False
    held: str = ""  # reason why no instance may run now
    _next_restart_ms: int = 0

    def want(self, now_ms: int, specs: Iterable[ProcessSpec], *, settled: bool = True) -> list[Effect]:
        """Set the wanted processes; start new ones and end the others.

        Args:
            now_ms: Monotonic time.
            specs: Processes that should run.
            settled: If False, a process missing in ``specs`` stays. Otherwise it is asked to end and its row is removed
                afterwards. One that is wanted again meanwhile is started when its predecessor has ended.
        """
        effects: list[Effect] = []
        wanted = {spec.slot: spec for spec in specs}
        for slot, process in list(self.processes.items()):
            if slot not in wanted:
                process.in_newer_plan = False
                effects += self._remove(process, now_ms) if settled else []
            elif not self.stopping:
                process.wanted = process.in_newer_plan = True
                if process.state is _S.DEAD:  # it was replaced, which a new plan may have changed
                    process.due_ms = now_ms
        for slot, spec in sorted(wanted.items()):
            if slot not in self.processes and not self.stopping:
                self.processes[slot] = process = Process(spec, Backoff(self.policy), since_ms=now_ms, born_ms=now_ms)
                if self._is_held(process):
                    process.state, process.due_ms, process.uncounted = _S.RESTARTING, now_ms, True
                    continue
                effects.append(Start(spec, 0))
        return effects + self.tick(now_ms)

    def on_started(self, now_ms: int, slot: int, pid: int) -> list[Effect]:
        """Record that the process of ``slot`` exists."""
        process = self.processes[slot]
        process.pid, process.born_ms = pid, now_ms
        # It may have been asked to stop, left out, or held while it was being started.
        if not self.stopping:
            if self._is_held(process):
                return self.kill(slot, self.held)
            return [] if process.wanted else self._remove(process, now_ms)
        return self._stop_next(now_ms)

    def set_phase(self, now_ms: int, slot: int, works: bool) -> None:
        """Record whether the heartbeat slot of a process reports that it works."""
        process = self.processes[slot]
        if works and process.state is _S.STARTING and process.pid:
            self._move(process, Event.WORKS, now_ms)
        elif not works and process.state is _S.RUNNING:
            self._move(process, Event.IDLES, now_ms)

    def on_exit(
        self, now_ms: int, slot: int, reason: str, replaced: bool = False, expected: bool = False
    ) -> list[Effect]:
        """Record the confirmed end of a process, or that it could not be started.

        Args:
            now_ms: Monotonic time.
            slot: Slot of the process.
            reason: Reason of the end, shown as its last error.
            replaced: The process exited with EXIT_REPLACED. It is started at once if a newer plan wants it.
            expected: The process ended only to be started with other settings. This is not a failure.
        """
        process = self.processes[slot]
        if not process.alive:
            return []
        expected, process.in_newer_plan = process.wanted and (expected or (replaced and process.in_newer_plan)), False
        if not expected:
            process.last_error = (process.kill_reason or reason)[:LAST_ERROR_CHARACTERS]
        process.pid, process.kill_ms, process.kill_reason = 0, None, ""
        if not process.wanted:
            self._move(process, Event.ENDED_UNWANTED, now_ms)
            self._drop_ended_row(slot)
            return self._stop_next(now_ms) if self.stopping else []
        if expected:
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
        """Kill a process that hangs; ``reason`` becomes its last error."""
        process = self.processes[slot]
        if not process.alive or not process.pid:
            return []
        process.kill_reason = reason[:LAST_ERROR_CHARACTERS]
        return [Kill(slot, process.pid)]

    def hold(self, now_ms: int, why: str) -> list[Effect]:
        """Kill all instances and start none until this is called with an empty ``why``."""
        self.held = why
        if not why:
            return self.tick(now_ms)
        return [effect for slot, p in self.processes.items() if p.spec.is_instance for effect in self.kill(slot, why)]

    def stop(self, now_ms: int) -> list[Effect]:
        """Ask all processes to stop, the metrics manager after the others. Idempotent.

        A process that remains after its grace period is killed, so all have ended after twice that period.
        """
        if self.stopping:
            return []
        self.stopping = True
        for process in self.processes.values():
            self._mark_unwanted(process, now_ms)
        return self._stop_next(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """Return the restarts and kills that are due."""
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
        """Return when ``tick`` has work to do, or None."""
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
            assert process.wanted or process.alive or self.stopping, "the row of a removed process has stayed"
            assert max(len(process.last_error), len(process.kill_reason)) <= LAST_ERROR_CHARACTERS, "row too large"
            assert process.alive or process.pid == 0, "a process that ended has a pid"
            waits = process.state in (_S.RESTARTING, _S.DEAD)
            assert waits == (process.due_ms is not None), "due ⇔ waits for a start"
            assert process.wanted or process.due_ms is None, "an unneeded process waits for a start"
            assert process.kill_ms is None or process.alive

    def _startable(self) -> list[Process]:
        return [process for process in self.processes.values() if not self._is_held(process)]

    def _is_held(self, process: Process) -> bool:
        return bool(self.held) and process.spec.is_instance

    def _stop_next(self, now_ms: int) -> list[Effect]:
        alive = [process for process in self.processes.values() if process.alive]
        first = [process for process in alive if not process.spec.stops_last]
        effects: list[Effect] = []
        for process in first or alive:
            if process.pid and process.kill_ms is None:  # not asked to stop yet
                process.kill_ms = now_ms + self.grace_ms
                effects.append(Terminate(process.spec.slot, process.pid))
        return effects

    def _remove(self, process: Process, now_ms: int) -> list[Effect]:
        self._mark_unwanted(process, now_ms)
        self._drop_ended_row(process.spec.slot)
        if self.stopping or not process.pid or process.kill_ms is not None:
            return []
        process.kill_ms = now_ms + self.grace_ms
        return [Terminate(process.spec.slot, process.pid)]

    def _mark_unwanted(self, process: Process, now_ms: int) -> None:
        process.wanted = False
        process.due_ms = None
        if (process.state, Event.UNWANTED) in TRANSITIONS:
            self._move(process, Event.UNWANTED, now_ms)

    def _drop_ended_row(self, slot: int) -> None:
        """Remove the row of an ended process that the plan left out, unless all are stopping."""
        process = self.processes[slot]
        if not self.stopping and not process.wanted and not process.alive:
            del self.processes[slot]

    def _move(self, process: Process, event: Event, now_ms: int) -> None:
        process.state = TRANSITIONS[process.state, event]
        process.since_ms = now_ms

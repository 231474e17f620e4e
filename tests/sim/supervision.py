"""Containers that supervise their processes under one seeded scheduler: the production supervisor and liveness.

A container's processes hang, compute without a heartbeat, die at once, take long to die, or are told that they were
replaced, because the scheduler has started a second container in the place of the first, which is still alive. The
container itself is stopped for a while, or its clock jumps ahead.

Invariants: a slot never has two living processes in one container; no process with heartbeats is killed, and none
before its limit has passed in real time; a hung process is killed in time; restarts are staggered, and become rare if a
process dies young; a replaced process is not restarted before the longest delay. At the end of the faults one container
is left, the newer one, and all of its processes work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from heron_container.core.liveness import Judgement, Liveness
from heron_container.core.supervisor import Effect, FindReplacement, Kill, ProcessSpec, Start, Supervisor, Terminate
from heron_runtime.model.backoff import BackoffPolicy
from heron_runtime.wire.container import ProcessState

from .simulation import Simulation, Violation

POLICY, GRACE_MS = BackoffPolicy(), 5_000
SUSPECT_MS, KILL_MS, ALWAYS_MS, TICK_MS = 10_000, 30_000, 120_000, 500
BEAT_MS = 1000
STAGGER_MS = 20  # between two restarts: from docs/explanation/internals.md, not from the code
MOST_STARTS = 25  # of one slot in a minute: 0, 0.1, 0.2, 0.4 … 10 s apart
LOOK_MS = 5_000  # interval of reads of the store, by a container and by processes told to leave
FAULTS_MS, REST_MS = 240_000, 400_000
SPECS = [
    ProcessSpec(slot, kind, f"p{slot}") for slot, kind in enumerate(("stream_manager", "metrics_manager", "i", "i"))
]


@dataclass
class Life:
    """Process. ``mode``: well, busy (computes without a heartbeat), hung, stuck (hung, and slow to die), crashes."""

    pid: int
    mode: str
    beat_ms: float  # last heartbeat
    changed_ms: float  # start of its current mode
    beats: int = 1
    cpu: float = 0.0
    jumps: int = 0  # of the container's clock since that heartbeat
    stops_ms: float = 0.0  # of the container since that heartbeat
    dying: bool = False


class SimContainer:
    """heron_container of one container: its shell around both cores. ``incarnation``: number of the container."""

    def __init__(self, place: Place, incarnation: int) -> None:
        self.place, self.world, self.incarnation = place, place.world, incarnation
        self.supervisor = Supervisor(POLICY, GRACE_MS)
        self.liveness = Liveness(SUSPECT_MS, KILL_MS, ALWAYS_MS, TICK_MS)
        self.living: dict[int, Life] = {}
        self.ordered: set[int] = set()
        self.ahead_ms = 0.0
        self.frozen_until_ms = 0.0
        self.restarts = 0
        self._last_tick_ms = self.clock()
        self._last_restart_ms = float("-inf")
        self._starts: dict[int, deque[float]] = {spec.slot: deque() for spec in SPECS}
        self._not_before: dict[int, int] = {}
        self._inbox: list[Callable[[], object]] = []

    def start(self) -> None:
        """Start all processes."""
        self.act(self.supervisor.want(self.clock(), SPECS))
        self.world.after(TICK_MS, self._tick)
        self.world.after(BEAT_MS, self._beat)
        self.world.after(LOOK_MS, self._look)

    def clock(self) -> int:
        """Return the time of its own clock."""
        return int(self.world.now_ms + self.ahead_ms)

    def freeze(self, milliseconds: float) -> None:
        """Stop the container for a while (SIGSTOP); events wait meanwhile."""
        self.frozen_until_ms = self.world.now_ms + milliseconds
        for life in self.living.values():
            life.stops_ms += milliseconds
        self.world.after(milliseconds, self._thaw)

    def jump(self, milliseconds: float) -> None:
        """Let its clock jump ahead."""
        self.ahead_ms += milliseconds
        for life in self.living.values():
            life.jumps += 1

    def die(self, slot: int, reason: str, replaced: bool = False) -> None:
        """Handle the end of a slot's process."""
        if self.living.pop(slot, None) is None and slot not in self.ordered:
            return
        self.ordered.discard(slot)
        self.liveness.forget(slot)

        def told() -> None:
            if replaced:
                self._not_before[slot] = self.clock() + POLICY.max_ms
            self.act(self.supervisor.on_exit(self.clock(), slot, reason, replaced))

        self._hear(told)

    def act(self, effects: list[Effect]) -> None:
        """Run effects of the supervisor."""
        for effect in effects:
            match effect:
                case Start(spec, restarts):
                    self._start(spec.slot, restarts)
                case Terminate(slot, pid):
                    self._end(slot, pid, self.world.between(1, 4_000), gently=True)
                case Kill(slot, pid):
                    stuck = self.living[slot].mode == "stuck" if slot in self.living else False
                    self._end(slot, pid, self.world.between(20_000, 40_000) if stuck else self.world.between(1, 20))
                case FindReplacement(_):
                    pass  # the reads of the store detect a newer container, if there is one
        self._check()
        deadline = self.supervisor.next_deadline_ms()
        if deadline is not None:
            self.world.after(max(0, deadline - self.clock()), self._due)

    def works(self) -> bool:
        """Return True if all processes exist and send heartbeats."""
        return not self.supervisor.stopping and all(
            process.state is ProcessState.RUNNING for process in self.supervisor.processes.values()
        )

    def _hear(self, told: Callable[[], object]) -> None:
        if self.world.now_ms < self.frozen_until_ms:
            self._inbox.append(told)
        else:
            told()

    def _thaw(self) -> None:
        if self.world.now_ms >= self.frozen_until_ms:
            waiting, self._inbox = self._inbox, []
            for told in waiting:
                told()

    def _due(self) -> None:
        if self.world.now_ms >= self.frozen_until_ms:
            deadline = self.supervisor.next_deadline_ms()
            if deadline is not None and deadline <= self.clock():
                self.act(self.supervisor.tick(self.clock()))

    def _start(self, slot: int, restarts: int) -> None:
        world, now = self.world, self.world.now_ms
        if slot in self.living or slot in self.ordered:
            raise Violation(f"slot {slot} of container {self.incarnation} gets a second living process")
        if restarts:
            self.restarts += 1
            if self.clock() - self._last_restart_ms < STAGGER_MS:
                raise Violation("restarts are not staggered")
            self._last_restart_ms = self.clock()
        if self.clock() < self._not_before.get(slot, 0):
            raise Violation(f"slot {slot} was told that it is replaced, and is started again at once")
        starts = self._starts[slot]
        starts.append(now)
        while starts[0] < now - 60_000:
            starts.popleft()
        if len(starts) > MOST_STARTS:
            raise Violation(f"slot {slot} was started {len(starts)} times in a minute")
        self.ordered.add(slot)
        world.after(world.between(10, 300), lambda: self._hear(lambda: self._born(slot)))

    def _born(self, slot: int) -> None:
        world = self.world
        if world.chance(0.03):
            self.die(slot, "cannot be started")
            return
        self.ordered.discard(slot)
        life = self.living[slot] = Life(next(self.place.pids), self.place.mode(slot), world.now_ms, world.now_ms)
        self.liveness.watch(slot)
        self.act(self.supervisor.on_started(self.clock(), slot, life.pid))
        if life.mode == "crashes":
            self._end(slot, life.pid, world.between(1, 50))

    def _end(self, slot: int, pid: int, after_ms: float, gently: bool = False) -> None:
        life = self.living.get(slot)
        if life is None:
            return  # it has ended, and the container does not know yet
        if life.pid != pid:
            raise Violation(f"a signal for process {pid}, which is not slot {slot}'s")
        if life.dying or (gently and life.mode in ("hung", "stuck")):
            return
        life.dying = not gently
        self.world.after(after_ms, lambda: self.die(slot, "gone") if self.living.get(slot) is life else None)

    def _beat(self) -> None:
        for slot, life in list(self.living.items()):
            life.cpu += 0.0 if life.mode in ("hung", "stuck") else 0.4
            if life.mode == "well":
                life.beats, life.beat_ms, life.jumps = life.beats + 1, self.world.now_ms, 0
                life.stops_ms = max(0.0, self.frozen_until_ms - self.world.now_ms)
                if self.incarnation < self.place.newest and self.place.hears(self) and self.world.chance(0.3):
                    self.die(slot, "exit code 75", replaced=True)
        self.world.after(BEAT_MS, self._beat)

    def _tick(self) -> None:
        self.world.after(TICK_MS, self._tick)
        if self.world.now_ms < self.frozen_until_ms:
            return
        passed, self._last_tick_ms = self.clock() - self._last_tick_ms, self.clock()
        for slot, life in self.living.items():
            self.supervisor.set_phase(self.clock(), slot, life.mode == "well" and life.beats > 1)
        cpu = {slot: self.living[slot].cpu for slot in self.liveness.silent_slots() if slot in self.living}
        for silence in self.liveness.tick(passed, {slot: life.beats for slot, life in self.living.items()}, cpu):
            if silence.judgement is not Judgement.SUSPECT:
                self._condemned(silence.slot, silence.judgement)
                self.act(self.supervisor.kill(silence.slot, silence.reason()))
        self.liveness.check()
        self._watched_well()
        self.act(self.supervisor.tick(self.clock()))

    def _condemned(self, slot: int, judgement: Judgement) -> None:
        life = self.living[slot]
        silent_ms = self.world.now_ms - life.beat_ms
        computes = life.mode == "busy" and self.world.now_ms - life.changed_ms > 2 * BEAT_MS  # and this was noticed
        limit_ms = ALWAYS_MS if computes or judgement is Judgement.SILENT else KILL_MS
        if life.mode == "well" and silent_ms < 2 * BEAT_MS:
            raise Violation(f"slot {slot} beats and is condemned")
        if silent_ms < limit_ms - 2 * TICK_MS * (life.jumps + 1) - TICK_MS:
            raise Violation(f"slot {slot} ({life.mode}) is condemned after {silent_ms:.0f} ms of silence")

    def _watched_well(self) -> None:
        """Check that silent processes were killed in time: the limit, the time to read CPU usage, and the stagger."""
        for slot, life in self.living.items():
            limit_ms = (ALWAYS_MS if life.mode == "busy" else KILL_MS) + 10_000 + life.stops_ms
            if not life.dying and self.world.now_ms - max(life.beat_ms, life.changed_ms) > limit_ms:
                raise Violation(f"slot {slot} ({life.mode}) is silent for {limit_ms:.0f} ms and nobody ends it")

    def _look(self) -> None:
        self.world.after(LOOK_MS, self._look)
        frozen = self.world.now_ms < self.frozen_until_ms
        if self.incarnation < self.place.newest and self.place.hears(self) and not frozen:
            self.act(self.supervisor.stop(self.clock()))

    def _check(self) -> None:
        try:
            self.supervisor.check()
        except AssertionError as error:
            raise Violation(f"the supervisor is not sound: {error}") from error


class Place:
    """Place in a packing plan, and the containers that claim it: the newest one is right."""

    def __init__(self, seed: int) -> None:
        self.world = Simulation(seed)
        self.pids = iter(range(100, 1_000_000))
        self.containers: list[SimContainer] = []
        self.healed = False
        self._deaf_until_ms: dict[int, float] = {}
        self._crashing = self.world.rng.choice((0, 2, 3, None, None))  # a slot whose processes all die young

    @property
    def newest(self) -> int:
        """Return the incarnation that the plan names."""
        return len(self.containers)

    def mode(self, slot: int) -> str:
        """Return the mode of a process that starts now."""
        if slot == self._crashing and not self.healed:
            return "crashes"
        modes = ("well", "well", "well", "well", "hung", "busy", "stuck", "crashes")
        return "well" if self.healed else self.world.rng.choice(modes)

    def hears(self, container: SimContainer) -> bool:
        """Return True if processes of this container can reach one that knows the newest container."""
        return self.world.now_ms >= self._deaf_until_ms.get(container.incarnation, 0.0)

    def another(self) -> None:
        """Start another container in this place; the previous one may be cut off for a while."""
        if self.containers:
            self._deaf_until_ms[self.newest] = self.world.now_ms + self.world.between(0, 60_000)
        container = SimContainer(self, self.newest + 1)
        self.containers.append(container)
        container.start()

    def strike(self) -> None:
        """Inject one fault, and schedule the next one."""
        world = self.world
        if world.now_ms >= FAULTS_MS:
            return
        container = world.rng.choice(self.containers)
        kind = world.rng.choice(("freeze", "jump", "kill", "hang", "hang", "another"))
        if kind == "freeze":
            container.freeze(world.rng.choice((700.0, 5_000.0, 60_000.0)))
        elif kind == "jump":
            container.jump(world.rng.choice((1_000.0, 60_000.0, 3_600_000.0)))
        elif kind == "another" and self.newest < 3:
            self.another()
        elif container.living and kind in ("kill", "hang"):
            slot = world.rng.choice(sorted(container.living))
            if kind == "kill":
                container.die(slot, "killed")
            else:
                life = container.living[slot]
                life.mode, life.changed_ms = world.rng.choice(("hung", "busy", "stuck")), world.now_ms
        world.after(world.between(500, 20_000), self.strike)


def run(seed: int) -> tuple[int, int, str]:
    """Run one schedule; return the numbers of containers and restarts, and the trace's hash. Raises Violation."""
    place = Place(seed)
    place.another()
    place.world.after(1_000, place.strike)
    place.world.run_until(FAULTS_MS)
    place.healed = True
    place.world.run_until(FAULTS_MS + REST_MS)
    for container in place.containers[:-1]:
        if container.living or container.ordered or not container.supervisor.stopping:
            raise Violation(
                f"container {container.incarnation} is still there after {place.newest} has taken its place"
            )
    if not place.containers[-1].works():
        states = {p.spec.name: str(p.state) for p in place.containers[-1].supervisor.processes.values()}
        raise Violation(f"after {REST_MS / 1000:.0f} quiet seconds: {states}")
    return place.newest, sum(container.restarts for container in place.containers), f"{place.world.steps}"

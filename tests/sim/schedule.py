"""One schedule: a random program under faults for a while, after which everything must come to rest.

Phase one (safety): faults occur, and every invariant is checked after every step. Phase two (liveness): faults end,
user code behaves, and within ``REST_MS`` of simulated time every root is settled, every message acked, every queue
empty, every spout free, and one master leads whose plan all follow.

The remainders of the seed select the kind of simulation: without faults, with a key for two tasks, with messages as
bytes that may be garbled, with a separate clock for each process, with a swarm of few kinds of faults at an extreme
rate.
"""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heron_runtime.model.topology import GroupingKind, TopologyState

from .cluster import UPLOAD_WINDOW, Cluster
from .faults import Faults
from .programs import random_program
from .simulation import Simulation, Violation

REST_MS = 180_000.0  # the heaviest program: 160 messages of 70 tuples each, 30 ms a tuple, replays
STEP_MS = 250.0
QUIET_MS = 3000.0
FAULT_FREE = 8  # one schedule in this many has no faults
WORLDS = 4  # number of variants, by remainder: none, two tasks share a key, messages are bytes, clocks differ
PARTIAL_KEY, BYTES, CLOCKS = 1, 2, 3
MOST_SKEW_MS = 60_000
SWARM = 5  # one schedule in this many has only a few kinds of faults
# Length of a schedule. Shorter schedules have fewer messages, and a shorter time of faults at a higher rate. Long and
# short seeds were so before tiny ones existed, so the seeds of corpus.txt keep their meaning.
SIZES = 21
LONG, SHORT = (14, 18), (3, 5, 9, 19)  # out of this many; the others are tiny


@dataclass(frozen=True)
class Size:
    """Reduction of a schedule relative to a long one. ``spread``: factor of the time between two messages."""

    messages: int = 1
    spread: int = 1
    faults: int = 1


SHORTER, TINY = Size(4, 4, 2), Size(4, 1, 8)


def size_of(seed: int) -> Size:
    """Return the size, drawn by a remainder of the seed that is independent of the kind of simulation."""
    rest = seed % SIZES
    return Size() if rest in LONG else SHORTER if rest in SHORT else TINY


@dataclass(frozen=True)
class Cut:
    """Reduced schedule: the numbers of the active faults, messages for each spout task; None: all."""

    faults: tuple[int, ...] | None = None
    messages: int | None = None


WHOLE = Cut()


@dataclass(frozen=True)
class Result:
    """Result of a schedule."""

    seed: int
    trace_hash: str
    simulated_ms: float
    steps: int
    roots: int
    acked: int
    failed: int
    reached: frozenset[str]  # events in it that invariants are about


def replay_command(seed: int) -> str:
    """Return the command that replays a schedule."""
    return f"python -m tests.sim --seed {seed} --verbose"


def make(seed: int, listener: Callable[[str], None] | None = None, cut: Cut = WHOLE) -> tuple[Cluster, float]:
    """Return the cluster of a seed, and how long its faults last (0: none)."""
    world = Simulation(seed, listener)
    rng = world.rng
    keyed = GroupingKind.PARTIAL_KEY if seed % WORLDS == PARTIAL_KEY else GroupingKind.FIELDS
    program = random_program(rng, rng.choice((1, 2, 2, 3)), keyed)
    size = size_of(seed)
    program.messages //= size.messages
    program.gap_ms *= size.spread
    if cut.messages is not None:
        program.messages = min(program.messages, cut.messages)
    cluster = Cluster(world, program, masters=rng.choice((1, 2)))
    cluster.network.encodes = seed % WORLDS == BYTES
    world.skew_ms = MOST_SKEW_MS if seed % WORLDS == CLOCKS else 0
    if seed % FAULT_FREE == 0:
        _slow_down(cluster)
        return cluster, 0.0
    fault_ms, rate_ms = rng.choice((2000.0, 4000.0, 8000.0)), rng.choice((150.0, 500.0, 1500.0))
    fault_ms, rate_ms = fault_ms / size.faults, rate_ms / size.faults
    if seed % SWARM == SWARM - 1:
        cluster.swarm = rng.choice((1, 1, 2, 3, 4))
        rate_ms = rng.choice((fault_ms / 200, fault_ms / 50, fault_ms / 2))
    Faults(cluster, fault_ms, rate_ms, cut.faults).start()
    return cluster, fault_ms


def _slow_down(cluster: Cluster) -> None:
    """Possibly slow one bolt down until faults end, so that backpressure lasts."""
    bolts = [task for task, instance in cluster.instances.items() if not instance.is_spout]
    task, slow_ms = cluster.world.rng.choice(bolts), cluster.world.rng.choice((0.0, 10.0, 50.0))
    if slow_ms:
        cluster.program.slow_ms[task] = slow_ms


@contextmanager
def watched() -> Iterator[None]:
    """Convert failed assertions of a core to Violation while a schedule runs."""
    logging.disable(logging.CRITICAL)  # user code raises on purpose, and the executors log it
    gc.disable()  # the simulation is one heap of cycles; collections took a fifth of the time
    try:
        yield
    except AssertionError as broken:
        raise Violation(f"an invariant of a core: {_assertion(broken)}") from broken
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)


def run(seed: int, listener: Callable[[str], None] | None = None, cut: Cut = WHOLE) -> Result:
    """Run one schedule. Raises Violation."""
    with watched():
        cluster, fault_ms = make(seed, listener, cut)
        world = cluster.world
        cluster.start()
        world.run_until(fault_ms or QUIET_MS)
        cluster.heal()
        if fault_ms:
            cluster.checkers.fault()
        come_to_rest(cluster)
        oracle = cluster.oracle
        return Result(
            seed, world.trace_hash(), world.now_ms, world.steps, len(oracle.roots), oracle.acked, oracle.failed,
            reached(cluster),
        )  # fmt: skip


def _assertion(broken: AssertionError) -> str:
    """Return the failed assertion and its file."""
    where = traceback.extract_tb(broken.__traceback__)[-1]
    return f"{where.line} ({Path(where.filename).name}:{where.lineno}) {broken}".rstrip()


#: Events that must happen sometimes; otherwise their invariants are never exercised.
SOMETIMES: dict[str, Callable[[Cluster], bool]] = {
    "a master after another": lambda c: len(c.checkers._leaders) > 1,
    "a spout is paused": lambda c: any(i.is_spout and i.pause_changes for i in c.instances.values()),
    "credit is renewed": lambda c: any(i._outgoing._limit > UPLOAD_WINDOW for i in c.instances.values() if i.alive),
    "roots expire": lambda c: any(m.core.trackers.expired for m in c.stream_managers.values()),
    "acks come late": lambda c: any(m.core.trackers.late for m in c.stream_managers.values()),
    "tuples are lost with a link": lambda c: any(i.lost for i in c.instances.values()),
    "a process lives again": lambda c: any(p.life > 1 for p in c.processes()),
    "a key has two tasks": lambda c: any(len(tasks) > 1 for tasks in c.oracle._owners.values()),
    "a packet cannot be decoded": lambda c: c.network.undecodable > 0,
    "clocks differ by more than 30 s": lambda c: _apart([p.skew_ms for p in c.processes()]) > 30_000,
    "a swarm of one or two kinds": lambda c: c.swarm in (1, 2),
}


#: Events of few schedules. Seeds that combine one with another event are worth keeping (``corpus.py``).
RARELY: dict[str, Callable[[Cluster], bool]] = {
    "a third master": lambda c: len(c.checkers._leaders) > 2,
    "a fifth life": lambda c: any(p.life > 4 for p in c.processes()),
    "user code ends its task": lambda c: bool(c.oracle.stopped_tasks),
    "a packet is dropped or repeated": lambda c: c.checkers.tampered,
    "a hundred tuples are lost on the way": lambda c: c.network.lost_tuples > 100,
    "the most roots are pending": lambda c: c.checkers.most_pending >= c.checkers.max_pending,
}


def _apart(skews: list[int]) -> int:
    return max(skews) - min(skews)


def reached(cluster: Cluster) -> frozenset[str]:
    """Return the events of ``SOMETIMES`` and ``RARELY`` in this cluster.

    Events that processes count are those of the last life of each process.
    """
    return frozenset(name for name, seen in (SOMETIMES | RARELY).items() if seen(cluster))


def come_to_rest(cluster: Cluster, within_ms: float = REST_MS) -> None:
    """Run until everything is at rest. Raises Violation, naming what does not come to rest."""
    world = cluster.world
    limit = world.now_ms + within_ms
    reasons = ["it has not begun"]
    while reasons and world.now_ms < limit:
        world.run_until(world.now_ms + STEP_MS)
        reasons = cluster.unsettled()
        if "no plan, or the topology is not active" in reasons:
            cluster.ask(TopologyState.RUNNING)
    if reasons:
        story = next((root.story for root in cluster.oracle.open_roots()), [])
        raise Violation(f"after {within_ms / 1000:.0f} quiet seconds: {'; '.join(reasons[:6])}", story)
    cluster.checkers.at_rest()


def failure_text(seed: int, violation: Violation) -> str:
    """Return the text to print when a schedule breaks an invariant."""
    lines = [f"seed {seed}: {violation.law}", f"replay: {replay_command(seed)}"]
    if violation.story:
        lines += ["the story of the root:", *violation.story[-40:]]
    return "\n".join(lines)

"""Random topologies whose user code behaves like that of users and reports to the oracle.

A program is a directed acyclic graph of one or two spouts and up to five bolts: several streams, all groupings,
diamonds, several anchors, tuples held and acked later, unanchored emits, bolts that fail tuples or raise, spout tuples
without an id. ``Habits`` are the probabilities of each. Once faults have ended (``Program.calm``), user code no longer
fails, raises or holds tuples, so that everything can complete.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heron_runtime.model.dataflow import FailKind, FailReason
from heron_runtime.model.ids import DEFAULT_STREAM
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
)
from heronry.api.component import BasicBolt, BatchBolt, Bolt, Spout
from heronry.api.tuples import Tuple
from tests.support.definitions import round_robin_packing

from .oracle import Copy
from .simulation import Violation
from .sources import Source

if TYPE_CHECKING:
    from .instances import SimInstance

FIELDS = ("uid", "key", "pad")
KIB = 1024


class Boom(Exception):
    """Exception raised by user code."""


@dataclass
class Habits:
    """Habits of one bolt component: probabilities for each tuple."""

    kind: str = "bolt"  # bolt, basic, batch
    hold: float = 0.0
    fail: float = 0.0
    boom: float = 0.0
    several_anchors: float = 0.0
    unanchored: float = 0.0
    task_ids: float = 0.0
    cost_ms: float = 0.0
    fan: tuple[int, ...] = (1,)  # choices for the number of tuples it emits to a stream


@dataclass
class Program:
    """Topology with the placement of its tasks and the habits of its user code."""

    topology: TopologyDefinition
    packing: PackingPlan
    habits: dict[str, Habits]
    messages: int  # for each spout task
    gap_ms: float
    pad_bytes: int
    untracked: float = 0.0
    eager: float = 0.0  # how often a spout emits in ``ack`` and ``fail``
    calm: bool = False
    slow_ms: dict[int, float] = field(default_factory=dict)  # extra cost for each tuple, by task
    hold_tasks: set[int] = field(default_factory=set)
    fail_next: dict[int, int] = field(default_factory=dict)


# User code.


class SimSpout(Spout):
    """Spout that emits messages of its source, which outlives the process like a file or a queue."""

    def __init__(self, node: SimInstance, source: Source) -> None:
        self.node = node
        self.source = source

    def next_tuple(self) -> None:
        """Emit one to three messages."""
        self.node.cluster.checkers.next_tuple_called(self.node)
        self._emit_some()

    def _emit_some(self) -> None:
        world = self.node.world
        for _ in range(world.rng.choice((1, 1, 3))):
            message = self.source.take(world.now_ms)
            if message is None:
                return
            self._emit(message)

    def _emit(self, message: int) -> None:
        node, program = self.node, self.node.cluster.program
        rng, oracle = node.world.rng, node.cluster.oracle
        spec = node.cluster.topology.component(node.component_name)
        out = rng.choice(spec.outputs)
        direct = node.cluster.pick_reader(rng, spec.name, out)
        tracked = rng.random() >= program.untracked
        emission = oracle.emit(node.task, node.life, (spec.name, out.name), _key(rng), direct=direct)
        tup_id = None
        if tracked:
            tup_id = oracle.open_root(emission).uid
            self.source.opened[tup_id] = message
        else:
            self.source.finished.add(message)
        node.emitted_copies += emission.copies
        row = (emission.uid, emission.key, "x" * program.pad_bytes)
        self.emit(row, tup_id, out.name, direct, rng.random() < 0.05)

    def ack(self, tup_id: Any) -> None:
        """Mark the message as done."""
        node = self.node
        if node.cluster.tracked:
            node.cluster.oracle.spout_acked(tup_id, node.task, node.life)
        else:
            node.cluster.oracle.roots[tup_id].settled = "acked at once"
        self.source.finished.add(self.source.opened.pop(tup_id))
        self._perhaps_emit()

    def fail(self, tup_id: Any, reason: FailReason) -> None:
        """Return the message to the source to be sent again."""
        node = self.node
        root = node.cluster.oracle.spout_failed(tup_id, node.task, node.life, reason)
        node.cluster.checkers.root_failed(node, root, reason)
        self.source.again(self.source.opened.pop(tup_id))
        self._perhaps_emit()

    def _perhaps_emit(self) -> None:
        eager = self.node.cluster.program.eager
        if eager and self.node.world.chance(eager):
            self._emit_some()


class _Worker:
    """Common part of the three kinds of bolts. The bolt provides ``emit`` and similar methods."""

    node: SimInstance
    habits: Habits
    emit: Any

    def prepare(self, node: SimInstance, habits: Habits) -> None:
        """Store the instance and the habits of the component."""
        self.node = node
        self.habits = habits
        self.held: list[tuple[Tuple, Copy]] = []

    def take(self, tup: Tuple) -> Copy:
        """Record a received tuple."""
        node = self.node
        program = node.cluster.program
        node.processed += 1
        rng = node.world.rng
        node.spent_ms += program.slow_ms.get(node.task, 0.0)
        if self.habits.cost_ms and not program.calm:
            node.spent_ms += rng.uniform(0, self.habits.cost_ms)
        return node.cluster.oracle.received(node.task, node.life, tup.task, tup.values[0])

    def emit_all(self, tup: Tuple, copy: Copy, always_anchored: bool) -> None:
        """Emit according to the habits, to each stream that has readers."""
        node, habits = self.node, self.habits
        cluster, rng = node.cluster, node.world.rng
        spec = cluster.topology.component(node.component_name)
        for out in spec.outputs:
            for _ in range(rng.choice(habits.fan)):
                anchors = [(tup, copy)]
                if not always_anchored and rng.random() < habits.unanchored:
                    anchors = []
                elif not always_anchored and rng.random() < habits.several_anchors:
                    anchors = [*rng.sample(self.held, min(len(self.held), 2)), (tup, copy)]
                self._emit(spec.name, out, anchors, always_anchored, rng)

    def _emit(
        self, component: str, out: StreamSchema, anchors: list[tuple[Tuple, Copy]], implicit: bool, rng: random.Random
    ) -> None:
        node, cluster = self.node, self.node.cluster
        direct = cluster.pick_reader(rng, component, out)
        emission = cluster.oracle.emit(
            node.task, node.life, (component, out.name), _key(rng), [c for _, c in anchors], direct
        )
        node.emitted_copies += emission.copies
        row = (emission.uid, emission.key, "x" * cluster.program.pad_bytes)
        tuples = None if implicit or not anchors else [t for t, _ in anchors]
        if tuples is not None and len(tuples) == 1 and rng.random() < 0.5:
            tuples = tuples[0]
        ids = self.emit(row, out.name, tuples, direct, rng.random() < self.habits.task_ids)
        if ids is not None and len(ids) != emission.copies:
            raise Violation(f"emit says that tuple {emission.uid} goes to tasks {ids}; it has {emission.copies} copies")

    def may_fail(self) -> bool:
        """Return True if this tuple is to fail."""
        program, task = self.node.cluster.program, self.node.task
        if program.fail_next.get(task, 0):
            program.fail_next[task] -= 1
            return True
        return not program.calm and self.node.world.chance(self.habits.fail)

    def may_raise(self) -> bool:
        """Return True if user code is to raise now."""
        return not self.node.cluster.program.calm and self.node.world.chance(self.habits.boom)

    def may_hold(self) -> bool:
        """Return True if this tuple is to be held."""
        program = self.node.cluster.program
        return self.node.task in program.hold_tasks or (not program.calm and self.node.world.chance(self.habits.hold))

    @property
    def oracle(self) -> Any:
        """Return the oracle."""
        return self.node.cluster.oracle


class SimBolt(_Worker, Bolt):
    """Bolt that anchors, acks, fails and holds explicitly."""

    def process(self, tup: Tuple) -> None:
        """Process one tuple."""
        copy = self.take(tup)
        if self.may_raise():
            self.oracle.failed_copy(copy, FailKind.EXCEPTION)
            raise Boom
        self.emit_all(tup, copy, always_anchored=False)
        if self.may_fail():
            self.oracle.failed_copy(copy, FailKind.FAILED)
            self.fail(tup, "not today")
        elif self.may_hold():
            self.held.append((tup, copy))
            if len(self.held) > 5 and self.node.task not in self.node.cluster.program.hold_tasks:
                self._release(1)
        else:
            self._ack(tup, copy)
            if self.node.world.chance(0.02):
                self.ack(tup)  # a second ack is ignored

    def process_tick(self, tup: Tuple) -> None:
        """Ack held tuples eventually."""
        if self.node.task not in self.node.cluster.program.hold_tasks:
            self._release(len(self.held))

    def _release(self, count: int) -> None:
        for tup, copy in self.held[:count]:
            self._ack(tup, copy)
        del self.held[:count]

    def _ack(self, tup: Tuple, copy: Copy) -> None:
        self.oracle.acked_copy(copy)
        self.ack(tup)


class SimBasicBolt(_Worker, BasicBolt):
    """Bolt whose tuples the executor anchors and acks."""

    def process(self, tup: Tuple) -> None:
        """Process one tuple."""
        copy = self.take(tup)
        self.emit_all(tup, copy, always_anchored=True)
        if self.may_fail() or self.may_raise():
            self.oracle.failed_copy(copy, FailKind.EXCEPTION)
            raise Boom
        self.oracle.acked_copy(copy)


class SimBatchBolt(_Worker, BatchBolt):
    """Bolt that processes batches."""

    def process_batch(self, tuples: Iterable[Tuple]) -> None:
        """Fail some tuples, ack some explicitly, and leave the rest to the executor."""
        copies: list[Copy] = []
        for tup in tuples:
            copy = self.take(tup)
            copies.append(copy)
            self.emit_all(tup, copy, always_anchored=False)
            if self.may_fail():
                self.oracle.failed_copy(copy, FailKind.FAILED)
                self.fail(tup, "not today")
            elif self.node.world.chance(0.3):
                self.oracle.acked_copy(copy)
                self.ack(tup)
        if self.may_raise():
            for copy in copies:
                self.oracle.failed_copy(copy, FailKind.EXCEPTION)
            raise Boom
        for copy in copies:
            self.oracle.acked_copy(copy)


KINDS: dict[str, Any] = {"bolt": SimBolt, "basic": SimBasicBolt, "batch": SimBatchBolt}


def make_component(node: SimInstance) -> Any:
    """Return new user code for a new life of an instance."""
    cluster = node.cluster
    if node.is_spout:
        return SimSpout(node, cluster.sources[node.task])
    habits = cluster.program.habits[node.component_name]
    bolt = KINDS[habits.kind]()
    bolt.prepare(node, habits)
    return bolt


def _key(rng: random.Random) -> str:
    return f"k{rng.randrange(12)}"


# Random programs.

GROUPINGS = (
    GroupingKind.SHUFFLE, GroupingKind.SHUFFLE, GroupingKind.FIELDS, GroupingKind.FIELDS, GroupingKind.ALL,
    GroupingKind.GLOBAL, GroupingKind.LOCAL_OR_SHUFFLE, GroupingKind.NONE,
)  # fmt: skip


def random_program(rng: random.Random, containers: int, keyed: GroupingKind = GroupingKind.FIELDS) -> Program:
    """Return a topology of moderate size with at most one large fan-out. ``keyed``: its grouping by key."""
    spouts, bolts = rng.choice((1, 1, 2)), rng.randint(1, 4)
    components: list[ComponentSpec] = []
    habits: dict[str, Habits] = {}
    heavy = rng.random() < 0.3  # tuples so large that high-water marks and credit matter
    for number in range(spouts):
        outputs = _outputs(rng)
        components.append(ComponentSpec(f"s{number}", ComponentKind.SPOUT, "sim:Spout", rng.choice((1, 1, 2)), outputs))
    for number in range(bolts):
        name = f"b{number}"
        last = number == bolts - 1
        inputs = _inputs(rng, components, keyed, everything=last)
        outputs = () if last and rng.random() < 0.8 else _outputs(rng)
        kind = rng.choice(("bolt", "bolt", "basic", "batch"))
        config = {"topology.tick.tuple.freq.ms": rng.choice((150, 400))} if kind == "bolt" else {}
        components.append(
            ComponentSpec(name, ComponentKind.BOLT, "sim:Bolt", rng.choice((1, 2, 2, 3)), outputs, inputs, config)
        )
        habits[name] = _habits(rng, kind, heavy)
    config: dict[str, Any] = {
        "topology.reliability.mode": rng.choice(("ATLEAST_ONCE",) * 5 + ("ATMOST_ONCE",)),
        "topology.message.timeout.secs": rng.choice((2, 3, 5)),
        "topology.max.spout.pending": rng.choice((3, 20, 1000)),
        "topology.flush.interval.ms": rng.choice((1, 5, 20)),
        "topology.backpressure.high.watermark.bytes": 64 * KIB,
        "topology.backpressure.low.watermark.bytes": rng.choice((0, 16 * KIB, 32 * KIB)),
        "topology.backpressure.scope": rng.choice(("upstream", "topology")),
        "topology.instance.data.in.capacity.bytes": rng.choice((64, 128)) * KIB,
        "topology.instance.data.out.capacity.bytes": 64 * KIB,
    }
    topology = TopologyDefinition("sim", "sim-1", tuple(components), config)
    return Program(
        topology,
        pack(topology, containers, rng),
        habits,
        messages=rng.choice((20, 40, 80)),
        gap_ms=rng.choice((1.0, 30.0, 80.0)),
        pad_bytes=rng.choice((2000, 6000)) if heavy else rng.choice((1, 50)),
        untracked=rng.choice((0.0, 0.0, 0.2)),
        eager=rng.choice((0.0, 0.3, 1.0)),
    )


def _outputs(rng: random.Random) -> tuple[StreamSchema, ...]:
    outputs = [StreamSchema(DEFAULT_STREAM, FIELDS)]
    if rng.random() < 0.3:
        outputs.append(StreamSchema("more", FIELDS))
    if rng.random() < 0.2:
        outputs.append(StreamSchema("direct", FIELDS, direct=True))
    return tuple(outputs)


def _inputs(
    rng: random.Random, before: list[ComponentSpec], keyed: GroupingKind, everything: bool
) -> tuple[InputSpec, ...]:
    """Return some streams of the components so far; the last bolt reads every direct stream, so each has a reader."""
    offered = [(spec.name, out) for spec in before for out in spec.outputs]
    chosen = rng.sample(offered, rng.randint(1, min(3, len(offered))))
    if everything:
        chosen += [one for one in offered if (one[1].direct or one[1].name == DEFAULT_STREAM) and one not in chosen]
    return tuple(InputSpec(name, out.name, _grouping(rng, out, keyed)) for name, out in chosen)


def _grouping(rng: random.Random, out: StreamSchema, keyed: GroupingKind) -> GroupingSpec:
    if out.direct:
        return GroupingSpec(GroupingKind.DIRECT)
    kind = rng.choice(GROUPINGS)
    return GroupingSpec(keyed, ("key",)) if kind is GroupingKind.FIELDS else GroupingSpec(kind)


def _habits(rng: random.Random, kind: str, heavy: bool) -> Habits:
    return Habits(
        kind,
        hold=rng.choice((0.0, 0.3, 0.7)),
        fail=rng.choice((0.0, 0.0, 0.05)),
        boom=rng.choice((0.0, 0.0, 0.01 if kind == "bolt" else 0.04)),
        several_anchors=rng.choice((0.0, 0.5)),
        unanchored=rng.choice((0.0, 0.2)),
        task_ids=rng.choice((0.0, 0.2)),
        cost_ms=rng.choice((0.0, 2.0, 30.0 if heavy else 5.0)),
        fan=rng.choice(((1,), (0, 1, 1), (1, 1, 2))),
    )


def pack(topology: TopologyDefinition, containers: int, rng: random.Random | None = None) -> PackingPlan:
    """Number tasks in order of the components, and assign them to containers in turn or at random."""
    return round_robin_packing(topology, containers, rng.shuffle if rng is not None else None)

"""Test harness for stream manager cores: connects several over a simulated, order-preserving network.

The network loses what it carries when a link breaks. The test chooses the next event; every core is checked after it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.ids import PROTOCOL_VERSION, root_base
from heron_runtime.model.plan import PhysicalPlan, PlanVersion, StreamManagerInfo
from heron_runtime.wire.control import Credit, InstanceHello, Leave, Pause, PlanUpdate, StreamManagerHello
from heron_runtime.wire.data import Ack, Fail, Frame, Init, Packet, Reason
from stream_manager.core.events import (
    ConnectionEnded,
    ConnectionOpened,
    ControlReceived,
    DataStreamOpened,
    Effect,
    EndConnection,
    Event,
    PlanAccepted,
    PlanLoaded,
    SendMessage,
    SendToMaster,
    StopReplaced,
    Tick,
    WakeLink,
)
from stream_manager.core.stream_manager import StreamManager
from tests.support.definitions import component, packing_of, plan_of, topology_spec

TOPOLOGY_ID = "t-1"
# Two branches that do not meet: word -> split -> count, and other -> sink.
COMPONENTS = (
    component("word"),
    component("split", "word"),
    component("count", "split"),
    component("other"),
    component("sink", "other"),
)
# container: {task: component}
PLACES = {1: {1: "word", 2: "split", 3: "sink"}, 2: {4: "count", 5: "word", 6: "split"}, 3: {7: "other", 8: "count"}}


def make_plan(
    places: dict[int, dict[int, str]] = PLACES,
    number: int = 1,
    epoch: int = 1,
    incarnations: dict[int, int] | None = None,
    **config: Any,
) -> PhysicalPlan:
    """Return a plan of these tasks; ``__`` in settings stands for a dot."""
    incarnations = incarnations or {}
    settings = {key.replace("__", "."): value for key, value in config.items()}
    managers = tuple(StreamManagerInfo(c, "h", 1, incarnations.get(c, 100 + c)) for c in sorted(places))
    definition = topology_spec("t", *COMPONENTS, config=settings)
    return plan_of(definition, packing_of("t", places), PlanVersion(epoch, number), managers)


def frame(source: int, destination: int, values: bytes = b"x", count: int = 1, **columns: bytes) -> Frame:
    return Frame(source, 0, destination, count, 1, 0, values, **columns)


@dataclass
class Instance:
    """Process of one task, which sends within its credit and takes frames on request."""

    task: int
    incarnation: int = 1
    connection: int | None = None
    limit: int = 0
    sent: int = 0
    sequence: int = 0
    window: int = 2000
    taken: int = 0
    granted: int = 0
    paused: Pause | None = None
    plan: PhysicalPlan | None = None
    inbox: deque[Frame] = field(default_factory=deque)
    outbox: deque[Frame] = field(default_factory=deque)
    heard: list[Any] = field(default_factory=list)
    verdicts: list[tuple[int, FailKind | None]] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    next_root: int = 1
    expected: int = 1


class StreamManagerHarness:
    """Cores, their instances, and the wires between them."""

    def __init__(self, plan: PhysicalPlan, settings: dict[str, Any] | None = None, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.plan = plan
        self.settings = settings or {}
        self.cores: dict[int, StreamManager] = {}
        self.instances: dict[int, Instance] = {}
        self.ready: dict[int, dict[int, None]] = {}  # per container: connections
        self.ended: list[str] = []
        self.exits: list[str] = []
        self.to_master: list[Any] = []
        self.wires: dict[tuple[int, int], dict[str, deque[Any]]] = {}  # (from, to): control and data in flight
        self.numbers: dict[int, tuple[int, int]] = {}  # connection: (container, neighbour), tasks negative
        self._next = 0
        for container in sorted(c.container for c in plan.packing.containers):
            self.add(container)

    def add(self, container: int) -> StreamManager:
        info = self.plan.stream_manager(container)
        assert info is not None
        core = self.cores[container] = StreamManager(TOPOLOGY_ID, info, self.settings, self.now_ms)
        self.ready[container] = {}
        for task in self.plan.tasks_in(container):
            self.instances[task] = Instance(task)
        return core

    def start(self) -> None:
        """Deliver the plans, open all links, and connect all instances."""
        for core in self.cores.values():
            self.tell(core.container, PlanLoaded(self.plan, self.plan.version.epoch))
        for a in self.cores:
            for b in self.cores:
                if a < b:
                    self.link(a, b)
        for task in self.instances:
            self.connect(task)
        self.settle()

    # Connections.

    def connection(self, container: int, neighbour: int) -> int:
        self._next += 1
        self.numbers[self._next] = (container, neighbour)
        return self._next

    def connect(self, task: int, incarnation: int | None = None, data: bool = True) -> Instance:
        instance = self.instances[task]
        container = self.plan.container_of(task)
        if incarnation is not None and incarnation != instance.incarnation:
            instance = self.instances[task] = Instance(task, incarnation, window=instance.window)
        instance.connection = self.connection(container, -task)
        instance.sent = instance.sequence = instance.taken = instance.limit = 0
        instance.expected = 1
        instance.inbox.clear()
        hello = InstanceHello(PROTOCOL_VERSION, TOPOLOGY_ID, task, instance.incarnation, 1000 + instance.incarnation)
        self.tell(container, ConnectionOpened(instance.connection, hello))
        if data:
            self.tell(container, DataStreamOpened(instance.connection))
            instance.granted = instance.window
            self.tell(container, ControlReceived(instance.connection, Credit(instance.window)))
        return instance

    def disconnect(self, task: int) -> None:
        instance = self.instances[task]
        if instance.connection is not None:
            container = self.plan.container_of(task)
            number, instance.connection = instance.connection, None
            self.tell(container, ConnectionEnded(number))

    def link(self, a: int, b: int) -> None:
        """Connect two stream managers."""
        self.wires[a, b] = {"control": deque(), "data": deque()}
        self.wires[b, a] = {"control": deque(), "data": deque()}
        ends = {a: self.connection(a, b), b: self.connection(b, a)}
        for here, there in ((a, b), (b, a)):
            self.tell(here, ConnectionOpened(ends[here], self.cores[there].peer_hello()))
        for here in (a, b):
            self.tell(here, DataStreamOpened(ends[here]))

    def break_link(self, a: int, b: int) -> None:
        """Break a link: messages in flight are lost, and both ends are notified."""
        for here, there in ((a, b), (b, a)):
            wire = self.wires.pop((here, there), None)
            if wire is None:
                return
        for here, there in ((a, b), (b, a)):
            number = self.cores[here].connections.peer(there).connection
            if number is not None:
                self.tell(here, ConnectionEnded(number))

    # Effects of the cores.

    def tell(self, container: int, event: Event) -> list[Effect]:
        """Pass an event to a core."""
        effects = self.cores[container].handle(event)
        self.act(container, effects)
        return effects

    def act(self, container: int, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case WakeLink():
                    self.ready[container][effect.connection] = None
                case SendMessage():
                    neighbour = self.numbers[effect.connection][1]
                    wire = self.wires.get(self.numbers[effect.connection])
                    if neighbour < 0:
                        self._hear(-neighbour, effect.connection, effect.message)
                    elif wire is not None:
                        wire["control"].append((effect.connection, effect.message))
                case EndConnection():
                    self.ended.append(effect.reason)
                    self._ended(effect.connection)
                case StopReplaced():
                    self.exits.append(effect.reason)
                case SendToMaster():
                    self.to_master.append(effect.message)
                case PlanAccepted():
                    pass
        self.cores[container].check()

    def _ended(self, number: int) -> None:
        container, neighbour = self.numbers[number]
        if neighbour < 0:
            instance = self.instances[-neighbour]
            if instance.connection == number:
                instance.connection = None
            self.tell(container, ConnectionEnded(number))
        elif (container, neighbour) in self.wires:
            self.break_link(container, neighbour)

    def _hear(self, task: int, connection: int, message: Any) -> None:
        instance = self.instances[task]
        if instance.connection != connection:
            return
        instance.heard.append(message)
        match message:
            case Credit():
                assert message.limit_bytes >= instance.limit
                instance.limit = message.limit_bytes
            case PlanUpdate():
                instance.plan = message.plan
            case Pause():
                instance.paused = message
            case Leave() | StreamManagerHello():
                pass

    # One step each; True if something happened.

    def pump(self, container: int) -> bool:
        """Send one packet of one link that has work."""
        ready = list(self.ready[container])
        if not ready:
            return False
        connection = self.rng.choice(ready)
        neighbour = self.numbers[connection][1]
        packet, effects = self.cores[container].next_packet(connection)
        if packet is None:
            del self.ready[container][connection]
        elif neighbour > 0:
            self.wires[container, neighbour]["data"].append(packet)
        else:
            instance = self.instances[-neighbour]
            assert packet.sequence == instance.expected
            instance.expected += 1
            instance.inbox += packet.frames
            for verdict in packet.verdicts:
                kind = None if verdict.reason is None else verdict.reason.kind
                instance.reasons += [verdict.reason] if verdict.reason is not None else []
                instance.verdicts += [(root, kind) for root in np.frombuffer(verdict.roots, "<u8").tolist()]
        self.act(container, effects)
        return packet is not None

    def deliver(self, source: int, destination: int, what: str) -> bool:
        """Deliver one message in flight."""
        wire = self.wires.get((source, destination))
        if wire is None or not wire[what]:
            return False
        core, item = self.cores[destination], wire[what].popleft()
        number = core.connections.peer(source).connection
        if number is None:
            return True
        if what == "data":
            self.act(destination, core.packet(number, item))
        else:
            self.tell(destination, ControlReceived(number, item[1]))
        return True

    def send(
        self,
        task: int,
        frames: Sequence[Frame] = (),
        inits: Sequence[Init] = (),
        acks: Sequence[Ack] = (),
        fails: Sequence[Fail] = (),
    ) -> bool:
        """Send a packet of an instance: settlements at once, frames within credit (the rest waits)."""
        instance = self.instances[task]
        instance.outbox += frames
        if instance.connection is None:
            return False
        instance.sequence += 1
        packet = Packet(instance.sequence, list(inits), list(acks), list(fails))
        while instance.outbox and instance.sent < instance.limit:
            packet.frames.append(instance.outbox.popleft())
            instance.sent += packet.frames[-1].size_bytes()
        container = self.plan.container_of(task)
        self.act(container, self.cores[container].packet(instance.connection, packet))
        return bool(packet.frames)

    def take(self, task: int) -> Frame | None:
        """Process one frame of an instance and return its credit."""
        instance = self.instances[task]
        if not instance.inbox:
            return None
        taken = instance.inbox.popleft()
        instance.taken += taken.size_bytes()
        if instance.connection is not None and instance.taken + instance.window - instance.granted >= 1000:
            instance.granted = instance.taken + instance.window
            self.tell(
                self.plan.container_of(task),
                ControlReceived(instance.connection, Credit(instance.granted, 0, instance.taken)),
            )
        return taken

    def open_root(self, task: int, edges: list[int]) -> int:
        """Open the next root of a spout; return its id."""
        instance = self.instances[task]
        root = root_base(task, instance.incarnation) | instance.next_root
        instance.next_root += 1
        key = int(np.bitwise_xor.reduce(np.array(edges, np.uint64)))
        self.send(task, inits=[Init(task, root, column([key]))])
        return root

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        for container in self.cores:
            self.tell(container, Tick(self.now_ms))

    def settle(self) -> None:
        """Run until no message is in flight (instances take frames on request only)."""
        moved = True
        while moved:
            moved = False
            for container in self.cores:
                while self.pump(container):
                    moved = True
            for source, destination in list(self.wires):
                for what in ("control", "data"):
                    while self.deliver(source, destination, what):
                        moved = True


def column(values: list[int]) -> bytes:
    return np.array(values, np.uint64).tobytes()


def failed(component_name: str = "split", task: int = 2) -> Reason:
    return Reason(FailKind.FAILED, component_name, task, "no")

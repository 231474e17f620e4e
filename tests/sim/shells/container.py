"""One container: a production stream manager with its host and server, and tasks with production gateways.

The test code replaces the executors: it emits, receives and grants credit.

Invariants, checked at each step: the frames of a pair of tasks arrive in order and once; no process sends beyond its
credit; messages of a stream manager arrive after its own hello, with its own incarnation; the core is sound after each
event.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter, deque
from contextvars import copy_context
from typing import Any

from heron_instance.core.outbox import Flush
from heron_instance.shell.gateway import Gateway, LinkSetup
from heron_instance.shell.inbox import Inbox, LeaveRequested, PauseChanged, PlanArrived, StreamManagerLinked
from heron_runtime.launch import Launch
from heron_runtime.model.plan import PhysicalPlan, StreamManagerInfo
from heron_runtime.net.handshake import instance_key
from heron_runtime.wire.data import Frame, Packet
from heron_runtime.wire.master import ToMaster
from heron_runtime.wire.metrics import ProcessMetrics
from stream_manager.core.events import PlanAccepted, PlanLoaded, Tick
from stream_manager.core.stream_manager import StreamManager
from stream_manager.shell.driver import CoreDriver
from stream_manager.shell.instance_server import InstanceServer
from tests.support.definitions import component, plan_of, topology_spec

from .loop import OWNER, VirtualLoop

TOPOLOGY_ID, SECRET = "t-1", "secret"
SPOUTS, BOLTS = (1, 2), (3, 4, 5)
WINDOW = 3_000  # bytes that a task receives at a time
LARGEST = 4_000  # bytes of a frame's values
OPEN_AT_MOST = 20_000  # bytes that a task has posted and its gateway has not sent
FRAMES = (20, 80, 250)  # emitted by a life of a spout's task
NUMBER = struct.Struct("<IIH")  # life of the source, number of the first tuple, tuples
LAUNCH = Launch("sim", "r", "e", "t", TOPOLOGY_ID, "memory://", "/nowhere", "/nowhere")
REPORT = ProcessMetrics("s", "container_1_s_1", 1, 1, 0, 0.0)


def make_plan() -> PhysicalPlan:
    """Return a plan of spouts and bolts in one container."""
    word = component("word", parallelism=len(SPOUTS))
    count = component("count", "word", parallelism=len(BOLTS), fields=())
    return plan_of(topology_spec("t", word, count))


class Detached:
    """Surroundings of a driver without plan file, peers and topology master."""

    def accept_plan(self, effect: PlanAccepted) -> None:
        """The only container calls no peer."""

    def save_epoch(self, epoch: int) -> None:
        """Nothing is stored."""

    def send_to_master(self, message: ToMaster) -> None:
        """No topology master is connected."""

    def leave_master(self, reason: str) -> None:
        """No topology master is connected."""


class Manager:
    """Life of the stream manager."""

    def __init__(self, container: Container, life: int) -> None:
        self.incarnation = 100 + life
        self.core = StreamManager(
            TOPOLOGY_ID, StreamManagerInfo(1, "h", 1, self.incarnation),
            {"heron.streammgr.upload.window.bytes": container.upload_window}, int(container.loop.now * 1000),
        )  # fmt: skip
        self._container = container
        self._listen()
        self.host = CoreDriver(self.core, Detached())
        self.server = InstanceServer(self.host, lambda task: instance_key(SECRET, TOPOLOGY_ID, 1, task))
        self._ticks: asyncio.Task[None]

    async def start(self) -> None:
        """Start listening."""
        OWNER.set(self)
        self.host.handle(PlanLoaded(self._container.plan, 1))
        await self.server.start(LAUNCH.stream_manager_socket(1))
        self._ticks = asyncio.get_running_loop().create_task(self._tick())

    async def die(self) -> None:
        """End as by kill -9, without closing anything in order. Its counts are lost with it and are not checked."""
        loop = self._container.loop
        loop.stop_listening(LAUNCH.stream_manager_socket(1))
        loop.cut_all_of(self)
        self._ticks.cancel()
        await self.server.stop(0.0)

    def lost(self) -> int:
        """Return the tuples that it has counted as lost on the way to instances."""
        return sum(sum(n.link.lost.values()) for n in self.core.connections.all())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.host.handle(Tick(int(self._container.loop.now * 1000)))

    def _listen(self) -> None:
        """Check the core after each event."""
        core: Any = self.core
        for name in ("handle", "packet"):
            setattr(core, name, self._checked(getattr(core, name)))

    def _checked(self, real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            done = real(*arguments)
            try:
                self.core.check()
            except AssertionError as error:
                self._container.loop.break_law(f"the stream manager is not sound: {error}")
            if self.core.violations > self._container.garbled:
                self._container.loop.break_law("the stream manager was spoken to against the protocol")
            return done

        return call


class Task:
    """Life of a task."""

    def __init__(self, container: Container, task: int, life: int) -> None:
        self.task, self.life = task, life
        self.alive = True
        self.inbox = Inbox()
        key = instance_key(SECRET, TOPOLOGY_ID, 1, task)
        setup = LinkSetup(LAUNCH, 1, task, life, self._count, key)
        self.gateway = Gateway(setup, self.inbox)
        self.heard = 0  # incarnation of the stream manager
        self.emitted: Counter[int] = Counter()  # tuples, per bolt
        self.arrived: dict[tuple[int, int], int] = {}  # life of a spout task: the next number
        self.waiting: deque[Frame] = deque()
        self._container = container
        self._posted = self._taken = 0
        self._frames = container.loop.rng.choice(FRAMES)  # to emit
        self._slow = container.loop.rng.choice((0.002, 0.01, 0.03))
        self._has_plan = self._paused = False
        self._parts: list[asyncio.Task[Any]] = []

    def start(self) -> None:
        """Start the task as its own process."""
        context = copy_context()
        context.run(OWNER.set, self)
        loop = self._container.loop
        self._parts = [loop.create_task(part, context=context) for part in (self._gate(), self._execute())]

    async def die(self) -> None:
        """End as by kill -9."""
        self.alive = False
        for part in self._parts:
            part.cancel()
        self._container.loop.cut_all_of(self)
        await asyncio.gather(*self._parts, return_exceptions=True)

    def idle(self) -> bool:
        """Return True if nothing is queued here and the link is up."""
        gateway = self.gateway
        sent = gateway._outgoing.empty() and not gateway._posted
        return gateway._linked and sent and not self.waiting and not self.inbox._items

    def _count(self, name: str, amount: float) -> None:
        if self.alive and name.startswith("__gateway-lost-on-break"):
            self._container.counted += int(amount)

    async def _gate(self) -> None:
        await self.gateway.run(lambda: REPORT)
        self._container.loop.break_law(f"the gateway of task {self.task} has ended")

    async def _execute(self) -> None:
        loop, beat = self._container.loop, 0.0
        while True:
            await asyncio.sleep(loop.rng.uniform(0, self._slow))
            for item in self.inbox.take(0):
                self._take(item)
            self._process()
            if self.task in SPOUTS and self._container.emitting and self._has_plan and not self._paused:
                self._emit()
            if loop.now >= beat:
                beat = loop.now + 1.0
                self.gateway.report_taken()

    def _take(self, item: Any) -> None:
        if isinstance(item, Packet):
            self._hear(item)
        elif isinstance(item, StreamManagerLinked):
            self.heard = item.incarnation
            if self.heard != self._container.manager.incarnation and self.heard not in self._container.dead:
                self._container.loop.break_law(
                    f"task {self.task} hears of a stream manager {self.heard}: there is none"
                )
        elif isinstance(item, PlanArrived):
            self._has_plan = True
        elif isinstance(item, PauseChanged):
            self._paused = item.paused
        elif isinstance(item, LeaveRequested):
            self._container.loop.break_law(f"task {self.task} is told to leave though it is current: {item.reason}")

    def _hear(self, packet: Packet) -> None:
        for frame in packet.frames:
            life, first, count = NUMBER.unpack_from(frame.values)
            pair = (frame.source_task, life)
            if first < self.arrived.get(pair, 0) or count != frame.count or frame.destination_task != self.task:
                self._container.loop.break_law(f"task {self.task}: frame {pair} {first} came out of order, or twice")
            self.arrived[pair] = first + count
            self._container.received[frame.source_task, life, self.task] += count
            self.waiting.append(frame)
        held = sum(frame.weight() for frame in self.waiting)
        if held > WINDOW + 2 * LARGEST:
            self._container.loop.break_law(f"task {self.task} was sent {held} bytes, over its credit")

    def _process(self) -> None:
        while self.waiting and self._container.loop.rng.random() < 0.8:
            self._taken += self.waiting.popleft().weight()
        self.gateway.record_taken(self._taken)
        self.gateway.offer_credit(self._taken + WINDOW, 0)

    def _emit(self) -> None:
        rng, flush = self._container.loop.rng, Flush()
        while self._frames and self._posted - self.gateway.sent_weight < OPEN_AT_MOST and rng.random() < 0.6:
            self._frames -= 1
            bolt, count = rng.choice(BOLTS), rng.choice((1, 1, 5))
            values = NUMBER.pack(self.life, self.emitted[bolt], count) + bytes(rng.choice((0, 30, LARGEST - 200)))
            flush.frames.append(Frame(self.task, 0, bolt, count, 1, 0, values))
            self.emitted[bolt] += count
            self._posted += flush.frames[-1].weight()
        if flush.frames:
            self.gateway.post([flush])


class Container:
    """Container of a stream manager and its tasks."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.plan = make_plan()
        self.upload_window = loop.rng.choice((2_000, 10_000, 100_000))
        self.emitting = True
        self.garbled = 0
        self.died = False
        self.counted = 0  # tuples that gateways have counted as lost
        self.received: Counter[tuple[int, int, int]] = Counter()
        self.dead: set[int] = set()  # incarnations
        self.lives: list[Task] = []
        self.manager = Manager(self, 1)
        self.tasks: dict[int, Task] = {}

    async def start(self) -> None:
        """Start the stream manager and all tasks."""
        await self.start_manager()
        for task in SPOUTS + BOLTS:
            self.start_task(task)

    async def start_manager(self) -> None:
        """Start the stream manager in its own context, which identifies its connections."""
        await asyncio.get_running_loop().create_task(self.manager.start(), context=copy_context())

    def start_task(self, task: int) -> None:
        """Start a new life of a task."""
        before = self.tasks.get(task)
        life = self.tasks[task] = Task(self, task, before.life + 1 if before else 1)
        self.lives.append(life)
        life.start()

    async def kill_manager(self, for_seconds: float) -> None:
        """Kill the stream manager and start a new one after a while."""
        self.died = True
        self.dead.add(self.manager.incarnation)
        await self.manager.die()
        await asyncio.sleep(for_seconds)
        self.manager = Manager(self, self.manager.incarnation - 99)
        await self.start_manager()

    async def kill_task(self, task: int) -> None:
        """Kill a task and start a new life at once."""
        self.died = True
        await self.tasks[task].die()
        self.start_task(task)

    def missing(self) -> int:
        """Return the tuples that were emitted and have not arrived."""
        return sum(life.emitted.total() for life in self.lives) - self.received.total()

    def unsettled(self) -> list[str]:
        """Return what has not come to rest yet."""
        waits = [f"task {task} is not idle" for task, life in self.tasks.items() if not life.idle()]
        links = [n for n in self.manager.core.connections.all() if n.link.weight or not n.link.is_open]
        waits += [f"the link to task {n.link.task} has something to send, or is down" for n in links]
        for task, life in self.tasks.items():
            if life.heard != self.manager.incarnation:
                waits.append(f"task {task} knows stream manager {life.heard}, not {self.manager.incarnation}")
        return [*waits, *(["bytes are under way"] if self.loop.busy() else [])]

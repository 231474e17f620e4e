"""Simulated stream manager: the production core, and a small shell that runs its effects over the network.

The shell works like ``stream_manager/shell``: it numbers connections, passes control messages through the production
``ControlOutbox``, asks the core for a packet whenever a data stream is free, keeps plan and master on its disk, and
connects to peers with a higher number and to the master that the store names.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from heron_runtime.model.plan import PhysicalPlan, StreamManagerInfo
from heron_runtime.model.records import MasterLocation
from heron_runtime.state import paths
from heron_runtime.state.memory import MemoryStore
from heron_runtime.state.store import StoreError
from heron_runtime.wire import message_codecs
from heron_runtime.wire.control import InstanceHello, Leave, PeerHello
from heron_runtime.wire.master import ToMaster
from stream_manager.core import events as e
from stream_manager.core.links import ControlOutbox, Link
from stream_manager.core.stream_manager import StreamManager

from .encoding import MASTERS, PEERS
from .simulation import SimProcess, Simulation
from .wire import DATA_OPEN, End, Pipe

if TYPE_CHECKING:
    from .cluster import Cluster

TICK_MS = 100.0
BACKOFF_MS = (100.0, 2000.0)


@dataclass
class Disk:
    """Disk that outlives the process."""

    incarnation: int = 0
    epoch: int = 0
    plan: PhysicalPlan | None = None
    master: MasterLocation | None = None


class Connection:
    """Control and data stream to one neighbour."""

    def __init__(self, owner: SimStreamManager, end: End, number: int) -> None:
        self.number = number
        self.ended = False
        self.has_data = False
        self._owner = owner
        self._end = end
        self._outbox = ControlOutbox()
        self._writing = False
        self._in_flight = 0
        self._room = owner.world.rng.choice((1, 1, 2, 4))
        end.on_gone = self._over

    def put(self, message: Any) -> None:
        """Send on the control stream."""
        self._outbox.put(message)
        self._write()

    def wake(self) -> None:
        """Write packets while the stream accepts them."""
        while self.has_data and not self.ended and self._in_flight < self._room:
            packet, effects = self._owner.core.next_packet(self.number)
            self._owner.act(effects)
            if packet is None:
                return
            self._in_flight += 1
            self._end.data.send(packet, self._written)

    def data_pipe(self) -> Pipe:
        """Return the pipe for packets."""
        return self._end.data

    def end(self, reason: str) -> None:
        """End both streams after the queued control messages."""
        while not self.ended and self._outbox:
            self._end.control.send(self._outbox.take())
        self._end.close(reason)

    def _write(self) -> None:
        if not self._writing and self._outbox and not self.ended:
            self._writing = True
            self._end.control.send(self._outbox.take(), self._control_written)

    def _control_written(self) -> None:
        self._writing = False
        self._write()

    def _written(self) -> None:
        self._in_flight -= 1
        self.wake()

    def _over(self, reason: str) -> None:
        if self.ended:
            return
        self.ended = True
        self._owner.connection_over(self, reason)


class SimStreamManager(SimProcess):
    """Stream manager of one container."""

    core: StreamManager

    def __init__(self, world: Simulation, cluster: Cluster, container: int) -> None:
        super().__init__(world, f"sm{container}", container)
        self.cluster = cluster
        self.container = container
        self.disk = Disk()
        self.tampered = 0  # packets lost or repeated by the network on the way here
        # Of this life: every data pipe of a link, and the losses that the link had counted before it.
        self.pipes: list[tuple[Link, Pipe, int]] = []

    # Start, death, time.

    def boot(self) -> None:
        """Read the disk; look for master and peers."""
        world = self.world
        self.disk.incarnation = max(int(self.clock_ms), self.disk.incarnation + 1)
        self.port = self.cluster.new_address(self)
        info = StreamManagerInfo(self.container, "sim", self.port, self.disk.incarnation, self.port)
        self.core = StreamManager(self.cluster.topology.id, info, self.cluster.settings, int(self.clock_ms))
        self.cluster.checkers.stream_manager_started(self)
        self.pipes = []
        self._connections: dict[int, Connection] = {}
        self._numbers = 0
        self._todo: deque[e.Effect] = deque()
        self._acting = False
        self._master: End | None = None
        self._location = self.disk.master
        self._connectors: dict[int, Connector] = {}
        self._store = MemoryStore(self.cluster.tree)
        self._store.open()
        life = self.life
        self._store.watch(
            paths.master(self.cluster.topology.name),
            lambda _: self.later(world.between(1, 200), self._look) if self.life == life else None,
        )
        if self.disk.plan is not None:
            self.handle(e.PlanLoaded(self.disk.plan, self.disk.epoch))
        self.later(world.between(1, 50), self._look)
        self.later(world.between(1, 50), partial(self._find_master, BACKOFF_MS[0]))
        self.later(world.between(1, TICK_MS), self._tick)

    def on_fault(self) -> None:
        """Notify the checkers."""
        self.cluster.checkers.fault()

    def died(self) -> None:
        """End the store session; queued data is lost."""
        self._store.close()

    def _tick(self) -> None:
        self.handle(e.Tick(int(self.clock_ms)))
        self.cluster.checkers.checked(self, always=True)
        self.later(TICK_MS + self.world.between(0, 5), self._tick)

    # Effects.

    def handle(self, event: e.Event) -> None:
        """Pass an event to the core and run its effects."""
        self.act(self.core.handle(event))

    def act(self, effects: list[e.Effect]) -> None:
        """Run effects in order; effects that they cause run afterwards."""
        self._todo.extend(effects)
        if self._acting:
            return
        self._acting = True
        try:
            while self._todo and self.alive:
                self._do(self._todo.popleft())
        finally:
            self._acting = False

    def _do(self, effect: e.Effect) -> None:
        match effect:
            case e.WakeLink(number):
                if number in self._connections:
                    self._connections[number].wake()
            case e.SendMessage(number, message):
                if number in self._connections:
                    self._connections[number].put(message)
            case e.SendToMaster(message):
                self._tell_master(message)
            case e.EndConnection(number, reason):
                if number in self._connections:
                    self._connections[number].end(reason)
            case e.PlanAccepted():
                self._plan_accepted(effect)
            case e.LeaveMaster(reason):
                self.log(f"refuses its master: {reason}")
                if self._master is not None:
                    self._master.close(reason)
            case e.EpochRaised(epoch):
                self.disk.epoch = epoch
            case e.StopReplaced(reason):
                self.cluster.checkers.told_to_leave(self, reason)
                self.crash(f"told to leave: {reason}", None)

    def _plan_accepted(self, effect: e.PlanAccepted) -> None:
        plan = effect.plan
        self.log(f"has plan {plan.version} {plan.state}")
        self.cluster.checkers.plan_seen(self.name, self.life, plan)
        self.disk.plan, self.disk.epoch = plan, effect.epoch
        for container in effect.call:
            if container not in self._connectors:
                self._connectors[container] = Connector(self, container)
        for connector in self._connectors.values():
            connector.set_target(plan.stream_manager(connector.container), plan.generation.number)

    # Connections.

    def connection(self, end: End, who: str) -> Connection:
        """Give a new connection its number."""
        self._numbers += 1
        number = self._numbers
        self.log(f"connection {number}: {who}")
        found = self._connections[number] = Connection(self, end, number)
        return found

    def connection_over(self, connection: Connection, reason: str) -> None:
        """Handle the end of a connection."""
        self._connections.pop(connection.number, None)
        self.on_fault()
        self.log(f"connection {connection.number} ends: {reason}")
        self.handle(e.ConnectionEnded(connection.number))
        self.cluster.checkers.checked(self)

    def open_data(self, connection: Connection) -> None:
        """Handle a new data stream, unless the connection has been replaced."""
        neighbour = self.core.connections.at(connection.number)
        if neighbour is None:
            connection.end("say hello on a control stream first")
            return
        connection.has_data = True
        link = neighbour.link
        self.pipes.append((link, connection.data_pipe(), sum(link.lost.values())))
        self.handle(e.DataStreamOpened(connection.number))

    def accept_instance(self, end: End, hello: Any) -> None:
        """Handle an instance's first message."""
        assert isinstance(hello, InstanceHello)
        connection = self.connection(end, f"task {hello.task}")
        number = connection.number

        def data(message: Any) -> None:
            if message is DATA_OPEN:
                self.open_data(connection)
            else:
                self.cluster.checkers.packet_taken(self, hello.task, message)
                self.act(self.core.packet(number, message))
            self.cluster.checkers.checked(self)

        end.on_control, end.on_data = partial(self._heard, number), data
        self.handle(e.ConnectionOpened(number, hello))
        self.cluster.checkers.checked(self)

    def _heard(self, number: int, message: Any) -> None:
        self.handle(e.ControlReceived(number, message))
        self.cluster.checkers.checked(self)

    def accept_peer(self, end: End, hello: Any) -> None:
        """Answer a peer's first message."""
        assert isinstance(hello, PeerHello)
        us = self.core.peer_hello()
        self.greet(end, hello).put(us)
        self._said(hello, us)

    def greet(self, end: End, hello: PeerHello) -> Connection:
        """Handle a peer's hello, regardless of the caller."""
        connection = self.connection(end, f"peer {hello.container}")
        number = connection.number

        def data(message: Any) -> None:
            if message is not DATA_OPEN:
                self.act(self.core.packet(number, message))
            elif not connection.has_data:
                self.open_data(connection)
            self.cluster.checkers.checked(self)

        end.on_control, end.on_data = partial(self._heard, number), data
        return connection

    def _said(self, hello: PeerHello, us: PeerHello) -> None:
        self.handle(e.ConnectionOpened(self._numbers, hello, us.generation))
        self.cluster.checkers.checked(self)

    def said_back(self, end: End, hello: PeerHello, us: PeerHello) -> None:
        """Open the data stream after the called peer has answered the hello."""
        connection = self.greet(end, hello)
        self._said(hello, us)
        if not connection.ended:
            end.data.send(DATA_OPEN)
            self.open_data(connection)

    # The master.

    def _look(self) -> None:
        try:
            node = self._store.get(paths.master(self.cluster.topology.name))
        except StoreError:
            self.later(200, self._look)
            return
        if node is None:
            return
        location = message_codecs.MASTER_LOCATION.decode(node.data)
        if location != self._location:
            self._location = self.disk.master = location
            if self._master is not None:
                self._master.close("the master is elsewhere now")

    def _find_master(self, delay_ms: float) -> None:
        """Connect to the known address of the master; retry until connected."""
        if self._master is None and self._location is not None:
            process = self.cluster.at_address(self._location.port)
            if process is not None:
                self._call_master(process)
                delay_ms = BACKOFF_MS[0]
        again = min(2 * delay_ms, BACKOFF_MS[1]) if self._master is None else BACKOFF_MS[0]
        self.later(delay_ms, partial(self._find_master, again))

    def _call_master(self, process: Any) -> None:
        end = self._master = self.cluster.network.connect(self, process, process.accept, MASTERS)

        def control(message: Any) -> None:
            self.handle(e.MasterMessage(message))
            self.cluster.checkers.checked(self)

        def gone(reason: str) -> None:
            self._master = None
            self.handle(e.MasterDisconnected())

        end.on_control, end.on_gone = control, gone
        self.handle(e.MasterConnected())

    def _tell_master(self, message: ToMaster) -> None:
        if self._master is not None:
            self._master.control.send(message)


class Connector:
    """Keeper of a connection to one peer with a higher container number."""

    def __init__(self, owner: SimStreamManager, container: int) -> None:
        self.container = container
        self._owner = owner
        self._target: StreamManagerInfo | None = None
        self._generation = 0
        self._end: End | None = None
        self._delay_ms = BACKOFF_MS[0]
        self._try()

    def set_target(self, target: StreamManagerInfo | None, generation: int) -> None:
        """Connect to the address in the plan, and reconnect in another generation."""
        if (target, generation) != (self._target, self._generation):
            self._target, self._generation = target, generation
            self._delay_ms = BACKOFF_MS[0]
            if self._end is not None:
                peer = self._owner.core.connections.peer(self.container)
                if peer.connection in self._owner._connections:
                    self._owner._connections[peer.connection].end("the plan names another stream manager")
                else:
                    self._end.close("the plan names another stream manager")

    def _try(self) -> None:
        owner = self._owner
        if (self._end is None or self._end.closed) and self._target is not None:
            process = owner.cluster.at_address(self._target.port)
            if isinstance(process, SimStreamManager):
                self._call(process)
                self._delay_ms = BACKOFF_MS[0]
        owner.later(self._delay_ms, self._try)
        self._delay_ms = min(2 * self._delay_ms, BACKOFF_MS[1])
        if self._end is not None and not self._end.closed:
            self._delay_ms = BACKOFF_MS[0]

    def _call(self, process: SimStreamManager) -> None:
        owner = self._owner
        end = self._end = owner.cluster.network.connect(owner, process, process.accept_peer, PEERS)
        us = owner.core.peer_hello()

        def answer(message: Any) -> None:
            if isinstance(message, PeerHello):
                owner.said_back(end, message, us)
            elif isinstance(message, Leave):
                owner.handle(e.PeerRejected(self.container, message.reason))

        end.on_control = answer
        end.control.send(us)

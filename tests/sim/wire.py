"""The simulated network: connections of two streams (data, control), FIFO in each direction, with delays and faults.

A *channel* joins two *ends*; each end has an outgoing control pipe and an outgoing data pipe. A pipe keeps the order of
messages and delays them at random. Messages in a pipe that is cut are lost and counted in tuples, so that an invariant
can compare this number with the counts of the cores.

Knobs: ``Channel.cut`` breaks a connection (each side learns of it at its own time), ``End.die`` is the death of a
process (what it had written may still arrive), ``Network.block`` stops one direction between two hosts (a partition; a
connection that is stuck for ``KEEPALIVE_MS`` ends), ``Pipe.tamper`` loses or repeats one packet, which gRPC never does
and sequence numbers must detect, or garbles one message where the network carries bytes (``encoding.py``): the
receiving end closes the connection, as in production, and applies nothing of the message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from heron_runtime.wire.data import Packet

from .encoding import PACKETS, Code, Conversation, Encoded, Garbled
from .simulation import SimProcess, Simulation

KEEPALIVE_MS = 4000.0
DATA_OPEN = "data stream opened"  # the first item on a data pipe: the call itself


class _End:
    """Mark after the last message of a stream that was ended in order."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def tuples_in(item: Any) -> int:
    """Return how many tuples a message carries."""
    if isinstance(item, Encoded):
        return item.tuples
    return sum(frame.count for frame in item.frames) if isinstance(item, Packet) else 0


class Network:
    """Network state: blocked directions between hosts, the delay factor, and whether it carries bytes."""

    def __init__(self, world: Simulation, slowest_ms: float = 3.0) -> None:
        self.world = world
        self.slowest_ms = slowest_ms
        self.channels: dict[Channel, None] = {}
        self.encodes = False  # to be set before any connection
        self.undecodable = 0  # messages that a decoder has rejected
        self.lost_tuples = 0  # in pipes that were cut
        self._blocked: dict[tuple[int, int], float] = {}

    def block(self, source: int, target: int, until_ms: float) -> None:
        """Block one direction between two hosts until then."""
        self._blocked[source, target] = until_ms

    def heal(self) -> None:
        """Unblock all directions."""
        self._blocked.clear()

    def blocked_until(self, source: int, target: int) -> float:
        """Return the end of the block, or 0 if there is none."""
        return self._blocked.get((source, target), 0.0)

    def connect(
        self, client: SimProcess, server: SimProcess, accept: Callable[[End, Any], None], conversation: Conversation
    ) -> End:
        """Open a connection; ``accept`` gets the server's end and the first control message when it arrives."""
        channel = Channel(self, client, server, conversation)
        self.channels[channel] = None
        far = channel.ends[1]
        far.on_control = lambda message: accept(far, message)
        return channel.ends[0]


class Pipe:
    """One direction of one stream. ``code``: the encoding of its messages, if they are encoded."""

    def __init__(self, network: Network, source: End, target: End, is_data: bool, code: Code) -> None:
        self.sent = 0  # tuples
        self.handed = 0
        self._network = network
        self._world = network.world
        self._source = source
        self._target = target
        self._is_data = is_data
        self._code = code if network.encodes else None
        self._items: deque[tuple[Any, Callable[[], None] | None]] = deque()
        self._last_ms = 0.0
        self._cut = False
        self._tamper = ""
        self.swallowed = False  # a packet has been dropped, and no later one has revealed it

    def tamper(self, how: str) -> None:
        """Drop or repeat the next packet (``drop``, ``repeat``), or ``garble`` the next encoded message.

        An empty string cancels it.
        """
        self._tamper = how

    def send(self, item: Any, done: Callable[[], None] | None = None) -> None:
        """Send an item; ``done`` is called when the far end has received it."""
        tuples = tuples_in(item)
        self.sent += tuples
        if self._cut:
            self._network.lost_tuples += tuples
            return
        if self._code is not None and item is not DATA_OPEN and not isinstance(item, _End):
            item = Encoded(item, self._code, tuples)
            if self._tamper == "garble":
                self._tamper = ""
                item.garble(self._world.rng)
        elif self._tamper and isinstance(item, Packet):
            how, self._tamper = self._tamper, ""
            if how == "drop":
                self._network.lost_tuples += tuples
                self.swallowed = True
                if done is not None:  # the writer believes that it is written
                    self._source.process.later(self._world.between(0.05, 3), done)
                return
            self._put(item, None)
        self._put(item, done)

    @property
    def waiting(self) -> int:
        """Return how many messages are in flight."""
        return len(self._items)

    @property
    def is_cut(self) -> bool:
        """Return True once nothing more arrives."""
        return self._cut

    def cut(self) -> None:
        """Drop all messages; nothing more arrives."""
        if not self._cut:
            self._cut = True
            self._network.lost_tuples += sum(tuples_in(item) for item, _ in self._items)
            self._items.clear()

    def _put(self, item: Any, done: Callable[[], None] | None) -> None:
        self._items.append((item, done))
        self._last_ms = max(self._last_ms, self._world.now_ms + self._world.between(0.05, self._network.slowest_ms))
        self._world.at(self._last_ms, self._arrive)

    def _arrive(self) -> None:
        if self._cut:
            return
        until = self._network.blocked_until(self._source.process.host, self._target.process.host)
        if until > self._world.now_ms:
            if until - self._last_ms > KEEPALIVE_MS:
                self._world.at(self._last_ms + KEEPALIVE_MS, lambda: self._source.channel.cut("keepalive"))
            self._world.at(until, self._arrive)
            return
        item, done = self._items.popleft()
        self._target.process.receive(lambda: self._hand(item, done))

    def _hand(self, item: Any, done: Callable[[], None] | None) -> None:
        target = self._target
        tuples = tuples_in(item)
        if target.closed:
            self._network.lost_tuples += tuples
            return
        if isinstance(item, Encoded):
            try:
                item = item.decode()
            except Garbled as fault:
                self._network.lost_tuples += tuples
                self._network.undecodable += fault.by_decoder
                target.close(f"garbled: {fault}")
                return
        self.handed += tuples
        if isinstance(item, _End):
            target.gone(item.reason)
        elif self._is_data:
            target.on_data(item)
        else:
            target.on_control(item)
        if done is not None and self._source.process.alive and not self._source.closed:
            self._source.process.receive(done)


def _nothing(_: Any) -> None:
    return None


class End:
    """One side of a channel. The owner sets ``on_control``, ``on_data`` and ``on_gone``."""

    def __init__(self, channel: Channel, process: SimProcess) -> None:
        self.channel = channel
        self.process = process
        self.closed = False
        self.on_control: Callable[[Any], None] = _nothing
        self.on_data: Callable[[Any], None] = _nothing
        self.on_gone: Callable[[str], None] = _nothing
        self.control: Pipe
        self.data: Pipe
        process.ends[self] = None

    def close(self, reason: str) -> None:
        """End both streams in order: control messages arrive, data in flight is lost."""
        if self.closed:
            return
        self.control.send(_End(reason))
        self._shut(keep_control=True)
        self.on_gone(reason)

    def gone(self, reason: str) -> None:
        """Learn that the connection is over."""
        if not self.closed:
            self._shut()
            self.on_gone(reason)

    def die(self) -> None:
        """End with the process. What it had written arrives, or it does not."""
        self.closed = True
        drains = self.channel.network.world.chance(0.5)
        for pipe in (self.control, self.data):
            if drains:
                pipe.send(_End("its process died"))
            else:
                pipe.cut()
        self.far.control.cut()
        self.far.data.cut()
        if not drains:
            self.channel.tell(self.far, "its process died")
        self.channel.over()

    @property
    def far(self) -> End:
        """Return the other side."""
        first, second = self.channel.ends
        return second if self is first else first

    def _shut(self, keep_control: bool = False) -> None:
        self.closed = True
        self.process.ends.pop(self, None)
        self.data.cut()
        if not keep_control:
            self.control.cut()
        self.far.control.cut()
        self.far.data.cut()
        if not keep_control:
            self.channel.tell(self.far, "closed by the other end")
        self.channel.over()


class Channel:
    """Connection between two processes."""

    def __init__(self, network: Network, client: SimProcess, server: SimProcess, conversation: Conversation) -> None:
        self.network = network
        self.ends = (End(self, client), End(self, server))
        for end, code in zip(self.ends, (conversation.client, conversation.server), strict=True):
            end.control = Pipe(network, end, end.far, is_data=False, code=code)
            end.data = Pipe(network, end, end.far, is_data=True, code=PACKETS)

    def cut(self, reason: str) -> None:
        """Break the channel: messages in flight are lost; each side learns of it later."""
        for end in self.ends:
            end.control.cut()
            end.data.cut()
        for end in self.ends:
            self.tell(end, reason)

    def tell(self, end: End, reason: str) -> None:
        """Notify this end after a while that the connection is over."""
        world = self.network.world
        slow = 50.0 if world.chance(0.9) else 1500.0
        if not end.closed and end.process.alive:
            end.process.later(world.between(0.1, slow), lambda: end.gone(reason))

    @property
    def half_open(self) -> bool:
        """Return True while it is broken and one side does not know yet."""
        return any(end.control.is_cut or end.data.is_cut for end in self.ends)

    @property
    def data_busy(self) -> bool:
        """Return True while packets are in flight."""
        return any(end.data.waiting for end in self.ends)

    def over(self) -> None:
        """Drop the channel once both sides are done with it."""
        if all(end.closed for end in self.ends):
            self.network.channels.pop(self, None)

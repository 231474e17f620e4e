"""What waits for one link: to a local instance, or to a peer.

Theory of operation. A link has one *destination* queue per task it leads to (an instance's link has one, a peer's link
one for each task over there) and one queue of settlements. ``next_packet`` is asked for whenever the previous write has
ended, so whatever came meanwhile shares a packet: settlements first, since they need no credit and must not wait, then
frames, one from each destination in turn, from those that have credit. Frames of one destination leave in the order in
which they came, so order is kept per (source task, destination task). Bounds, credit and packets count frames by
weight: their bytes or, for slow tasks, the time their work takes (``heron_runtime/model/weights.py``).

Credit, sequence numbers and the account of what was handed over begin anew with each connection. Frames that were
handed over and not yet known to be taken when a connection ends are lost and counted
(``heron_runtime/model/handed_over.py``); what is queued goes on the next connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from heron_runtime.model.handed_over import HandedOver
from heron_runtime.model.settings import MiB
from heron_runtime.wire.data import Frame, Packet
from stream_manager.core.credit import Grant
from stream_manager.core.settlements import Settlements

PACKET_BYTES = MiB


class Traffic:
    """What has gone one way, all connections so far."""

    __slots__ = ("acks", "bytes", "fails", "frames", "packets", "tuples")

    def __init__(self) -> None:
        self.packets = self.frames = self.tuples = self.bytes = self.acks = self.fails = 0

    def count(self, packet: Packet) -> None:
        """Add a packet; the bytes of its frames are counted by whoever looks at them one by one."""
        self.packets += 1
        self.frames += len(packet.frames)
        self.tuples += sum([frame.count for frame in packet.frames])
        self.acks += sum([len(ack.roots) for ack in packet.acks]) // 8
        self.fails += sum([len(fail.roots) for fail in packet.fails]) // 8


class Destination:
    """The frames for one task, and the credit its far end has given."""

    __slots__ = ("frames", "handed", "in_turn", "limit", "pressed", "sent", "task", "weight")

    def __init__(self, task: int) -> None:
        self.task = task
        self.frames: deque[tuple[Frame, int, Grant | None]] = deque()
        self.weight = 0
        self.sent = 0
        self.limit = 0
        self.handed = HandedOver()
        self.in_turn = False
        self.pressed = False  # over the high mark, and not yet below the low one

    def sendable_weight(self) -> int:
        """What is queued and has credit."""
        return max(0, min(self.weight, self.limit - self.sent))


class Link:
    """The outgoing side of one connection after another to the same far end: a local instance (``task``) or, when
    ``container`` is not 0, a peer."""

    def __init__(self, task: int = 0, container: int = 0) -> None:
        self.task = task
        self.container = container
        self.is_open = False
        self.settlements = Settlements()
        self.destinations: dict[int, Destination] = {}
        self.weight = 0  # of frames
        self.pressed = False  # the link as a whole is over its mark
        self.marked: dict[Destination, None] = {}  # queues that are pressed or over their bound
        self.lost: dict[int, int] = {}  # stream to tuples, all connections so far
        self.traffic_out = Traffic()
        self._turns: deque[Destination] = deque()
        self._sequence = 0

    def destination(self, task: int) -> Destination:
        """The queue for one task."""
        found = self.destinations.get(task)
        if found is None:
            found = self.destinations[task] = Destination(task)
        return found

    def push(self, frame: Frame, weight: int, grant: Grant | None) -> Destination:
        """Queue a frame of that weight; ``grant`` is told when the frame leaves."""
        queue = self.destination(frame.destination_task)
        queue.frames.append((frame, weight, grant))
        queue.weight += weight
        self.weight += weight
        self._take_turn(queue)
        return queue

    def heard(self, task: int, limit: int, taken: int = 0) -> None:
        """The far end's word: frames to ``task`` may be sent while what was sent is below ``limit``; of what was sent
        on this connection so much is ``taken``."""
        queue = self.destination(task)
        queue.handed.take(taken)
        if limit > queue.limit:
            queue.limit = limit
            self._take_turn(queue)

    def open(self) -> None:
        """The data stream is there."""
        self.is_open = True

    def close(self, lost: dict[int, int] | None = None) -> None:
        """The connection has ended: count what is lost with it (in ``lost``, else in its own), keep what is queued."""
        self.is_open = False
        self._sequence = 0
        self._turns.clear()
        for queue in self.destinations.values():
            queue.handed.lose(self.lost if lost is None else lost)
            queue.sent = queue.limit = 0
            queue.in_turn = False

    def has_work(self) -> bool:
        """True if ``next_packet`` would give one."""
        return self.is_open and (bool(self.settlements) or bool(self._turns))

    def next_packet(self, max_bytes: int = PACKET_BYTES) -> tuple[Packet, list[Grant]] | None:
        """The next packet, of a weight of at most ``max_bytes``, or one frame, and the grants whose frames are in it.

        Calling it hands the packet over: it must be written to the stream exactly once.
        """
        if not self.has_work():
            return None
        self._sequence += 1
        packet = Packet(self._sequence)
        room = self.settlements.fill(packet, max_bytes) if self.settlements else max_bytes
        empty = not (packet.acks or packet.fails or packet.verdicts)
        grants = self._fill(packet, room, empty)
        self.traffic_out.bytes += sum([frame.size_bytes() for frame in packet.frames])
        self.traffic_out.count(packet)
        return packet, grants

    def withdraw(self, task: int) -> Iterator[tuple[Frame, int, Grant | None]]:
        """Take all queued frames of a task back, in order: the task has moved."""
        queue = self.destinations.get(task)
        if queue is None:
            return
        if queue.in_turn:
            self._turns.remove(queue)
            queue.in_turn = False
        self.weight -= queue.weight
        self.marked.pop(queue, None)
        queue.pressed = False
        queue.weight = 0
        frames, queue.frames = queue.frames, deque()  # the credit stays: the task may come back
        yield from frames

    def waiting_bytes(self) -> int:
        """How much is queued, by weight, without a credit or with; 0 if there is nothing to send now."""
        return self.settlements.bytes + self.weight if self.has_work() else 0

    def sendable_weight(self) -> int:
        """What waits for the link itself, rather than for a task behind it."""
        if not self.is_open:
            return self.weight
        return sum(queue.sendable_weight() for queue in self.destinations.values())

    def size_bytes(self) -> int:
        """The memory that the queued frames take."""
        return sum(frame.size_bytes() for queue in self.destinations.values() for frame, _, _ in queue.frames)

    def check(self) -> None:
        """Assert every invariant."""
        self.settlements.check()
        weight = in_turn = 0
        for queue in self.destinations.values():
            weight += queue.weight
            in_turn += queue.in_turn
            if queue.frames or queue.weight or queue.in_turn:  # most are empty, and this is called after each event
                counted = sum(weight for _, weight, _ in queue.frames)
                assert queue.weight == counted, "the weight is counted per destination"
                ready = bool(queue.frames) and queue.sent < queue.limit
                assert queue.in_turn == ready, f"a destination is in turn if it has frames and credit: {queue.task}"
                assert queue.in_turn == (queue in self._turns), "the turn is marked"
        assert self.weight == weight, "the weight is counted"
        assert in_turn == len(self._turns), "nobody else is in turn, and nobody twice"

    def _take_turn(self, queue: Destination) -> None:
        if not queue.in_turn and queue.frames and queue.sent < queue.limit:
            queue.in_turn = True
            self._turns.append(queue)

    def _fill(self, packet: Packet, room: int, empty: bool) -> list[Grant]:
        """Frames in turn while they fit; the first one always does when the packet is empty."""
        grants: dict[Grant, None] = {}
        turns, frames = self._turns, packet.frames
        while turns:
            queue = turns[0]
            frame, weight, grant = queue.frames[0]
            if weight > room and not empty:
                break
            empty = False
            room -= weight
            queue.frames.popleft()
            queue.weight -= weight
            queue.sent += weight
            queue.handed.add(queue.sent, frame.stream, frame.count)
            self.weight -= weight
            frames.append(frame)
            if grant is not None:
                grant.use(weight)
                grants[grant] = None
            turns.popleft()
            if queue.frames and queue.sent < queue.limit:
                turns.append(queue)
            else:
                queue.in_turn = False
        return list(grants)

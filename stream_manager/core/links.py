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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from heron_runtime.model.checkpoints import CheckpointWish
from heron_runtime.model.handed_over import HandedOver
from heron_runtime.model.settings import MiB
from heron_runtime.wire.control import CauseChange, CauseSet, PeerCredit, PlanUpdate, TaskCredit, TaskWeights
from heron_runtime.wire.data import Ack, Fail, Frame, Packet, Reason, Verdict
from stream_manager.core.credit import CreditGrant

PACKET_BYTES = MiB


class LinkTraffic:
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


class DestinationQueue:
    """The frames for one task, and the credit its far end has given."""

    __slots__ = ("frames", "in_turn", "limit", "pressed", "sent", "task", "unconfirmed", "weight")

    def __init__(self, task: int) -> None:
        self.task = task
        self.frames: deque[tuple[Frame, int, CreditGrant | None]] = deque()
        self.weight = 0
        self.sent = 0
        self.limit = 0
        self.unconfirmed = HandedOver()
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
        self.settlements = SettlementQueue()
        self.destinations: dict[int, DestinationQueue] = {}
        self.weight = 0  # of frames
        self.pressed = False  # the link as a whole is over its mark
        self.marked: dict[DestinationQueue, None] = {}  # queues that are pressed or over their bound
        self.lost: dict[int, int] = {}  # stream to tuples, all connections so far
        self.traffic_out = LinkTraffic()
        self._turns: deque[DestinationQueue] = deque()
        self._sequence = 0

    def destination(self, task: int) -> DestinationQueue:
        """The queue for one task."""
        found = self.destinations.get(task)
        if found is None:
            found = self.destinations[task] = DestinationQueue(task)
        return found

    def push(self, frame: Frame, weight: int, grant: CreditGrant | None) -> DestinationQueue:
        """Queue a frame of that weight; ``grant`` is told when the frame leaves."""
        queue = self.destination(frame.destination_task)
        queue.frames.append((frame, weight, grant))
        queue.weight += weight
        self.weight += weight
        self._take_turn(queue)
        return queue

    def grant(self, task: int, limit: int, taken: int = 0) -> None:
        """The far end's word: frames to ``task`` may be sent while what was sent is below ``limit``; of what was sent
        on this connection so much is ``taken``."""
        queue = self.destination(task)
        queue.unconfirmed.take(taken)
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
            queue.unconfirmed.lose(self.lost if lost is None else lost)
            queue.sent = queue.limit = 0
            queue.in_turn = False

    def has_work(self) -> bool:
        """True if ``next_packet`` would give one."""
        return self.is_open and (bool(self.settlements) or bool(self._turns))

    def next_packet(self, max_bytes: int = PACKET_BYTES) -> tuple[Packet, list[CreditGrant]] | None:
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

    def withdraw(self, task: int) -> Iterator[tuple[Frame, int, CreditGrant | None]]:
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

    def _take_turn(self, queue: DestinationQueue) -> None:
        if not queue.in_turn and queue.frames and queue.sent < queue.limit:
            queue.in_turn = True
            self._turns.append(queue)

    def _fill(self, packet: Packet, room: int, empty: bool) -> list[CreditGrant]:
        """Frames in turn while they fit; the first one always does when the packet is empty."""
        grants: dict[CreditGrant, None] = {}
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
            queue.unconfirmed.add(queue.sent, frame.stream, frame.count)
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


CHUNK_BYTES = 64 * 1024
MAX_REASONS = 256
_ITEM_OVERHEAD_BYTES = 32

K = TypeVar("K")


class SettlementQueue:
    """The queue. Each column is kept as the chunks it came in and joined once, when it leaves."""

    def __init__(self) -> None:
        self._acks: dict[int, list[tuple[bytes, bytes]]] = {}
        self._fails: dict[tuple[int, Reason], list[bytes]] = {}
        self._verdicts: dict[tuple[int, Reason | None], list[bytes]] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        return self.bytes > 0

    def ack(self, task: int, roots: bytes, xors: bytes) -> None:
        """For the tracker of ``task``."""
        chunks = self._acks.setdefault(task, [])
        for start in range(0, len(roots), CHUNK_BYTES):
            chunks.append((roots[start : start + CHUNK_BYTES], xors[start : start + CHUNK_BYTES]))
        self.bytes += 2 * len(roots)

    def fail(self, task: int, roots: bytes, reason: Reason) -> None:
        """For the tracker of ``task``."""
        if len(self._fails) >= MAX_REASONS:  # texts are for reading; their number is bounded
            reason = Reason(reason.kind, reason.component, reason.task)
        self._add(self._fails.setdefault((task, reason), []), roots)

    def verdict(self, task: int, roots: bytes, reason: Reason | None) -> None:
        """For the spout task itself; no reason means complete."""
        if reason is not None and len(self._verdicts) >= MAX_REASONS:
            reason = Reason(reason.kind, reason.component, reason.task)
        self._add(self._verdicts.setdefault((task, reason), []), roots)

    def drop_verdicts(self) -> None:
        """Forget the verdicts: the spout's process is gone."""
        self.bytes -= sum(len(chunk) for chunks in self._verdicts.values() for chunk in chunks)
        self._verdicts.clear()

    def fill(self, packet: Packet, room: int) -> int:
        """Move what fits into ``room`` bytes to ``packet``; returns the room that is left."""
        for task in list(self._acks):
            chunks = self._acks[task]
            taken, room = _take([2 * len(roots) for roots, _ in chunks], room)
            if taken:
                roots = b"".join([roots for roots, _ in chunks[:taken]])
                packet.acks.append(Ack(task, roots, b"".join([xors for _, xors in chunks[:taken]])))
                self.bytes -= 2 * len(roots)
            if taken < len(chunks):
                self._acks[task] = chunks[taken:]
                return 0
            del self._acks[task]
        for key in list(self._fails):
            roots, room = self._cut(self._fails, key, room - _text_bytes(key[1]))
            if roots:
                packet.fails.append(Fail(key[0], roots, key[1]))
            if key in self._fails:
                return 0
        for verdict_key in list(self._verdicts):
            roots, room = self._cut(self._verdicts, verdict_key, room - _text_bytes(verdict_key[1]))
            if roots:
                packet.verdicts.append(Verdict(verdict_key[0], roots, verdict_key[1]))
            if verdict_key in self._verdicts:
                return 0
        return room

    def check(self) -> None:
        """Assert every invariant."""
        if not (self._acks or self._fails or self._verdicts):
            assert not self.bytes, "bytes are counted"
            return
        acks = sum(len(roots) + len(xors) for chunks in self._acks.values() for roots, xors in chunks)
        fails = sum(len(chunk) for chunks in self._fails.values() for chunk in chunks)
        verdicts = sum(len(chunk) for chunks in self._verdicts.values() for chunk in chunks)
        assert self.bytes == acks + fails + verdicts, "bytes are counted"

    def _add(self, chunks: list[bytes], roots: bytes) -> None:
        for start in range(0, len(roots), CHUNK_BYTES):
            chunks.append(roots[start : start + CHUNK_BYTES])
        self.bytes += len(roots)

    def _cut(self, queue: dict[K, list[bytes]], key: K, room: int) -> tuple[bytes, int]:
        chunks = queue[key]
        taken, room = _take([len(chunk) for chunk in chunks], room)
        roots = b"".join(chunks[:taken])
        self.bytes -= len(roots)
        if taken == len(chunks):
            del queue[key]
        else:
            queue[key] = chunks[taken:]
        return roots, room


def _text_bytes(reason: Reason | None) -> int:
    return 0 if reason is None else 4 * (len(reason.message) + len(reason.traceback))


def _take(sizes: list[int], room: int) -> tuple[int, int]:
    """How many of the chunks fit, and the room that is left."""
    room -= _ITEM_OVERHEAD_BYTES
    taken = 0
    for size in sizes:
        if size > room:
            break
        room -= size
        taken += 1
    return taken, room


MAX_CHANGES = 64


class ControlOutbox:
    """A queue for one control stream."""

    def __init__(self) -> None:
        self._waiting: dict[Any, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, message: Any) -> None:
        """Queue a message. It takes the place of the older message it replaces, unless it has to follow others."""
        waiting = self._waiting
        if isinstance(message, CauseChange):
            # Differences are numbered and must all arrive, or none: beyond the bound the next whole set repairs it.
            if sum(isinstance(key, tuple) for key in waiting) < MAX_CHANGES:
                waiting[CauseChange, message.number] = message
        elif isinstance(message, CauseSet):
            for key in [key for key in waiting if isinstance(key, tuple) or key is CauseSet]:
                del waiting[key]
            waiting[CauseSet] = message
        elif isinstance(message, PeerCredit) and PeerCredit in waiting:
            limits = {credit.task: credit for credit in waiting[PeerCredit].tasks}
            limits.update({credit.task: credit for credit in message.tasks})
            waiting[PeerCredit] = PeerCredit(tuple(limits[task] for task in sorted(limits)))
        elif isinstance(message, TaskWeights) and TaskWeights in waiting:
            weights = {weight.task: weight for weight in (*waiting[TaskWeights].tasks, *message.tasks)}
            waiting[TaskWeights] = TaskWeights(tuple(weights[task] for task in sorted(weights)))
        else:
            if isinstance(message, PlanUpdate | CheckpointWish):
                waiting.pop(type(message), None)
            waiting[type(message)] = message

    def take(self) -> Any:
        """The next message to send, None when there is none."""
        return self._waiting.pop(next(iter(self._waiting))) if self._waiting else None


def peer_credit(grants: Iterable[CreditGrant], weight_of: Callable[[int], int]) -> PeerCredit:
    """What a peer may send, as a message; ``weight_of`` gives what a tuple weighs for a task."""
    told = sorted(grants, key=lambda grant: grant.task)
    for grant in told:
        grant.told = grant.taken
    return PeerCredit(tuple(TaskCredit(g.task, g.limit, weight_of(g.task), g.told) for g in told))

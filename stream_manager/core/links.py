"""Queues for one link to a local instance or a peer: frames, settlements and control messages.

A link has one *destination queue* per task (one for an instance, one per remote task for a peer) and one queue of
settlements (acks, fails and verdicts). ``Link.next_packet`` is called when the previous write has ended, so everything
that arrived meanwhile shares a packet: settlements first, since they need no credit, then one frame from each
destination with credit in turn. The frames of one destination leave in the order of their arrival, which keeps order
per (source task, destination task). Bounds, credit and packets count frames by weight: their bytes or, for slow tasks,
the duration of their work (``heron_runtime/model/dataflow.py``).

Credit, sequence numbers and the account of unconfirmed frames restart with each connection. Frames that were sent and
not confirmed when a connection ends are lost and counted (``heron_runtime/model/dataflow.py``). Queued frames leave
on the next connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from heron_runtime.model.checkpoints import CheckpointCommand
from heron_runtime.model.dataflow import UnconfirmedFrames
from heron_runtime.model.settings import MiB
from heron_runtime.wire.control import CauseChange, CauseSet, PeerCredit, PlanUpdate, TaskCredit, TaskWeights
from heron_runtime.wire.data import Ack, Fail, Frame, Packet, Reason, Verdict
from stream_manager.core.credit import CreditGrant

PACKET_BYTES = MiB


class LinkTraffic:
    """Totals of one direction over all connections so far."""

    __slots__ = ("acks", "bytes", "fails", "frames", "packets", "tuples")

    def __init__(self) -> None:
        self.packets = self.frames = self.tuples = self.bytes = self.acks = self.fails = 0

    def count(self, packet: Packet) -> None:
        """Count a packet. The caller adds the bytes of its frames."""
        self.packets += 1
        self.frames += len(packet.frames)
        self.tuples += sum([frame.count for frame in packet.frames])
        self.acks += sum([len(ack.roots) for ack in packet.acks]) // 8
        self.fails += sum([len(fail.roots) for fail in packet.fails]) // 8


class DestinationQueue:
    """Frames queued for one task, and the credit that the remote end has granted."""

    __slots__ = ("frames", "in_turn", "limit", "pressed", "sent", "task", "unconfirmed", "weight")

    def __init__(self, task: int) -> None:
        self.task = task
        self.frames: deque[tuple[Frame, int, CreditGrant | None]] = deque()
        self.weight = 0
        self.sent = 0
        self.limit = 0
        self.unconfirmed = UnconfirmedFrames()
        self.in_turn = False
        self.pressed = False  # above the high mark and not yet below the low one

    def sendable_weight(self) -> int:
        """Return the queued weight that has credit."""
        return max(0, min(self.weight, self.limit - self.sent))


class Link:
    """Outgoing side of the connections to one local instance (``task``) or to one peer (``container`` is not 0)."""

    def __init__(self, task: int = 0, container: int = 0) -> None:
        self.task = task
        self.container = container
        self.is_open = False
        self.settlements = SettlementQueue()
        self.destinations: dict[int, DestinationQueue] = {}
        self.weight = 0  # of frames
        self.pressed = False  # the link as a whole is above its mark
        self.marked: dict[DestinationQueue, None] = {}  # queues that are above their mark or over their bound
        self.lost: dict[int, int] = {}  # stream to tuples lost, over all connections
        self.traffic_out = LinkTraffic()
        self._turns: deque[DestinationQueue] = deque()
        self._sequence = 0

    def destination(self, task: int) -> DestinationQueue:
        """Return the queue of a task; create it if needed."""
        queue = self.destinations.get(task)
        if queue is None:
            queue = self.destinations[task] = DestinationQueue(task)
        return queue

    def push(self, frame: Frame, weight: int, grant: CreditGrant | None) -> DestinationQueue:
        """Queue a frame. ``grant`` is charged when the frame leaves."""
        queue = self.destination(frame.destination_task)
        queue.frames.append((frame, weight, grant))
        queue.weight += weight
        self.weight += weight
        self._take_turn(queue)
        return queue

    def grant(self, task: int, limit: int, taken: int = 0) -> None:
        """Apply credit from the remote end.

        Args:
            task: Destination task.
            limit: Frames may be sent while the weight sent on this connection is below it.
            taken: Weight of this connection that the remote end has used.
        """
        queue = self.destination(task)
        queue.unconfirmed.take(taken)
        if limit > queue.limit:
            queue.limit = limit
            self._take_turn(queue)

    def open(self) -> None:
        """Allow packets: the data stream is open."""
        self.is_open = True

    def close(self, lost: dict[int, int] | None = None) -> None:
        """Stop packets: the connection has ended. Counts the frames lost with it in ``lost`` or in the own total."""
        self.is_open = False
        self._sequence = 0
        self._turns.clear()
        for queue in self.destinations.values():
            queue.unconfirmed.lose(self.lost if lost is None else lost)
            queue.sent = queue.limit = 0
            queue.in_turn = False

    def has_work(self) -> bool:
        """Return True if ``next_packet`` would return a packet."""
        return self.is_open and (bool(self.settlements) or bool(self._turns))

    def next_packet(self, max_bytes: int = PACKET_BYTES) -> tuple[Packet, list[CreditGrant]] | None:
        """Return the next packet and the grants of its frames, or None.

        The caller must write the packet to the stream exactly once.

        Args:
            max_bytes: Largest weight of a packet. A single frame may exceed it.
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
        """Remove and yield all queued frames of a task, in order."""
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
        frames, queue.frames = queue.frames, deque()  # the credit stays: the task may return
        yield from frames

    def waiting_bytes(self) -> int:
        """Return the queued weight, with or without credit; 0 if no packet can be sent now."""
        return self.settlements.bytes + self.weight if self.has_work() else 0

    def sendable_weight(self) -> int:
        """Return the weight that waits for the link rather than for a task behind it."""
        if not self.is_open:
            return self.weight
        return sum(queue.sendable_weight() for queue in self.destinations.values())

    def size_bytes(self) -> int:
        """Return the size of the queued frames in memory."""
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
        assert in_turn == len(self._turns), "each destination with a turn stands in the rotation once"

    def _take_turn(self, queue: DestinationQueue) -> None:
        if not queue.in_turn and queue.frames and queue.sent < queue.limit:
            queue.in_turn = True
            self._turns.append(queue)

    def _fill(self, packet: Packet, room: int, empty: bool) -> list[CreditGrant]:
        """Add frames in turn while they fit. The first frame always fits into an empty packet."""
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
    """Acks, fails and verdicts that wait for a link.

    They are combined per task, cut to fit packets, and need no credit. Each column is kept in the chunks it arrived in
    and joined once, when it leaves.
    """

    def __init__(self) -> None:
        self._acks: dict[int, list[tuple[bytes, bytes]]] = {}
        self._fails: dict[tuple[int, Reason], list[bytes]] = {}
        self._verdicts: dict[tuple[int, Reason | None], list[bytes]] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        return self.bytes > 0

    def ack(self, task: int, roots: bytes, xors: bytes) -> None:
        """Queue acks for the tracker of ``task``."""
        chunks = self._acks.setdefault(task, [])
        for start in range(0, len(roots), CHUNK_BYTES):
            chunks.append((roots[start : start + CHUNK_BYTES], xors[start : start + CHUNK_BYTES]))
        self.bytes += 2 * len(roots)

    def fail(self, task: int, roots: bytes, reason: Reason) -> None:
        """Queue fails for the tracker of ``task``."""
        if len(self._fails) >= MAX_REASONS:  # bounds the number of distinct texts
            reason = Reason(reason.kind, reason.component, reason.task)
        self._add(self._fails.setdefault((task, reason), []), roots)

    def verdict(self, task: int, roots: bytes, reason: Reason | None) -> None:
        """Queue verdicts for a spout task. ``reason`` None means complete."""
        if reason is not None and len(self._verdicts) >= MAX_REASONS:
            reason = Reason(reason.kind, reason.component, reason.task)
        self._add(self._verdicts.setdefault((task, reason), []), roots)

    def drop_verdicts(self) -> None:
        """Remove the verdicts: the process of the spout is gone."""
        self.bytes -= sum(len(chunk) for chunks in self._verdicts.values() for chunk in chunks)
        self._verdicts.clear()

    def fill(self, packet: Packet, room: int) -> int:
        """Move settlements of up to ``room`` bytes to ``packet``. Return the remaining room."""
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
    """Return how many chunks fit into ``room``, and the remaining room."""
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
    """Queue of one control stream: the newest message of each kind replaces older ones, and credit is merged.

    The queue is bounded whatever the remote end does: one message of each kind, one limit and weight per task, and the
    changes of the cause set since the last whole set.

    A plan follows the weights that its tasks need, and a checkpoint command follows its plan, so these two move to the
    end when they replace an older message. They are rare. Credit and weights keep the place of the message they
    replace, so that frequent ones are not delayed.
    """

    def __init__(self) -> None:
        self._waiting: dict[Any, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, message: Any) -> None:
        """Queue a message and remove the older message that it replaces."""
        waiting = self._waiting
        if isinstance(message, CauseChange):
            # Changes are numbered and must all arrive or none: above the bound, the next whole set repairs it.
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
            if isinstance(message, PlanUpdate | CheckpointCommand):
                waiting.pop(type(message), None)
            waiting[type(message)] = message

    def take(self) -> Any:
        """Return the next message to send, or None."""
        return self._waiting.pop(next(iter(self._waiting))) if self._waiting else None


def peer_credit(grants: Iterable[CreditGrant], weight_of: Callable[[int], int]) -> PeerCredit:
    """Return a credit message for a peer. ``weight_of`` returns the weight of one tuple for a task."""
    ordered = sorted(grants, key=lambda grant: grant.task)
    for grant in ordered:
        grant.reported = grant.taken
    return PeerCredit(tuple(TaskCredit(g.task, g.limit, weight_of(g.task), g.reported) for g in ordered))

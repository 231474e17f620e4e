"""What the gateway has to send: flushes in, packets out, frames within the upload credit.

Inits, acks and fails of everything that waits go with the next packet, in order and ahead of frames; they need no
credit. Frames follow, first in first out, while ``sent < limit``; a packet is cut at 1 MiB; both count by weight.
Limit and sent start from zero at each hello; what waits stays and goes on the next stream. What was handed to a stream
and is not known to be taken when it ends is lost; the stream manager tells what it has taken with its credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from heron_instance.core.outbox import Flush
from heron_runtime.model.dataflow import HandedOver
from heron_runtime.wire.data import Ack, Fail, Frame, Init, Packet

PACKET_BYTES = 1024 * 1024

T = TypeVar("T")


class Outgoing:
    """The data-out queue as the gateway sees it."""

    def __init__(self) -> None:
        self._inits: deque[Init] = deque()
        self._acks: deque[Ack] = deque()
        self._fails: deque[Fail] = deque()
        self._frames: deque[Frame] = deque()
        self._limit = 0
        self._sent = 0
        self._sequence = 0
        self._handed = HandedOver()

    def put(self, flush: Flush) -> None:
        """Queue a flush behind what waits."""
        self._inits.extend(flush.inits)
        self._acks.extend(flush.acks)
        self._fails.extend(flush.fails)
        self._frames.extend(flush.frames)

    def begin_stream(self) -> None:
        """A new hello: credit and sequence numbers start afresh."""
        self._limit = self._sent = self._sequence = 0

    def end_stream(self) -> dict[int, int]:
        """The stream has ended: what is lost with it, by stream of the topology, in tuples. Never less than it was."""
        lost: dict[int, int] = {}
        self._handed.lose(lost)
        return lost

    def grant(self, limit_bytes: int, taken_bytes: int = 0) -> None:
        """The stream manager's credit, and what it has taken; an older limit that comes late changes nothing."""
        self._limit = max(self._limit, limit_bytes)
        self._handed.take(taken_bytes)

    def sendable(self) -> bool:
        """True if ``take`` has a packet."""
        return bool(self._inits or self._acks or self._fails or (self._frames and self._sent < self._limit))

    def empty(self) -> bool:
        """True if nothing waits, with or without credit."""
        return not (self._inits or self._acks or self._fails or self._frames)

    def take(self) -> tuple[Packet, int] | None:
        """The next packet and the weight of its frames, or None when nothing may be sent."""
        if not self.sendable():
            return None
        self._sequence += 1
        packet = Packet(self._sequence)
        room = PACKET_BYTES
        # A fail may be about a root whose init is still here, so the inits go first, all of them or nothing else.
        room -= _move(self._inits, packet.inits, room, (len(i.xors) for i in self._inits))
        if not self._inits:
            room -= _move(self._acks, packet.acks, room, (2 * len(a.roots) for a in self._acks))
            room -= _move(self._fails, packet.fails, room, (len(f.roots) for f in self._fails))
        frame_weight = 0
        if not self._inits:
            frames = self._frames
            while frames and self._sent < self._limit:
                weight = frames[0].weight()
                if weight > room and (packet.frames or room < PACKET_BYTES):
                    break
                room -= weight
                self._sent += weight
                frame_weight += weight
                frame = frames.popleft()
                packet.frames.append(frame)
                self._handed.add(self._sent, frame.stream, frame.count)
        return packet, frame_weight

    def check(self) -> None:
        """Credit is overshot by one frame at most."""
        assert self._sent >= 0
        assert self._limit >= 0


def _move(source: deque[T], target: list[T], room: int, sizes: Iterable[int]) -> int:
    """Move what fits, at least one; returns the bytes moved."""
    if not source:
        return 0
    moved, count = 0, 0
    for size in sizes:
        if count and moved + size > room:
            break
        moved += size
        count += 1
    for _ in range(count):
        target.append(source.popleft())
    return moved

"""What the gateway has to send: flushes in, packets out, frames within the upload credit.

Inits, acks and fails of everything that waits go with the next packet, in order and ahead of frames; they need no
credit. Frames follow, first in first out, while ``sent < limit``; a packet is cut at 1 MiB; both count by weight.
Limit and sent start from zero at each hello; what waits stays and goes on the next stream. What was handed to a stream
and is not known to be taken when it ends is lost; the stream manager tells what it has taken with its credit.

The bound of a queue between the gateway and the executor, and how it adapts (Heron paper, section 5.5.2).

While a queue holds more than its *limit* its capacity is halved at each adjustment, down to zero if need be: then
nothing new is produced or taken, and after an outage the backlog drains before anything is added. While it holds less,
the capacity grows by a sixteenth of the maximum at a time. Only the numbers are here; who adds must ask ``full`` first.
An item is added whole, so ``size`` may pass the capacity by one item.

The credit for frames to this instance: what the executor takes, over all connections, as limits of the one there is.

Limits and accounts start from zero with each hello; frames that came on an earlier connection and are not taken yet are
taken first.

What an input tuple weighs for a bolt task (``heron_runtime/model/weights.py``): how long it keeps the task.

Two things keep a tuple from being done with: the time the executor takes for it, user code and a full data-out
included, and the work it makes for the tasks it is emitted to. A quick bolt before a slow one is as slow as that one;
it would notice by a full data-out only after it had let in whatever its own speed allows. So what it emits is weighed,
too: the weight, for each input tuple, that goes to the task which gets most of it.

Both are means over about the last second, sums that fade with time. A batch bolt may take long for each call, however
many tuples are in it (a bulk insert), and would then get ever smaller batches if only the mean counted. So a line is
fitted through its calls, ``a + b n``, and the weight is such that a data-in queue, a quarter of a second, holds what a
call of ``max(250 ms, 2 a)`` takes, but not more than twice what calls have shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

from heron_instance.core.outbox import Flush
from heron_runtime.model.handed_over import HandedOver
from heron_runtime.model.weights import UNKNOWN_WEIGHT, weight_of
from heron_runtime.wire.control import Credit
from heron_runtime.wire.data import Ack, Fail, Frame, Init, Packet

ADJUST_INTERVAL_MS = 100.0
_STEPS = 16
PACKET_BYTES = 1024 * 1024
T = TypeVar("T")
LOOK_EACH_MS = 100.0
HALF_LIFE_MS = 1000.0
BATCH_HALF_LIFE_MS = 4000.0
QUARTER_MS = 250.0
GROWTH = 2  # of batches from one look to the next
ALIKE = 0.01  # the square of how far they are apart, by their mean
FORGOTTEN = 1e-6
NEWS = 1.25  # a change by less is not worth a message


class AdaptiveQueue:
    """Size and capacity of one queue, in bytes (or in whatever is counted)."""

    def __init__(self, maximum: int, limit: int | None = None) -> None:
        self.maximum = maximum
        self.limit = maximum // 2 if limit is None else limit
        self.capacity = maximum
        self.size = 0
        self._due_ms: float | None = None

    @property
    def full(self) -> bool:
        """True if nothing may be added."""
        return self.size >= self.capacity

    def room(self) -> int:
        """How much may be added."""
        return max(0, self.capacity - self.size)

    def add(self, amount: int) -> None:
        """Something was put in."""
        self.size += amount

    def remove(self, amount: int) -> None:
        """Something was taken out."""
        self.size = max(0, self.size - amount)

    def adjust(self, now_ms: float) -> bool:
        """Adapt the capacity, at most once in each interval. True if it did."""
        if self._due_ms is not None and now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + ADJUST_INTERVAL_MS
        if self.size > self.limit:
            self.capacity //= 2
        elif self.capacity < self.maximum:
            self.capacity = min(self.maximum, self.capacity + max(1, self.maximum // _STEPS))
        return True

    def deadline_ms(self) -> float | None:
        """When ``adjust`` has something to do; None while the queue is at rest."""
        return self._due_ms if self.capacity < self.maximum or self.size > self.limit else None

    def check(self) -> None:
        """Capacity within 0 and the maximum."""
        assert 0 <= self.capacity <= self.maximum
        assert self.size >= 0


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


class Download:
    """Owned by the gateway; the executor thread calls ``offer`` and sets ``taken_weight``."""

    def __init__(self) -> None:
        self.taken_weight = 0  # of frames the executor has taken; it says so itself
        self._total = 0  # weight of frames the executor will take
        self._tuple_weight = UNKNOWN_WEIGHT  # what a tuple weighs for the executor
        self._received = 0
        self._before = 0  # received before the hello
        self._granted = (-1, 0, 0)  # limit, weight and what is taken, as told
        self._taken_due = False

    def offer(self, total_weight: int, tuple_weight: int) -> None:
        """The executor will take frames of so much weight in all; a tuple weighs ``tuple_weight`` for it."""
        self._total, self._tuple_weight = total_weight, tuple_weight

    def begin_stream(self) -> None:
        """A hello."""
        self._before, self._granted = self._received, (-1, 0, 0)

    def receive(self, weight: int) -> None:
        """Frames have come."""
        self._received += weight

    def tell_taken(self) -> bool:
        """Tell what was taken since it was told last, if anything was; True if so."""
        self._taken_due = self._granted[0] >= 0 and self._taken() != self._granted[2]
        return self._taken_due

    def news(self) -> Credit | None:
        """What the stream manager is to be told."""
        limit, weight = max(0, self._total - self._before), self._tuple_weight
        if limit <= self._granted[0] and weight == self._granted[1] and not self._taken_due:
            return None
        self._taken_due = False
        self._granted = (limit, weight, self._taken())
        return Credit(*self._granted)

    def _taken(self) -> int:
        """The weight that is taken of what came on this connection; what the one before left comes first."""
        return max(0, self.taken_weight - self._before)


class Calls:
    """How long calls took, and how many tuples they had; older ones count less."""

    def __init__(self) -> None:
        self.calls = self.tuples = self.ms = self.squares = self.products = self.largest = 0.0

    def add(self, n: int, ms: float) -> None:
        """One call."""
        self.calls += 1
        self.tuples += n
        self.ms += ms
        self.squares += n * n
        self.products += n * ms
        self.largest = max(self.largest, n)

    def fade(self, keep: float) -> None:
        """Count all this less."""
        self.calls *= keep
        self.tuples *= keep
        self.ms *= keep
        self.squares *= keep
        self.products *= keep
        self.largest *= keep

    def batch_tuple_ms(self) -> float:
        """What a tuple of a batch may count for, so that batches get as large as they need to be."""
        mean, most = self.ms / self.tuples, QUARTER_MS / (GROWTH * self.largest)
        spread = self.calls * self.squares - self.tuples * self.tuples
        if spread <= ALIKE * self.tuples * self.tuples:
            return min(mean, most)  # nothing is learned from calls that are all alike: try larger ones
        slope = (self.calls * self.products - self.tuples * self.ms) / spread
        b = min(mean, max(0.0, slope))
        a = (self.ms - b * self.tuples) / self.calls
        return max(QUARTER_MS * b / (max(QUARTER_MS, 2 * a) - a), min(mean, most))


class InputWeight:
    """Of one bolt task. ``tuple_weight`` is the newest word on it."""

    def __init__(self, batchwise: bool) -> None:
        self.tuple_weight = UNKNOWN_WEIGHT
        self.tuple_ms = 0.0  # the executor's time for a tuple, 0 until there was one
        self._batchwise = batchwise
        self._half_life_ms = BATCH_HALF_LIFE_MS if batchwise else HALF_LIFE_MS
        self._calls = Calls()
        self._waited_ms = 0.0  # since the last tuple was done
        self._sent: dict[int, float] = {}  # task that weighs more than bytes to tuples
        self._looked_ms: float | None = None  # None: nothing is known yet

    @property
    def known(self) -> bool:
        """True once it was weighed."""
        return self._looked_ms is not None

    def worked(self, tuples: int, elapsed_ms: float) -> None:
        """The executor was busy, or blocked, for so long and has done so many tuples."""
        if not tuples:
            self._waited_ms += elapsed_ms
            return
        self._calls.add(tuples, elapsed_ms + self._waited_ms)
        self._waited_ms = 0.0

    def sent(self, flush: Flush) -> None:
        """This was emitted."""
        sent = self._sent
        for frame in flush.frames:
            if frame.tuple_weight:
                task = frame.destination_task
                sent[task] = sent.get(task, 0.0) + frame.count

    def look(self, now_ms: float, weights: Mapping[int, int]) -> bool:
        """Weigh anew, if it is time. ``weights``: what a tuple weighs for the tasks that are emitted to. True if the
        weight has changed."""
        if not self._calls.tuples or (self._looked_ms is not None and now_ms < self._looked_ms + LOOK_EACH_MS):
            return False
        first, known = self._looked_ms is None, self.tuple_weight
        weight = max(self._own_weight(), self._emitted_weight(weights))
        self._fade(now_ms)
        if not first and known / NEWS <= weight <= known * NEWS:
            return False
        self.tuple_weight = weight
        return weight != known

    def _own_weight(self) -> int:
        calls = self._calls
        # A wait that goes on counts as one more tuple, which has taken that long so far.
        self.tuple_ms = (calls.ms + self._waited_ms) / (calls.tuples + bool(self._waited_ms))
        return weight_of(calls.batch_tuple_ms() if self._batchwise and not self._waited_ms else self.tuple_ms)

    def _emitted_weight(self, weights: Mapping[int, int]) -> int:
        heaviest = max((tuples * weights.get(task, 0) for task, tuples in self._sent.items()), default=0.0)
        return int(heaviest / self._calls.tuples)

    def _fade(self, now_ms: float) -> None:
        elapsed_ms = LOOK_EACH_MS if self._looked_ms is None else now_ms - self._looked_ms
        keep = 0.5 ** (elapsed_ms / self._half_life_ms)
        self._looked_ms = now_ms
        self._calls.fade(keep)
        if self._calls.tuples < FORGOTTEN:
            self._calls = Calls()  # what was told last holds on
        self._sent = {task: tuples * keep for task, tuples in self._sent.items() if tuples * keep > FORGOTTEN}

"""Flow control between gateway and executor: adaptive queues, upload, download credit, and weights of tuples.

``AdaptiveQueue`` is the bound of a queue between the gateway and the executor (Heron paper, section 5.5.2). While a
queue holds more than its *limit*, its capacity is halved at each adjustment, down to zero if need be: then nothing new
is produced or taken, and after an outage the backlog drains before anything is added. While it holds less, the capacity
grows by a sixteenth of the maximum at a time. It holds numbers only; the caller asks ``full`` before it adds. An item
is added whole, so ``size`` may exceed the capacity by one item.

``UploadQueue`` turns flushes into packets within the upload credit. All waiting inits, acks and fails go with the next
packet, in order and ahead of frames; they need no credit. Frames follow, first in first out, while ``sent < limit``. A
packet is cut at 1 MiB; both bounds count by weight. Limit and sent start from zero at each hello. Waiting items go on
the next stream. Frames that were handed to a stream and are not known to be taken when it ends are lost; the stream
manager reports the weight it has taken with its credit.

``DownloadCredit`` is the credit for frames to this instance: the weight that the executor takes over all connections,
as limits of the current one. Limits and counts start from zero with each hello. Frames that came on an earlier
connection and are not taken yet are taken first.

``TupleWeightEstimator`` measures the weight of an input tuple of a bolt (``heron_runtime/model/dataflow.py``): how long
it occupies the task. Two costs count: the time of the executor, including user code and a full data-out, and the work
it causes for downstream tasks. A fast bolt in front of a slow one is as slow as that one; a full data-out would tell it
only after it had taken as much input as its own speed allows. So its emits count as well: the weight, per input tuple,
that goes to the task which receives most of it. Both are means over about the last second, sums that decay with time.
A batch bolt may take long for each call, however many tuples are in it (a bulk insert), and would get ever smaller
batches if only the mean counted. So a line ``a + b n`` is fitted through its calls, and the weight is such that a
data-in queue of a quarter of a second holds what a call of ``max(250 ms, 2 a)`` takes, but not more than twice the
largest batch so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

from heron_instance.core.outbox import Flush
from heron_runtime.model.dataflow import UNKNOWN_WEIGHT, UnconfirmedFrames, weight_of
from heron_runtime.wire.control import Credit
from heron_runtime.wire.data import Ack, Fail, Frame, Init, Packet

ADJUST_INTERVAL_MS = 100.0
_STEPS = 16
PACKET_BYTES = 1024 * 1024
T = TypeVar("T")
UPDATE_INTERVAL_MS = 100.0
HALF_LIFE_MS = 1000.0
BATCH_HALF_LIFE_MS = 4000.0
QUARTER_MS = 250.0
GROWTH = 2  # of batches from one update to the next
SIMILAR_SPREAD = 0.01  # squared relative spread of batch sizes below which no line is fitted
NEGLIGIBLE = 1e-6
REPORTED_CHANGE = 1.25  # smaller changes are not worth a message


class AdaptiveQueue:
    """Size and capacity of one queue, in bytes or another unit."""

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
        """Return how much may be added."""
        return max(0, self.capacity - self.size)

    def add(self, amount: int) -> None:
        """Count an added amount."""
        self.size += amount

    def remove(self, amount: int) -> None:
        """Count a removed amount."""
        self.size = max(0, self.size - amount)

    def adjust(self, now_ms: float) -> bool:
        """Adapt the capacity, at most once in each interval. Return True if it was due."""
        if self._due_ms is not None and now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + ADJUST_INTERVAL_MS
        if self.size > self.limit:
            self.capacity //= 2
        elif self.capacity < self.maximum:
            self.capacity = min(self.maximum, self.capacity + max(1, self.maximum // _STEPS))
        return True

    def deadline_ms(self) -> float | None:
        """Return when ``adjust`` is due, or None while the queue is at rest."""
        return self._due_ms if self.capacity < self.maximum or self.size > self.limit else None

    def check(self) -> None:
        """Assert that the capacity is between 0 and the maximum."""
        assert 0 <= self.capacity <= self.maximum
        assert self.size >= 0


class UploadQueue:
    """Data-out queue of the gateway."""

    def __init__(self) -> None:
        self._inits: deque[Init] = deque()
        self._acks: deque[Ack] = deque()
        self._fails: deque[Fail] = deque()
        self._frames: deque[Frame] = deque()
        self._limit = 0
        self._sent = 0
        self._sequence = 0
        self._handed = UnconfirmedFrames()

    def put(self, flush: Flush) -> None:
        """Append a flush."""
        self._inits.extend(flush.inits)
        self._acks.extend(flush.acks)
        self._fails.extend(flush.fails)
        self._frames.extend(flush.frames)

    def begin_stream(self) -> None:
        """Restart credit and sequence numbers after a new hello."""
        self._limit = self._sent = self._sequence = 0

    def end_stream(self) -> dict[int, int]:
        """Return the tuples lost with the ended stream, by stream of the topology. Never less than the true loss."""
        lost: dict[int, int] = {}
        self._handed.lose(lost)
        return lost

    def grant(self, limit_bytes: int, taken_bytes: int = 0) -> None:
        """Apply the credit of the stream manager and the weight it has taken. An older limit changes nothing."""
        self._limit = max(self._limit, limit_bytes)
        self._handed.take(taken_bytes)

    def sendable(self) -> bool:
        """Return True if ``take`` has a packet."""
        return bool(self._inits or self._acks or self._fails or (self._frames and self._sent < self._limit))

    def empty(self) -> bool:
        """Return True if nothing waits, with or without credit."""
        return not (self._inits or self._acks or self._fails or self._frames)

    def take(self) -> tuple[Packet, int] | None:
        """Return the next packet and the weight of its frames, or None if nothing may be sent."""
        if not self.sendable():
            return None
        self._sequence += 1
        packet = Packet(self._sequence)
        room = PACKET_BYTES
        # A fail may concern a root whose init is still here, so the inits go first: all of them or nothing else.
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
        """Assert that the counts are not negative."""
        assert self._sent >= 0
        assert self._limit >= 0


def _move(source: deque[T], target: list[T], room: int, sizes: Iterable[int]) -> int:
    """Move the items that fit, at least one. Return the bytes moved."""
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


class DownloadCredit:
    """Credit for frames to this instance, owned by the gateway. The executor thread sets offer and taken weight."""

    def __init__(self) -> None:
        self.taken_weight = 0  # of frames the executor has taken; set by the executor thread
        self._total = 0  # weight of frames the executor will take
        self._tuple_weight = UNKNOWN_WEIGHT  # what a tuple weighs for the executor
        self._received = 0
        self._before = 0  # received before the hello
        self._granted = (-1, 0, 0)  # limit, tuple weight and taken weight, as sent last
        self._taken_due = False

    def offer(self, total_weight: int, tuple_weight: int) -> None:
        """Set the total weight of frames that the executor will take, and the weight of a tuple."""
        self._total, self._tuple_weight = total_weight, tuple_weight

    def begin_stream(self) -> None:
        """Restart the limits after a new hello."""
        self._before, self._granted = self._received, (-1, 0, 0)

    def receive(self, weight: int) -> None:
        """Count the weight of received frames."""
        self._received += weight

    def report_taken(self) -> bool:
        """Schedule a report of the weight taken since the last one. Return True if there is any."""
        self._taken_due = self._granted[0] >= 0 and self._taken() != self._granted[2]
        return self._taken_due

    def take_update(self) -> Credit | None:
        """Return the credit to send to the stream manager, or None if it has not changed."""
        limit, weight = max(0, self._total - self._before), self._tuple_weight
        if limit <= self._granted[0] and weight == self._granted[1] and not self._taken_due:
            return None
        self._taken_due = False
        self._granted = (limit, weight, self._taken())
        return Credit(*self._granted)

    def _taken(self) -> int:
        """Return the weight taken of frames of this connection. Frames of the one before are taken first."""
        return max(0, self.taken_weight - self._before)


class CallStatistics:
    """Durations and tuple counts of calls, with decay."""

    def __init__(self) -> None:
        self.calls = self.tuples = self.ms = self.squares = self.products = self.largest = 0.0

    def add(self, n: int, ms: float) -> None:
        """Add one call."""
        self.calls += 1
        self.tuples += n
        self.ms += ms
        self.squares += n * n
        self.products += n * ms
        self.largest = max(self.largest, n)

    def fade(self, keep: float) -> None:
        """Multiply all sums by ``keep``."""
        self.calls *= keep
        self.tuples *= keep
        self.ms *= keep
        self.squares *= keep
        self.products *= keep
        self.largest *= keep

    def batch_tuple_ms(self) -> float:
        """Return the time that a tuple of a batch may count for, so that batches reach the size they need."""
        mean, most = self.ms / self.tuples, QUARTER_MS / (GROWTH * self.largest)
        spread = self.calls * self.squares - self.tuples * self.tuples
        if spread <= SIMILAR_SPREAD * self.tuples * self.tuples:
            return min(mean, most)  # equal calls teach nothing: try larger ones
        slope = (self.calls * self.products - self.tuples * self.ms) / spread
        b = min(mean, max(0.0, slope))
        a = (self.ms - b * self.tuples) / self.calls
        return max(QUARTER_MS * b / (max(QUARTER_MS, 2 * a) - a), min(mean, most))


class TupleWeightEstimator:
    """Estimates the weight of input tuples of one bolt task. ``tuple_weight`` is the newest estimate."""

    def __init__(self, batchwise: bool) -> None:
        self.tuple_weight = UNKNOWN_WEIGHT
        self.tuple_ms = 0.0  # the executor's time for a tuple, 0 until there was one
        self._batchwise = batchwise
        self._half_life_ms = BATCH_HALF_LIFE_MS if batchwise else HALF_LIFE_MS
        self._calls = CallStatistics()
        self._waited_ms = 0.0  # since the last tuple was done
        self._sent: dict[int, float] = {}  # tuples by task, where they weigh more than their bytes
        self._looked_ms: float | None = None  # None: no estimate yet

    @property
    def is_known(self) -> bool:
        """True once there is an estimate."""
        return self._looked_ms is not None

    def add_work(self, tuples: int, elapsed_ms: float) -> None:
        """Add time in which the executor was busy or blocked, and the tuples it has processed."""
        if not tuples:
            self._waited_ms += elapsed_ms
            return
        self._calls.add(tuples, elapsed_ms + self._waited_ms)
        self._waited_ms = 0.0

    def add_flush(self, flush: Flush) -> None:
        """Add emitted frames."""
        sent = self._sent
        for frame in flush.frames:
            if frame.tuple_weight:
                task = frame.destination_task
                sent[task] = sent.get(task, 0.0) + frame.count

    def update(self, now_ms: float, weights: Mapping[int, int]) -> bool:
        """Update the weight if it is time. Return True if it has changed.

        Args:
            now_ms: Current time.
            weights: Weight of a tuple for each downstream task.
        """
        if not self._calls.tuples or (self._looked_ms is not None and now_ms < self._looked_ms + UPDATE_INTERVAL_MS):
            return False
        first, known = self._looked_ms is None, self.tuple_weight
        weight = max(self._own_weight(), self._emitted_weight(weights))
        self._fade(now_ms)
        if not first and known / REPORTED_CHANGE <= weight <= known * REPORTED_CHANGE:
            return False
        self.tuple_weight = weight
        return weight != known

    def _own_weight(self) -> int:
        calls = self._calls
        # A wait that continues counts as one more tuple that has taken so long.
        self.tuple_ms = (calls.ms + self._waited_ms) / (calls.tuples + bool(self._waited_ms))
        return weight_of(calls.batch_tuple_ms() if self._batchwise and not self._waited_ms else self.tuple_ms)

    def _emitted_weight(self, weights: Mapping[int, int]) -> int:
        heaviest = max((tuples * weights.get(task, 0) for task, tuples in self._sent.items()), default=0.0)
        return int(heaviest / self._calls.tuples)

    def _fade(self, now_ms: float) -> None:
        elapsed_ms = UPDATE_INTERVAL_MS if self._looked_ms is None else now_ms - self._looked_ms
        keep = 0.5 ** (elapsed_ms / self._half_life_ms)
        self._looked_ms = now_ms
        self._calls.fade(keep)
        if self._calls.tuples < NEGLIGIBLE:
            self._calls = CallStatistics()  # the last estimate stays
        self._sent = {task: tuples * keep for task, tuples in self._sent.items() if tuples * keep > NEGLIGIBLE}

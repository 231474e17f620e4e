"""What an input tuple weighs for a bolt task (``heron_runtime/model/dataflow.py``): how long it keeps the task.

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

from collections.abc import Mapping

from heron_instance.core.outbox import Flush
from heron_runtime.model.dataflow import UNKNOWN_WEIGHT, weight_of

LOOK_EACH_MS = 100.0
HALF_LIFE_MS = 1000.0
BATCH_HALF_LIFE_MS = 4000.0
QUARTER_MS = 250.0
GROWTH = 2  # of batches from one look to the next
ALIKE = 0.01  # the square of how far they are apart, by their mean
FORGOTTEN = 1e-6
NEWS = 1.25  # a change by less is not worth a message


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

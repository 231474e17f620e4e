"""One task's part in checkpoints, within one generation: barriers come, a quiet point is taken, the task goes on.

::

            barrier of the last upstream task             resume, cancel, a later checkpoint
    FLOWING ─────────────────────────────────▶ QUIET ────────────────────────────────────▶ FLOWING
       ▲          (a spout: told to begin)       │ longer than the timeout: decline, and stay
       └── a frame behind a barrier: decline ────┘

Theory of operation. A channel is a pair of tasks with an edge between them. Barriers travel in it like frames, so a
task that has barrier n of every channel has processed exactly what was sent before it (Chandy and Lamport 1985; Carbone
et al. 2015). Here nobody who has sent its barrier sends on until all tasks are there, so all channels are empty then
and nothing needs to be held back. Each barrier says how many frames went before it: one that is lost is noticed by the
next barrier. Numbers only grow; what is over is ignored, however late it comes.

The report holds the whole state and goes with each heartbeat, so it does not matter which of them is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from heron_runtime.model.checkpoints import Part, TaskReport
from heron_runtime.model.plan import NO_CHECKPOINT

KEPT_PARTS = 4  # reported as stored, the newest


@dataclass(frozen=True, slots=True)
class Barrier:
    """What travels in a channel: ``count`` frames of this generation have been sent in it before."""

    generation: int
    checkpoint: int
    turn: int
    count: int


@dataclass(frozen=True, slots=True)
class Align:
    """To do now: end the work in hand, take the snapshot, send barriers; then call ``Participant.aligned``."""

    checkpoint: int
    turn: int


class Participant:
    """A task in its generation. ``upstream``: the tasks whose components share an edge with its own; none: a spout."""

    def __init__(self, generation: int, upstream: Iterable[int], timeout_ms: float) -> None:
        self.generation = generation
        self.timeout_ms = timeout_ms
        self.quiet = False
        self.complete = NO_CHECKPOINT
        self._upstream = frozenset(upstream)
        self._current = NO_CHECKPOINT  # whose barriers come, or came last
        self._over = NO_CHECKPOINT
        self._seen: set[int] = set()  # upstream tasks whose barrier ``_current`` was read
        self._frames: Counter[int] = Counter()
        self._quiet_since_ms = 0.0
        self._restored = False
        self._aligned = self.declined = self._confirmed = NO_CHECKPOINT
        self._declined_why = self._lost = ""
        self._stored: dict[int, Part] = {}

    @property
    def report(self) -> TaskReport:
        """The whole state, as it is."""
        return TaskReport(
            self.generation, self._restored, self._aligned, tuple(self._stored.values()), self.declined,
            self._declined_why, self._confirmed, self._lost,
        )  # fmt: skip

    # Channels.

    def may_take(self, source: int) -> bool:
        """Whether a frame of ``source`` may be taken now. One behind a barrier declines the checkpoint: its sender goes
        on, so the checkpoint is over."""
        if self.quiet:
            return False
        if source in self._seen and self._current > self._over:
            self.decline(self._current, f"task {source} has gone on")
            self.over(self._current)
        return True

    def taken(self, source: int) -> None:
        """A frame of ``source`` was taken."""
        self._frames[source] += 1

    def barrier(self, source: int, barrier: Barrier) -> Align | None:
        """A barrier was read; returned is what it leads to."""
        if barrier.generation != self.generation or source not in self._upstream:
            self._lose(f"a barrier of generation {barrier.generation} came from task {source}")
            return None
        if barrier.count != self._frames[source]:
            self._lose(f"{barrier.count} frames were sent by task {source}, and {self._frames[source]} came")
            return None
        number = barrier.checkpoint
        if number <= self._over or number < self._current or (self.quiet and number == self._current):
            return None
        if number > self._current:
            self.over(self._current)  # a later one has begun
            self._current, self._seen = number, set()
        self._seen.add(source)
        return Align(number, barrier.turn) if self._seen == self._upstream else None

    # A spout is told to begin.

    def begin(self, checkpoint: int, turn: int) -> Align | None:
        """The master's word; it may come twice, late, or after the checkpoint is over."""
        if self._upstream or checkpoint <= max(self._over, self._current):
            return None
        self.over(self._current)
        self._current = checkpoint
        return Align(checkpoint, turn)

    def aligned(self, checkpoint: int, now_ms: float) -> None:
        """The snapshot is taken and the barriers are on their way."""
        self.quiet = True
        self._quiet_since_ms = now_ms
        self._aligned = checkpoint

    # What the master says.

    def over(self, checkpoint: int) -> None:
        """Resume or cancel: all checkpoints up to this one are over for this task."""
        if checkpoint <= self._over:
            return
        self._over = checkpoint
        if self._current <= checkpoint:
            self.quiet = False
            self._seen.clear()

    def completed(self, checkpoint: int) -> bool:
        """This checkpoint is complete. It does not end a quiet. True if that is news."""
        news = checkpoint > self.complete
        self.complete = max(self.complete, checkpoint)
        return news

    # What the task does meanwhile.

    def restored(self) -> None:
        """State is loaded and user code initialised."""
        self._restored = True

    def stored(self, part: Part) -> None:
        """The snapshot is safe in the storage."""
        self._stored[part.checkpoint] = part
        for old in sorted(self._stored)[:-KEPT_PARTS]:
            del self._stored[old]

    def confirmed(self, checkpoint: int) -> None:
        """Everything that was prepared for checkpoints up to this one is committed."""
        self._confirmed = max(self._confirmed, checkpoint)

    def decline(self, checkpoint: int, why: str) -> None:
        """This checkpoint cannot be had from this task."""
        if checkpoint > self.declined:
            self.declined, self._declined_why = checkpoint, why

    def disconnected(self) -> None:
        """The data connection of this generation has ended."""
        self._lose("the connection to the stream manager ended")

    def tick(self, now_ms: float) -> None:
        """Time passes. A quiet that lasts too long is declined; it still ends only when the master says so."""
        if self.quiet and now_ms > self.quiet_until_ms:
            self.decline(self._current, f"nobody said resume for {self.timeout_ms / 1000:.0f} s")

    @property
    def quiet_until_ms(self) -> float:
        """When a quiet has lasted too long."""
        return self._quiet_since_ms + self.timeout_ms

    @property
    def declines_current(self) -> bool:
        """True once time changes nothing any more about the checkpoint under way."""
        return self.declined >= self._current

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why

    def check(self) -> None:
        """Assert every invariant."""
        assert not self.quiet or self._current > self._over, "quiet for a checkpoint that is over"
        assert self._seen <= self._upstream
        assert len(self._stored) <= KEPT_PARTS
        assert self._aligned <= self._current

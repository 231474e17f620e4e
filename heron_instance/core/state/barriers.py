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

Barriers as frames: they travel in a channel like its data, and stream managers do not tell them apart.

One task's part in an update that takes tasks away, where state is not kept: nothing is on its way when it happens.

::

             a plan that drains       all barriers, nothing open       one that flows, or it takes too long
    FLOWING ───────────────────▶ draining ─────────────────────▶ quiet ──────────────────────────────────▶ FLOWING
       └─────────────── a plan that settles (a process that begins in it) ──▶ quiet

Theory of operation. With the old plan marked as *draining* spouts are asked for nothing more. One that has nothing open
and nothing to be told of sends a barrier down each of its channels (``state/barriers.py``), numbered with the plan, and
is silent; so what it has emitted is processed wherever it is anchored, and what is not is in front of the barriers. A
bolt goes on, ticks included, until it has the barrier of each upstream task; then it sends its own and is silent, too.
When all have said so no channel holds anything, and the master stores the new plan, *settling* until nobody goes by the
old one any more. A plan that flows ends it at any time.

A barrier that is lost, a tuple that a bolt keeps, or a call that does not return make it last; then the master goes on
without waiting, and a task that hears nothing of it goes on by itself: no topology stands still because nobody decides.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from heron_runtime.model.checkpoints import Part, TaskReport
from heron_runtime.model.generations import NO_CHECKPOINT
from heron_runtime.model.plan import PhysicalPlan, Standstill
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.data import BARRIER, Frame

KEPT_PARTS = 4  # reported as stored, the newest
_FIELDS = struct.Struct("<QQqQ")
PATIENCE = 3  # times as long as the master waits


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


class NoBarrier(ValueError):
    """A frame says that it is a barrier, and is none."""


def channels(plan: PhysicalPlan, component: str) -> tuple[list[int], list[int]]:
    """The tasks that a task of this component hears, and those that hear it, whatever the groupings: in order."""
    edges = list(plan.topology.edges())
    upstream = {edge.source for edge in edges if edge.destination == component}
    downstream = {edge.destination for edge in edges if edge.source == component}
    return _tasks_of(plan, upstream), _tasks_of(plan, downstream)


def _tasks_of(plan: PhysicalPlan, components: set[str]) -> list[int]:
    return sorted(task for name in components for task in plan.tasks_of(name))


def barrier_frame(source: int, destination: int, routing_version: int, barrier: Barrier) -> Frame:
    """The barrier on its way from one task to another."""
    values = _FIELDS.pack(barrier.generation, barrier.checkpoint, barrier.turn, barrier.count)
    return Frame(source, 0, destination, 0, routing_version, BARRIER, values)


def barrier_of(frame: Frame) -> Barrier:
    """The barrier in a frame. Raises NoBarrier."""
    if len(frame.values) != _FIELDS.size or frame.count:
        raise NoBarrier(f"{len(frame.values)} bytes for {frame.count} tuples from task {frame.source_task}")
    return Barrier(*_FIELDS.unpack(frame.values))


class DrainingTask:
    """Of one executor."""

    def __init__(self, plan: PhysicalPlan, task: int, now_ms: float) -> None:
        self.stands = False  # an update goes on here
        self.quiet = False  # and nothing leaves this task of its own accord: no tick fires, no spout is asked or told
        self.report = TaskReport(0)
        self._task = task
        self._name = plan.component_of(task)
        self._seen: set[int] = set()  # upstream tasks whose barrier of ``_number`` was read
        self._number = 0  # of the newest plan that drains, as plans or barriers say
        self._aligned = 0  # the plan for which it is silent
        self._until_ms = 0.0  # by then it goes on by itself
        self._follow(plan, now_ms)

    @property
    def due(self) -> bool:
        """True if barriers are to be sent as soon as nothing is in hand (a spout: and nothing is open)."""
        return self.stands and not self.quiet and self._seen >= set(channels(self._plan, self._name)[0])

    def follow(self, plan: PhysicalPlan, now_ms: float) -> None:
        """A new plan; an older one than ours is refused."""
        if plan.version > self._plan.version:
            self._follow(plan, now_ms)

    def _follow(self, plan: PhysicalPlan, now_ms: float) -> None:
        self._plan = plan
        number, standstill = plan.version.number, plan.standstill
        self.stands = standstill is not Standstill.NONE
        self.quiet = standstill is Standstill.SETTLING
        self._say(number if self.quiet and self._aligned else 0)
        if self.stands:
            secs = setting(plan.topology.config, Keys.TOPOLOGY_UPDATE_DRAIN_SECS)
            self._until_ms = now_ms + PATIENCE * 1000 * secs
        if standstill is Standstill.DRAINING:
            self._expect(number)

    def barrier(self, frame: Frame) -> None:
        """A barrier was taken; all that this channel carried before it is processed."""
        try:
            number = barrier_of(frame).checkpoint
        except NoBarrier:
            return  # it is not this release's; the drain takes its time, and the update goes on without it
        if number >= self._number:
            self._expect(number)
            self._seen.add(frame.source_task)

    def barriers(self) -> list[Frame]:
        """Fall silent; returns what is to be sent behind all that was."""
        number = self._plan.version.number
        self.quiet = True
        self._say(number)
        barrier = Barrier(0, number, 0, 0)
        return [
            barrier_frame(self._task, task, self._plan.routing_version, barrier)
            for task in channels(self._plan, self._name)[1]
        ]

    def tick(self, now_ms: float) -> None:
        """Time passes."""
        if self.stands and now_ms >= self._until_ms:
            self.stands = self.quiet = False
            self._say(0)

    def deadline_ms(self) -> float | None:
        """When ``tick`` changes something."""
        return self._until_ms if self.stands else None

    def _expect(self, number: int) -> None:
        if number > self._number:
            self._number = number
            self._seen.clear()

    def _say(self, aligned: int) -> None:
        self._aligned = aligned
        if self.report.aligned != aligned:
            self.report = TaskReport(0, aligned=aligned)

    def check(self) -> None:
        """Assert every invariant."""
        assert self.stands or not self.quiet
        assert not self._aligned or self._aligned == self._plan.version.number, "a word about another plan"
        assert self.report.aligned == self._aligned

"""Barriers: a task's part in checkpoints, and in updates that drain channels.

::

            barrier of the last upstream task             resume, cancel, a later checkpoint
    FLOWING ─────────────────────────────────▶ QUIET ────────────────────────────────────▶ FLOWING
       ▲          (a spout: command to begin)    │ longer than the timeout: decline, and stay
       └── a frame after a barrier: decline ─────┘

Theory of operation. A channel is a pair of tasks with an edge between them. Barriers travel in it like frames, and
stream managers do not distinguish them. So a task that has barrier n of every channel has processed exactly the frames
sent before it (Chandy and Lamport 1985; Carbone et al. 2015). A task that has sent its barrier sends nothing more until
all tasks are aligned, so all channels are empty then and nothing needs to be held back. Each barrier states how many
frames went before it: a lost frame is noticed by the next barrier. Numbers only grow; a checkpoint that is over is
ignored. The report holds the whole state and goes with each heartbeat, so the loss of a report does not matter.

``UpdateDrain`` is the part of a task in an update that removes tasks, without checkpoints: no frame may be in flight
when it happens.

::

             a plan that drains       all barriers, nothing open       a plan that flows, or a timeout
    FLOWING ───────────────────▶ draining ─────────────────────▶ quiet ──────────────────────────────▶ FLOWING
       └─────────────── a plan that settles (a process that begins in it) ──▶ quiet

While the old plan is marked as *draining*, spouts are not asked for tuples. A spout without open roots and undelivered
acks sends a barrier down each of its channels, numbered with the plan, and is silent. A bolt continues, ticks included,
until it has the barrier of each upstream task; then it sends its own barriers and is silent. When all tasks have
reported this, no channel holds a frame, and the master stores the new plan, *settling* until every process has left the
old one. A plan that flows ends the drain at any time. A lost barrier, a tuple kept by a bolt, or a call that does not
return delays the drain; then the master continues without waiting, and a task without news of it resumes by timeout, so
that a topology never halts forever for lack of a decision.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from heron_runtime.model.checkpoints import StatePart, TaskReport
from heron_runtime.model.plan import NO_CHECKPOINT, PhysicalPlan, UpdatePhase
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.data import BARRIER, Frame

MAX_STORED_PARTS = 4  # the newest parts, reported as stored
_FIELDS = struct.Struct("<QQqQ")
DRAIN_TIMEOUT_FACTOR = 3  # times the master's own timeout


@dataclass(frozen=True, slots=True)
class Barrier:
    """Message in a channel: ``count`` frames of this generation were sent in it before."""

    generation: int
    checkpoint: int
    turn: int
    count: int


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """Request to finish the current work, take the snapshot and send barriers, and then call ``aligned``."""

    checkpoint: int
    turn: int


class CheckpointParticipant:
    """State machine of a task's part in the checkpoints of one generation.

    Args:
        generation: Generation of the task.
        upstream: Tasks whose components share an edge with this one; none for a spout.
        timeout_ms: Maximum duration of a quiet point.
    """

    def __init__(self, generation: int, upstream: Iterable[int], timeout_ms: float) -> None:
        self.generation = generation
        self.timeout_ms = timeout_ms
        self.quiet = False
        self.complete = NO_CHECKPOINT
        self._upstream = frozenset(upstream)
        self._current = NO_CHECKPOINT  # the checkpoint of the newest barrier
        self._over = NO_CHECKPOINT
        self._seen: set[int] = set()  # upstream tasks whose barrier ``_current`` was read
        self._frames: Counter[int] = Counter()
        self._quiet_since_ms = 0.0
        self._restored = False
        self._aligned = self.declined = self._confirmed = NO_CHECKPOINT
        self._declined_why = self._lost = ""
        self._stored: dict[int, StatePart] = {}

    @property
    def report(self) -> TaskReport:
        """Whole state, for the master."""
        return TaskReport(
            self.generation, self._restored, self._aligned, tuple(self._stored.values()), self.declined,
            self._declined_why, self._confirmed, self._lost,
        )  # fmt: skip

    # Channels.

    def may_take(self, source: int) -> bool:
        """Return True if a frame of ``source`` may be taken now.

        A frame after a barrier declines the checkpoint: its sender has resumed, so the checkpoint is over.
        """
        if self.quiet:
            return False
        if source in self._seen and self._current > self._over:
            self.decline(self._current, f"task {source} has resumed")
            self.over(self._current)
        return True

    def taken(self, source: int) -> None:
        """Count a frame taken from ``source``."""
        self._frames[source] += 1

    def barrier(self, source: int, barrier: Barrier) -> SnapshotRequest | None:
        """Apply a barrier. Return a request if it was the last one."""
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
        return SnapshotRequest(number, barrier.turn) if self._seen == self._upstream else None

    # Commands to a spout.

    def begin(self, checkpoint: int, turn: int) -> SnapshotRequest | None:
        """Begin a checkpoint by command of the master, in a spout. The command may come twice, late, or too late."""
        if self._upstream or checkpoint <= max(self._over, self._current):
            return None
        self.over(self._current)
        self._current = checkpoint
        return SnapshotRequest(checkpoint, turn)

    def aligned(self, checkpoint: int, now_ms: float) -> None:
        """Enter the quiet: the snapshot is taken and the barriers are on their way."""
        self.quiet = True
        self._quiet_since_ms = now_ms
        self._aligned = checkpoint

    # Commands of the master.

    def over(self, checkpoint: int) -> None:
        """End all checkpoints up to this one, by resume or cancel."""
        if checkpoint <= self._over:
            return
        self._over = checkpoint
        if self._current <= checkpoint:
            self.quiet = False
            self._seen.clear()

    def completed(self, checkpoint: int) -> bool:
        """Take note that a checkpoint is complete. Return True if that is news. It does not end a quiet."""
        is_news = checkpoint > self.complete
        self.complete = max(self.complete, checkpoint)
        return is_news

    # Progress of the task.

    def restored(self) -> None:
        """Take note that state is loaded and user code initialized."""
        self._restored = True

    def stored(self, part: StatePart) -> None:
        """Take note that a part is safe in the storage."""
        self._stored[part.checkpoint] = part
        for old in sorted(self._stored)[:-MAX_STORED_PARTS]:
            del self._stored[old]

    def confirmed(self, checkpoint: int) -> None:
        """Take note that everything prepared for checkpoints up to this one is committed."""
        self._confirmed = max(self._confirmed, checkpoint)

    def decline(self, checkpoint: int, why: str) -> None:
        """Decline a checkpoint, for the reason ``why``."""
        if checkpoint > self.declined:
            self.declined, self._declined_why = checkpoint, why

    def disconnected(self) -> None:
        """Take note that the data connection of this generation has ended."""
        self._lose("the connection to the stream manager ended")

    def tick(self, now_ms: float) -> None:
        """Decline a checkpoint whose quiet lasts too long. Only the master ends the quiet."""
        if self.quiet and now_ms > self.quiet_until_ms:
            self.decline(
                self._current, f"no resume command from the topology master for {self.timeout_ms / 1000:.0f} s"
            )

    @property
    def quiet_until_ms(self) -> float:
        """When a quiet has lasted too long."""
        return self._quiet_since_ms + self.timeout_ms

    @property
    def declines_current(self) -> bool:
        """True once the current checkpoint is declined."""
        return self.declined >= self._current

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why

    def check(self) -> None:
        """Assert every invariant."""
        assert not self.quiet or self._current > self._over, "quiet for a checkpoint that is over"
        assert self._seen <= self._upstream
        assert len(self._stored) <= MAX_STORED_PARTS
        assert self._aligned <= self._current


class InvalidBarrier(ValueError):
    """A frame is marked as a barrier but cannot be decoded as one."""


def channel_tasks(plan: PhysicalPlan, component: str) -> tuple[list[int], list[int]]:
    """Return the upstream and the downstream tasks of a component, whatever the groupings, in order."""
    edges = list(plan.topology.edges())
    upstream = {edge.source for edge in edges if edge.destination == component}
    downstream = {edge.destination for edge in edges if edge.source == component}
    return _tasks_of(plan, upstream), _tasks_of(plan, downstream)


def _tasks_of(plan: PhysicalPlan, components: set[str]) -> list[int]:
    return sorted(task for name in components for task in plan.tasks_of(name))


def barrier_frame(source: int, destination: int, routing_version: int, barrier: Barrier) -> Frame:
    """Make the frame of a barrier from one task to another."""
    values = _FIELDS.pack(barrier.generation, barrier.checkpoint, barrier.turn, barrier.count)
    return Frame(source, 0, destination, 0, routing_version, BARRIER, values)


def read_barrier(frame: Frame) -> Barrier:
    """Return the barrier in a frame. Raises InvalidBarrier."""
    if len(frame.values) != _FIELDS.size or frame.count:
        raise InvalidBarrier(f"{len(frame.values)} bytes for {frame.count} tuples from task {frame.source_task}")
    return Barrier(*_FIELDS.unpack(frame.values))


class UpdateDrain:
    """Part of one executor in updates that drain channels."""

    def __init__(self, plan: PhysicalPlan, task: int, now_ms: float) -> None:
        self.is_draining = False  # an update is in progress
        self.quiet = False  # and no tick fires, no spout is called and no ack delivered
        self.report = TaskReport(0)
        self._task = task
        self._name = plan.component_of(task)
        self._seen: set[int] = set()  # upstream tasks whose barrier of ``_number`` was read
        self._number = 0  # of the newest plan that drains, by plans or barriers
        self._aligned = 0  # the plan for which it is silent
        self._until_ms = 0.0  # when the drain times out
        self._follow(plan, now_ms)

    @property
    def due(self) -> bool:
        """True if barriers are due as soon as no work is in progress (a spout: and no root is open)."""
        return self.is_draining and not self.quiet and self._seen >= set(channel_tasks(self._plan, self._name)[0])

    def follow(self, plan: PhysicalPlan, now_ms: float) -> None:
        """Apply a new plan. An older plan is ignored."""
        if plan.version > self._plan.version:
            self._follow(plan, now_ms)

    def _follow(self, plan: PhysicalPlan, now_ms: float) -> None:
        self._plan = plan
        number, standstill = plan.version.number, plan.standstill
        self.is_draining = standstill is not UpdatePhase.NONE
        self.quiet = standstill is UpdatePhase.SETTLING
        self._say(number if self.quiet and self._aligned else 0)
        if self.is_draining:
            secs = setting(plan.topology.config, Keys.TOPOLOGY_UPDATE_DRAIN_SECS)
            self._until_ms = now_ms + DRAIN_TIMEOUT_FACTOR * 1000 * secs
        if standstill is UpdatePhase.DRAINING:
            self._expect(number)

    def barrier(self, frame: Frame) -> None:
        """Apply a barrier. All frames before it in its channel are processed."""
        try:
            number = read_barrier(frame).checkpoint
        except InvalidBarrier:
            return  # a barrier of another release: the drain times out, and the update continues without it
        if number >= self._number:
            self._expect(number)
            self._seen.add(frame.source_task)

    def barriers(self) -> list[Frame]:
        """Enter the quiet. Return the barriers to send after all other frames."""
        number = self._plan.version.number
        self.quiet = True
        self._say(number)
        barrier = Barrier(0, number, 0, 0)
        return [
            barrier_frame(self._task, task, self._plan.routing_version, barrier)
            for task in channel_tasks(self._plan, self._name)[1]
        ]

    def tick(self, now_ms: float) -> None:
        """Resume if the drain has timed out."""
        if self.is_draining and now_ms >= self._until_ms:
            self.is_draining = self.quiet = False
            self._say(0)

    def deadline_ms(self) -> float | None:
        """Return when ``tick`` changes something, or None."""
        return self._until_ms if self.is_draining else None

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
        assert self.is_draining or not self.quiet
        assert not self._aligned or self._aligned == self._plan.version.number, "a report about another plan"
        assert self.report.aligned == self._aligned

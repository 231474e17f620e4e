"""One task's part in an update that takes tasks away, where state is not kept: nothing is on its way when it happens.

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

from heron_instance.core.state.barriers import NoBarrier, barrier_frame, barrier_of, channels
from heron_instance.core.state.participant import Barrier
from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.plan import PhysicalPlan, UpdatePhase
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.data import Frame

PATIENCE = 3  # times as long as the master waits


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
        self.stands = standstill is not UpdatePhase.NONE
        self.quiet = standstill is UpdatePhase.SETTLING
        self._say(number if self.quiet and self._aligned else 0)
        if self.stands:
            secs = setting(plan.topology.config, Keys.TOPOLOGY_UPDATE_DRAIN_SECS)
            self._until_ms = now_ms + PATIENCE * 1000 * secs
        if standstill is UpdatePhase.DRAINING:
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

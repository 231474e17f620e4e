"""Updates that take tasks away where state is not kept: what is on its way is processed first.

::

    old plan ──▶ old plan, draining ──all tasks silent──▶ new plan, settling ──all go by it──▶ new plan
       ▲                │ │ given up                                │ too long          ▲
       └── taken back ──┘ └─────────────────────────────────────────┴───────────────────┘

Theory of operation. A plan under which a task goes, moves or begins anew is stored in up to three steps, each a plan
with a version of its own. While one *drains* spouts emit nothing more, and every task says when it has the barriers of
all that send to it and is silent, too (``heron_instance/core/standstill.py``). Then nothing is on its way, and the new
plan is stored; it *settles* until every stream manager, and every task that was silent, goes by it, so that nobody
sends to where a task has been. With the third step all go on.

Each step lasts ``topology.update.drain.secs`` at most, by this master's own ticks; then the new plan is stored as it
is, which says why. What a step is stands in the plan and what is asked for in the store, so a master that comes later
goes on with it, from its beginning; and whatever it finds, the next plan that it stores is one step further, or the
old one again. Nothing stands still longer than the steps last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from heron_runtime.model.generations import PlaceKind
from heron_runtime.model.plan import PhysicalPlan, PlanVersion, Standstill
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.master import PlaceReport
from topology_master.core.membership import MAX_STEP_MS, Membership
from topology_master.core.planner import takes_away, with_state

SHOWN = 3
LATE = "after {:g} s (topology.update.drain.secs) somebody still went by the plan before"


class Draining:
    """Of one master, for as long as it leads. Reports are those of tasks, by the container that tells of them."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._reports: dict[int, dict[int, int]] = {}  # container: task: the plan for which it is silent, or 0
        self._clock_ms = 0  # its own ticks
        self._now_ms: int | None = None
        self._step = PlanVersion()  # the one that stands, and since when
        self._since_ms = 0

    def advance(self, now_ms: int) -> None:
        """Time passes; its own pause gives nothing up."""
        self._clock_ms += 0 if self._now_ms is None else min(now_ms - self._now_ms, MAX_STEP_MS)
        self._now_ms = now_ms

    def heard(self, container: int, reports: Iterable[PlaceReport]) -> None:
        """What a container's stream manager tells of its tasks."""
        self._reports[container] = {r.place.number: r.report.aligned for r in reports if r.place.kind is PlaceKind.TASK}

    def next_plan(self, before: PhysicalPlan, plan: PhysicalPlan, epoch: int) -> PhysicalPlan:
        """The next step from the plan that stands to the one that is wanted; the one that stands itself, if it is to
        be waited for."""
        if self._step != before.version:
            self._step, self._since_ms = before.version, self._clock_ms
        secs = setting(plan.topology.config, Keys.TOPOLOGY_UPDATE_DRAIN_SECS)
        over = self._clock_ms - self._since_ms >= 1000 * secs
        standstill = before.standstill
        if not takes_away(before, plan):
            alike = replace(before, version=plan.version, standstill=Standstill.NONE) == plan
            if standstill is not Standstill.SETTLING or not alike or self._settled(before):
                return plan
            return replace(plan, undrained=LATE.format(secs)) if over else before
        if standstill is not Standstill.DRAINING:
            return with_state(before, plan.state, epoch, Standstill.DRAINING) if secs else plan
        busy = self._busy(before)
        if not busy:
            return replace(plan, standstill=Standstill.SETTLING)
        if self._stream_managers_changed(before):
            return replace(plan, undrained="a stream manager has begun anew meanwhile")
        if over:
            return replace(plan, undrained=_not_silent(before, busy, secs))
        return before

    def _busy(self, plan: PhysicalPlan) -> list[int]:
        """The tasks that have not said that they are silent for this plan."""
        number = plan.version.number
        return [task for task in plan.tasks() if self._reports.get(plan.container_of(task), {}).get(task, 0) != number]

    def _settled(self, plan: PhysicalPlan) -> bool:
        """True if nobody goes by another plan any more. Tasks that have said nothing begin with this one."""
        here = [self._reports.get(container.container, {}) for container in plan.packing.containers]
        said = (number for reports in here for number in reports.values() if number)
        return self._membership.all_follow(plan.version) and all(number >= plan.version.number for number in said)

    def _stream_managers_changed(self, plan: PhysicalPlan) -> bool:
        known = {info.container: info for info in plan.stream_managers}
        return any(info != known.get(info.container, info) for info in self._membership.registrations())

    def check(self) -> None:
        """Assert every invariant."""
        assert self._since_ms <= self._clock_ms


def _not_silent(plan: PhysicalPlan, tasks: list[int], secs: float) -> str:
    some = ", ".join(f"{plan.component_of(task)} task {task}" for task in tasks[:SHOWN])
    more = f" and {len(tasks) - SHOWN} more" if tasks[SHOWN:] else ""
    return f"after {secs:g} s (topology.update.drain.secs) {some}{more} had not come to rest"

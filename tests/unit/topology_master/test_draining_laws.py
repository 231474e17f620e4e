"""Updates where state is not kept: whatever happens, the next plan is one step further, or the old one again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.plan import (
    ContainerPlan,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
    UpdatePhase,
    task_participant,
)
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.master import Heartbeat, ParticipantReport
from tests.support.harness.masters import definition, info, packing, registration
from topology_master.core.membership import Membership
from topology_master.core.planner import NOT_SETTLED, UpdateSequencer, build_physical_plan, removes_tasks, replace_state

RUNNING = TopologyState.RUNNING
SECS = 10.0  # the default of topology.update.drain.secs
NEITHER, DRAINING, SETTLING = UpdatePhase.NONE, UpdatePhase.DRAINING, UpdatePhase.SETTLING
OLD = packing(2)


def swapped() -> PackingPlan:
    """Tasks 2 and 4 change places."""
    first, second = OLD.containers
    return PackingPlan(
        OLD.topology,
        (
            ContainerPlan(1, (first.instances[0], second.instances[1])),
            ContainerPlan(2, (second.instances[0], first.instances[1])),
        ),
    )


NEW = swapped()


class Steps:
    """A master that stores what it decides at once, two stream managers, four tasks."""

    def __init__(self, config: dict[str, object] | None = None) -> None:
        self.definition = definition(config)
        self.membership = Membership(10_000)
        self.membership.expect([1, 2])
        for container in (1, 2):
            self.membership.register(container, registration(container))
        self.now_ms = 0
        self.elect()
        plan = build_physical_plan(self.definition, OLD, self.membership.registrations(), None, 1, RUNNING)
        assert plan is not None
        self.plan: PhysicalPlan = plan
        self.wanted = NEW

    def elect(self) -> None:
        """Another one, that knows nothing."""
        self.draining = UpdateSequencer(self.membership)
        self.draining.advance(self.now_ms)

    def decide(self) -> bool:
        """True if a plan was stored."""
        registrations = self.membership.registrations()
        found = build_physical_plan(self.definition, self.wanted, registrations, self.plan, 1, RUNNING)
        assert found is not None
        plan = self.draining.next_plan(self.plan, found, 1)
        self.draining.check()
        if plan is self.plan:
            return False
        assert plan.version.number == self.plan.version.number + 1
        assert plan.packing in (self.plan.packing, self.wanted), "the old plan or the new one"
        self.plan = plan
        return True

    def tell(self, container: int, silent_for: int | None = None, version: PlanVersion | None = None) -> None:
        """A heartbeat: all tasks there are silent for this plan; the stream manager goes by that one."""
        number = self.plan.version.number if silent_for is None else silent_for
        tasks = self.plan.tasks_in(container)
        reports = tuple(ParticipantReport(task_participant(task), 1, TaskReport(0, aligned=number)) for task in tasks)
        self.membership.heard(container, Heartbeat(plan=version or self.plan.version))
        self.draining.heard(container, reports)

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now_ms += 1_000
            self.draining.advance(self.now_ms)

    def settle(self) -> None:
        while self.decide():
            pass


def test_it_drains_settles_and_goes_on() -> None:
    steps = Steps()
    assert steps.decide()
    assert (steps.plan.standstill, steps.plan.packing) == (DRAINING, OLD)
    steps.tell(1)
    assert not steps.decide(), "the tasks of container 2 are not silent"
    spout = ParticipantReport(task_participant(3), 1, TaskReport(0, aligned=steps.plan.version.number))
    steps.draining.heard(2, [spout])
    assert not steps.decide(), "its bolt is not"
    steps.tell(2, silent_for=steps.plan.version.number - 1)
    assert not steps.decide(), "nor is it enough that they have been, for another plan"
    steps.tell(2)
    drained = steps.plan.version
    assert steps.decide()
    assert (steps.plan.standstill, steps.plan.packing, steps.plan.undrained) == (SETTLING, NEW, "")
    steps.tell(1)
    steps.tell(2, version=drained)
    assert not steps.decide(), "container 2 goes by the old plan"
    steps.tell(2, silent_for=drained.number)
    assert not steps.decide(), "one of its tasks does"
    steps.tell(2, silent_for=0)
    assert steps.decide()
    assert (steps.plan.standstill, steps.plan.packing, steps.plan.undrained) == (NEITHER, NEW, "")
    assert not steps.decide()


def test_what_does_not_come_to_rest_is_not_waited_for_and_named() -> None:
    steps = Steps()
    steps.settle()
    steps.tell(1)
    steps.wait(SECS - 1)
    assert not steps.decide()
    steps.wait(1)
    steps.settle()
    assert (steps.plan.standstill, steps.plan.packing) == (NEITHER, NEW)
    said = "after 10 s (topology.update.drain.secs) word task 3, count task 4 had not come to rest"
    assert steps.plan.undrained == said
    newer = replace(info(1), incarnation=2, port=7)
    again = build_physical_plan(steps.definition, NEW, [newer, info(2)], steps.plan, 1, RUNNING)
    assert again is not None
    assert again.undrained == said, "it stands until the next update"


def test_a_stream_manager_that_begins_anew_ends_the_wait() -> None:
    steps = Steps()
    steps.settle()
    steps.membership.register(7, registration(2, incarnation=2))
    steps.settle()
    assert (steps.plan.standstill, steps.plan.packing) == (NEITHER, NEW)
    assert "a stream manager restarted in the meantime" in steps.plan.undrained


def test_a_plan_that_does_not_settle_goes_on_and_says_so() -> None:
    steps = Steps()
    steps.settle()
    steps.tell(1)
    steps.tell(2)
    assert steps.decide()
    steps.wait(SECS + 1)
    steps.decide()  # hears of the step
    steps.wait(SECS)
    steps.settle()
    assert (steps.plan.standstill, steps.plan.undrained) == (NEITHER, NOT_SETTLED.format(SECS))
    gone = replace_state(replace(steps.plan, standstill=SETTLING, undrained=""), RUNNING, 1)
    assert (gone.standstill, "left before all had" in gone.undrained) == (NEITHER, True)


@pytest.mark.parametrize("secs", [0.0, 5.0])
def test_only_what_takes_tasks_away_is_waited_for(secs: float) -> None:
    steps = Steps({"topology.update.drain.secs": secs})
    steps.wanted = packing(1)
    steps.decide()
    assert steps.plan.standstill is (DRAINING if secs else NEITHER)
    more = Steps()
    more.membership.expect([1, 2, 3])
    more.membership.register(3, registration(3))
    more.wanted = packing(3)
    assert more.decide()
    assert (more.plan.standstill, more.plan.packing) == (NEITHER, packing(3))
    other = replace(more.plan, topology=definition({"user.x": 1}))
    assert removes_tasks(more.plan, other), "its processes begin anew"


ACTS = ("decide", "tell", "wait", "elect", "take back", "anew", "behind")


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from([1, 2])), max_size=40))
def test_it_ends_whoever_dies_and_whatever_is_wanted_meanwhile(acts: list[tuple[str, int]]) -> None:
    steps = Steps()
    for act, container in acts:
        before = steps.plan
        if act == "decide":
            steps.decide()
        elif act == "tell":
            steps.tell(container)
        elif act == "behind":
            steps.tell(container, version=PlanVersion(1, before.version.number - 1))
        elif act == "wait":
            steps.wait(container)
        elif act == "elect":
            steps.elect()
        else:
            steps.wanted = OLD if act == "take back" else NEW
        assert steps.plan.standstill is not SETTLING or before.standstill in (DRAINING, SETTLING)
    for _ in range(6):  # nobody says a word any more
        steps.settle()
        steps.wait(SECS + 1)
    assert (steps.plan.standstill, steps.plan.packing) == (NEITHER, steps.wanted)


# What somebody could get wrong.

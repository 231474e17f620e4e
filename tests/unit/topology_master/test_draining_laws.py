"""Updates of a stateless topology: the plan advances one step at a time or returns to the old one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.plan import PhysicalPlan, PlanVersion, UpdatePhase, task_participant
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.master import Heartbeat, ParticipantReport
from tests.support.definitions import packing_of
from tests.support.harness.masters import definition, info, packing, registration
from topology_master.core.membership import Membership
from topology_master.core.planner import NOT_SETTLED, UpdateSequencer, build_physical_plan, removes_tasks, replace_state

RUNNING = TopologyState.RUNNING
SECS = 10.0  # the default of topology.update.drain.secs
NEITHER, DRAINING, SETTLING = UpdatePhase.NONE, UpdatePhase.DRAINING, UpdatePhase.SETTLING
OLD = packing(2)
NEW = packing_of(OLD.topology, {1: {1: "word", 4: "count"}, 2: {3: "word", 2: "count"}})  # 2 and 4 are exchanged


class Steps:
    """A master that stores its decisions at once, with two stream managers and four tasks."""

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
        """Replace the master by one without memory."""
        self.draining = UpdateSequencer(self.membership)
        self.draining.advance(self.now_ms)

    def decide(self) -> bool:
        """Run one decision; return whether a plan was stored."""
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
        """Send a heartbeat: all tasks of the container have halted for this plan, and it follows that version."""
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


def test_update_drains_settles_and_resumes() -> None:
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


def test_tasks_that_do_not_drain_are_named_and_not_waited_for() -> None:
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


def test_restarted_stream_manager_ends_the_wait() -> None:
    steps = Steps()
    steps.settle()
    steps.membership.register(7, registration(2, incarnation=2))
    steps.settle()
    assert (steps.plan.standstill, steps.plan.packing) == (NEITHER, NEW)
    assert "a stream manager restarted in the meantime" in steps.plan.undrained


def test_plan_that_does_not_settle_resumes_with_a_note() -> None:
    steps = Steps()
    steps.settle()
    steps.tell(1)
    steps.tell(2)
    assert steps.decide()
    steps.wait(SECS + 1)
    steps.decide()  # the master learns of the step
    steps.wait(SECS)
    steps.settle()
    assert (steps.plan.standstill, steps.plan.undrained) == (NEITHER, NOT_SETTLED.format(SECS))
    gone = replace_state(replace(steps.plan, standstill=SETTLING, undrained=""), RUNNING, 1)
    assert (gone.standstill, "left before all had" in gone.undrained) == (NEITHER, True)


@pytest.mark.parametrize("secs", [0.0, 5.0])
def test_only_updates_that_remove_tasks_drain(secs: float) -> None:
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
def test_update_ends_for_any_sequence_of_events(acts: list[tuple[str, int]]) -> None:
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
    for _ in range(6):  # no more messages
        steps.settle()
        steps.wait(SECS + 1)
    assert (steps.plan.standstill, steps.plan.packing) == (NEITHER, steps.wanted)

"""Updates that move tasks while tuples flow and masters die: what they wait for gets through, and they always end.

Each mutation takes away one thing this hangs on. Whether a bolt waits for the barrier of every task above it, and the
master for bolts and for who goes by the old plan, is worth some milliseconds only: unit laws hold it
(``test_standstill.py``, ``test_draining_laws.py``).
"""

from __future__ import annotations

from collections import Counter

import pytest
from budget import Budget

from heron_instance.core.spout_executor import SpoutExecutor
from heron_runtime.model.plan import PhysicalPlan, Standstill
from topology_master.core.draining import Draining

from .noticing import Mutations
from .updates import run
from .world import Violation

FLOOR, SECONDS = 60, 40.0
MUTATIONS = Mutations(run, floor=60, seconds=30.0)
mutation = MUTATIONS.breaks


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lane", [0, 1])
def test_what_an_update_waits_for_gets_through_and_every_update_ends(lane: int) -> None:
    budget, steps, undrained = Budget(SECONDS, FLOOR), Counter[str](), 0
    while budget.more():
        seed = 2 * budget.used + lane
        try:
            cluster = run(seed)
        except Violation as violation:
            story = "\n".join(violation.story[-40:])
            pytest.fail(f"seed {seed}: {violation.law}\nreplay: tests.sim.updates.run({seed}, print)\n{story}")
        steps.update(step.name for step in cluster.steps)
        undrained += bool(cluster.undrained)
    assert steps["SETTLING"] > 10, "updates wait, and go on"
    assert undrained > 0, "some give up"


@pytest.mark.parametrize("seed", [518, 833])
def test_those_that_once_broke_a_law_hold(seed: int) -> None:
    run(seed)


@mutation("was open when its spout left|failed \\(|are lost|fails as moved")
def a_spout_does_not_wait_for_its_roots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SpoutExecutor, "_has_nothing_open", lambda self: True)


@mutation("was open when its spout left|failed \\(|are lost|fails as moved")
def the_master_waits_for_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draining, "_busy", lambda self, plan: [])


@mutation("the plan is draining")
def what_is_taken_back_drains_on(patch: pytest.MonkeyPatch) -> None:
    real = Draining.next_plan

    def next_plan(self: Draining, before: PhysicalPlan, plan: PhysicalPlan, epoch: int) -> PhysicalPlan:
        drains = before.standstill is Standstill.DRAINING
        return before if drains and plan.packing == before.packing else real(self, before, plan, epoch)

    patch.setattr(Draining, "next_plan", next_plan)


@mutation("the plan is settling")
def a_plan_settles_for_ever(patch: pytest.MonkeyPatch) -> None:
    real = Draining.next_plan

    def next_plan(self: Draining, before: PhysicalPlan, plan: PhysicalPlan, epoch: int) -> PhysicalPlan:
        settles = before.standstill is Standstill.SETTLING
        return before if settles and plan.packing == before.packing else real(self, before, plan, epoch)

    patch.setattr(Draining, "next_plan", next_plan)


test_a_mutation_is_noticed = MUTATIONS.test()

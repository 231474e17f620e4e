"""The physical plan as a function of facts: what begins anew with another topology, and what is carried on."""

from __future__ import annotations

from dataclasses import replace

from heron_runtime.model.plan import NO_GENERATION, Generation, GenerationPhase, PhysicalPlan, PlanVersion
from heron_runtime.model.topology import TopologyState
from tests.support.harness.masters import definition, info, packing
from topology_master.core.planner import build_physical_plan, replace_generation, replace_state

RUNNING, PAUSED = TopologyState.RUNNING, TopologyState.PAUSED
THIRD = Generation(3, GenerationPhase.RESTORING)


def plan(previous: PhysicalPlan | None = None, containers: int = 2, epoch: int = 4, **other: str) -> PhysicalPlan:
    registered = [info(n) for n in range(containers, 0, -1)]
    found = build_physical_plan(
        replace(definition(), **other), packing(containers), registered, previous, epoch, RUNNING
    )
    assert found is not None
    return found


def test_the_first_plan_begins_all_numbers() -> None:
    first = plan()
    assert (first.version, first.routing_version, first.generation) == (PlanVersion(4, 1), 1, NO_GENERATION)


def test_another_topology_of_the_same_name_begins_them_anew() -> None:
    before = replace(plan(containers=3), version=PlanVersion(4, 9), routing_version=5, generation=THIRD)
    assert plan(before, id="words-99") == plan(id="words-99")


def test_the_same_facts_give_the_very_plan_that_stands_and_others_the_next_of_its_generation() -> None:
    stands = replace(plan(), generation=THIRD)
    assert plan(stands, epoch=9) is stands
    wider = plan(stands, containers=3, epoch=9)
    assert (wider.version, wider.routing_version, wider.generation) == (PlanVersion(9, 2), 2, THIRD)


def test_another_state_is_the_next_version_of_its_master_and_nothing_else() -> None:
    stands = plan()
    paused = replace_state(stands, PAUSED, 6)
    assert paused == replace(stands, version=PlanVersion(6, 2), state=PAUSED)


def test_another_generation_is_one_version_together_with_what_else_is_new() -> None:
    stands = plan()
    again = replace_generation(stands, THIRD, stands, 6)
    assert again == replace(stands, version=PlanVersion(6, 2), generation=THIRD)
    wider = plan(stands, containers=3, epoch=6)
    assert replace_generation(wider, THIRD, stands, 6) == replace(wider, generation=THIRD)
    assert replace_generation(stands, THIRD, None, 6).version == stands.version

"""Physical plan as a function of its inputs: what restarts with another topology, and what is carried over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heron_runtime.model.plan import NO_GENERATION, Generation, GenerationPhase, PhysicalPlan, PlanVersion
from heron_runtime.model.topology import KEYED, GroupingKind, GroupingSpec, InputSpec, TopologyState
from tests.support.definitions import component, round_robin_packing, topology_spec
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


@pytest.mark.parametrize("kind", list(GroupingKind))
def test_component_that_reads_by_key_has_a_table_of_its_tasks(kind: GroupingKind) -> None:
    read = InputSpec("words", "default", GroupingSpec(kind, ("word",)))
    topology = topology_spec("t", component("words", fields=("word",)), component("count", read, parallelism=2))
    made = build_physical_plan(topology, round_robin_packing(topology), [info(1)], None, 1, RUNNING)
    assert made is not None
    tables = {table.component: set(table.tasks) for table in made.key_groups}
    assert tables == ({"count": {2, 3}} if kind in KEYED else {})


def test_first_plan_starts_all_numbers() -> None:
    first = plan()
    assert (first.version, first.routing_version, first.generation) == (PlanVersion(4, 1), 1, NO_GENERATION)


def test_new_topology_of_the_same_name_restarts_all_numbers() -> None:
    before = replace(plan(containers=3), version=PlanVersion(4, 9), routing_version=5, generation=THIRD)
    assert plan(before, id="words-99") == plan(id="words-99")


def test_equal_inputs_return_the_current_plan_and_others_the_next_version() -> None:
    stands = replace(plan(), generation=THIRD)
    assert plan(stands, epoch=9) is stands
    wider = plan(stands, containers=3, epoch=9)
    assert (wider.version, wider.routing_version, wider.generation) == (PlanVersion(9, 2), 2, THIRD)


def test_state_change_only_raises_the_version() -> None:
    stands = plan()
    paused = replace_state(stands, PAUSED, 6)
    assert paused == replace(stands, version=PlanVersion(6, 2), state=PAUSED)


def test_generation_change_shares_a_version_with_other_changes() -> None:
    stands = plan()
    again = replace_generation(stands, THIRD, stands, 6)
    assert again == replace(stands, version=PlanVersion(6, 2), generation=THIRD)
    wider = plan(stands, containers=3, epoch=6)
    assert replace_generation(wider, THIRD, stands, 6) == replace(wider, generation=THIRD)
    assert replace_generation(stands, THIRD, None, 6).version == stands.version

"""Key-group tables of the plan: only components that read by key have one."""

from __future__ import annotations

import pytest

from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan, StreamManagerInfo
from heron_runtime.model.topology import (
    KEYED,
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
    TopologyState,
)
from topology_master.core.planner import build_physical_plan


@pytest.mark.parametrize("kind", list(GroupingKind))
def test_component_that_reads_by_key_has_a_table_of_its_tasks(kind: GroupingKind) -> None:
    words = ComponentSpec("words", ComponentKind.SPOUT, "m:W", 1, (StreamSchema("default", ("word",)),))
    read = InputSpec("words", "default", GroupingSpec(kind, ("word",)))
    count = ComponentSpec("count", ComponentKind.BOLT, "m:C", 2, inputs=(read,))
    tasks = (InstancePlan(1, "words", 0), InstancePlan(2, "count", 0), InstancePlan(3, "count", 1))
    plan = build_physical_plan(
        TopologyDefinition("t", "t-1", (words, count)),
        PackingPlan("t", (ContainerPlan(1, tasks),)),
        [StreamManagerInfo(1, "h", 1, 1)],
        None,
        1,
        TopologyState.RUNNING,
    )
    assert plan is not None
    tables = {table.component: set(table.tasks) for table in plan.key_groups}
    assert tables == ({"count": {2, 3}} if kind in KEYED else {})

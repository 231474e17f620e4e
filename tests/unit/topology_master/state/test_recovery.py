"""State controller: preconditions in the store before a decision, and removal of old files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heron_runtime.model.checkpoints import CheckpointRecord, initial_manifest, keeps_state
from heron_runtime.model.plan import (
    ContainerPlan,
    Generation,
    GenerationPhase,
    InstancePlan,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
)
from heron_runtime.model.topology import TopologyDefinition
from topology_master.core.events import RemoveOldCheckpoints, StoreSnapshot
from topology_master.core.recovery import StateController

PACKING = PackingPlan("t", (ContainerPlan(1, (InstancePlan(1, "count", 0),)),))


def plan(generation: int) -> PhysicalPlan:
    definition = TopologyDefinition("t", "id")
    return PhysicalPlan(
        PlanVersion(1, 1), 1, definition, PACKING, generation=Generation(generation, GenerationPhase.RESTORING)
    )  # fmt: skip


def test_reliability_mode_decides_whether_state_is_kept() -> None:
    assert keeps_state({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    assert not keeps_state({"topology.reliability.mode": "ATLEAST_ONCE"})
    assert not keeps_state({})


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        (StoreSnapshot(), "the manifest of checkpoint 0 has not been read"),
        (StoreSnapshot(storage_fault="checkpoint 3: no such file"), "checkpoint 3: no such file"),
        (
            StoreSnapshot(plan=plan(2), record=CheckpointRecord(1), complete=initial_manifest("id")),
            "the plan is of generation 2, the record of checkpoints of 1",
        ),
        (
            StoreSnapshot(plan=plan(1), complete=initial_manifest("id")),
            "the plan is of generation 1, the record of checkpoints of 0",
        ),
    ],
)
def test_inconsistent_store_blocks_all_decisions(stored: StoreSnapshot, fault: str) -> None:
    recovery = StateController({}, 1_000)
    recovery.read(stored, 0)
    assert recovery.fault == fault
    assert recovery.status(0).storage_fault == fault
    recovery.run(10_000)
    assert recovery.next_write(10_000) is None
    recovery.check()


def test_record_without_a_plan_yields_the_next_generation() -> None:
    recovery = StateController({}, 1_000)
    recovery.read(StoreSnapshot(record=CheckpointRecord(4, 9, 0), complete=initial_manifest("id")), 0)
    wanted = recovery.wanted(0)
    assert wanted == Generation(5, GenerationPhase.RESTORING)
    assert recovery.record_of(wanted) == CheckpointRecord(5, 9, 0)
    assert recovery.wish.over == 9


def test_short_checkpoint_intervals_shorten_the_tick() -> None:
    assert StateController({"topology.stateful.checkpoint.interval.secs": 0.1}, 1_000).tick_ms == 20
    assert StateController({}, 1_000).tick_ms == 200


def test_files_are_removed_only_while_a_generation_runs() -> None:
    """Until a generation runs, tasks may still read the checkpoint it begins from."""
    recovery, complete = StateController({}, 1_000), initial_manifest("id")
    recovery.read(StoreSnapshot(plan=plan(2), record=CheckpointRecord(2), complete=complete), 0)
    recovery._remove_old()
    assert recovery.effects() == []
    runs = replace(plan(2), generation=Generation(2, GenerationPhase.RUNNING))
    recovery.read(StoreSnapshot(plan=runs, record=CheckpointRecord(2), complete=complete), 0)
    removals = [effect for effect in recovery.effects() if isinstance(effect, RemoveOldCheckpoints)]
    assert [(removal.complete, removal.running) for removal in removals] == [(0, 2)]

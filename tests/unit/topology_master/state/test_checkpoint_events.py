"""History events of checkpoints and generations."""

from __future__ import annotations

import json
from dataclasses import replace

from heron_runtime.model.checkpoints import CheckpointRecord, Manifest
from heron_runtime.model.plan import Generation, GenerationPhase, PlanVersion
from heron_runtime.wire.master import CheckpointSummary
from topology_master.core.checkpoints import (
    CheckpointCoordinator,
    GenerationMembers,
    completed_event,
    generation_events,
)
from topology_master.core.events import EmitEvent, LogNote, WriteResult


def told(generation: Generation, before: Generation | None) -> tuple[str, str, dict[str, object]]:
    note, happened = generation_events(generation, before)
    assert isinstance(note, LogNote)
    assert isinstance(happened, EmitEvent)
    assert note.text == happened.text, "the log says the same"
    assert (note.metric == "__restores") == (happened.what == "begun")
    return happened.what, happened.text, json.loads(happened.detail)


def test_generation_events_name_checkpoint_and_cause() -> None:
    first = Generation(1, GenerationPhase.RESTORING, 0)
    assert told(first, None)[:2] == ("start", "generation 1: starting from the initial state")
    assert told(replace(first, phase=GenerationPhase.RUNNING), first)[:2] == (
        "runs",
        "generation 1 runs, with 0 processes",
    )
    assert generation_events(first, first) == []
    second = Generation(2, GenerationPhase.RESTORING, 7, cause="task 2: it was restarted")
    what, text, detail = told(second, first)
    assert (what, text) == ("begun", "generation 2: restoring from checkpoint 7: task 2: it was restarted")
    assert detail == {"generation": 2, "what": "begun", "checkpoint": 7, "cause": "task 2: it was restarted"}
    what, text, _ = told(Generation(3, GenerationPhase.FAILED, 7, cause="disk full"), second)
    assert (what, text.startswith("generation 3: the topology has FAILED: disk full; ")) == ("failed", True)


def test_completed_event_has_size_and_times() -> None:
    found = completed_event(CheckpointSummary(5, 1.0, 1234.0, 20.0, 56_789, 3))
    assert (found.kind, found.text) == ("checkpoint", "checkpoint 5 complete: 56,789 bytes in 1.23 s")
    assert json.loads(found.detail) == {
        "checkpoint": 5, "what": "complete", "bytes": 56_789, "ms": 1234, "quiet_ms": 20, "last_aligned": 3,
    }  # fmt: skip


def test_checkpoint_begin_and_failure_are_reported_once() -> None:
    coordinator = CheckpointCoordinator(1000.0, 500.0, Manifest("words-1", 0, 0, 0), CheckpointRecord(generation=1))
    coordinator.start_generation(GenerationMembers(PlanVersion(), {1: 9}, {}), 0.0)
    assert coordinator.happened() == []
    coordinator.run(1000.0)
    coordinator.finish_write(WriteResult.DONE, 1010.0)
    (begun,) = coordinator.happened()
    assert (begun.what, begun.text) == ("begun", "checkpoint 1 begun")
    coordinator.run(2500.0)
    (failed,) = coordinator.happened()
    assert (failed.what, failed.text) == ("failed", "checkpoint 1 failed after 1.49 s: task 1 has not aligned in time")
    assert coordinator.happened() == []

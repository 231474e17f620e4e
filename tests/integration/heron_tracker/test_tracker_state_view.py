"""REST answers of the tracker about a topology that keeps state; its processes are stubs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heron_runtime.model.plan import Generation, GenerationPhase, task_participant
from heron_runtime.state import open_store, paths
from heron_runtime.state.store import Set, StateStore
from heron_runtime.wire import message_codecs
from heron_runtime.wire.master import CheckpointStatus, CheckpointSummary
from tests.support.stub_topology import StubTopology, word_count
from tests.support.tracker_process import TrackerProcess, tracker
from tests.support.waiting import wait_until

PLACE = {"cluster": "local", "environ": "default", "topology": "Exact"}
LAST = CheckpointSummary(12, 1_000.0, 120.0, 14.0, 4096, 2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    opened = open_store(f"files://{tmp_path}/state")
    opened.open()
    yield opened
    opened.close()


@pytest.fixture
def kept(store: StateStore, tmp_path: Path) -> Iterator[StubTopology]:
    made = word_count("Exact")
    config = {**made.config, "topology.reliability.mode": "EFFECTIVELY_ONCE"}
    topology = StubTopology(store, tmp_path, replace(made, config=config))
    yield topology
    topology.close()


@pytest.fixture
def rest(tmp_path: Path, kept: StubTopology) -> Iterator[TrackerProcess]:
    with tracker("--cluster", f"local=files://{tmp_path}/state", log=tmp_path / "log") as process:
        wait_until(lambda: process.raw("/readyz")[0] == 200)
        yield process


def store_phase(store: StateStore, generation: Generation) -> None:
    node = store.get(paths.physical_plan("Exact"))
    assert node is not None
    plan = replace(message_codecs.PHYSICAL_PLAN.decode(node.data), generation=generation)
    store.commit([Set(paths.physical_plan("Exact"), message_codecs.PHYSICAL_PLAN.encode(plan))])


def test_responses_have_generation_and_checkpoints(rest: TrackerProcess, kept: StubTopology, store: StateStore) -> None:
    kept.tasks_state = CheckpointStatus(3, GenerationPhase.RUNNING, "x", 11, last=LAST, restores=1)
    store_phase(store, Generation(3, GenerationPhase.RUNNING, 11))

    def told(path: str) -> Any:
        return rest.get(path, **PLACE)[1]

    wait_until(lambda: told("/topologies/runtimestate")["result"]["tasks_state"]["generation"] == 3)
    found = told("/topologies/runtimestate")["result"]["tasks_state"]
    assert (found["last"]["number"], found["last"]["bytes"], found["restores"], found["trouble"]) == (12, 4096, 1, None)
    assert told("/topologies/info")["result"]["runtime_state"]["tasks_state"] == found
    page = told("/api/v1/topology")["result"]
    assert (page["state"], page["tasks_state"]["last"]["number"]) == ("running", 12)


@pytest.mark.parametrize(
    ("phase", "word", "heron"), [("restoring", "restoring", "Restoring"), ("failed", "failing", "Failed")]
)
def test_restoring_or_failed_topology_is_not_shown_as_running(
    rest: TrackerProcess, kept: StubTopology, store: StateStore, phase: str, word: str, heron: str
) -> None:
    kept.tasks_state = CheckpointStatus(4, GenerationPhase(phase), "task 2: it raised", 12, (task_participant(2),))
    store_phase(store, Generation(4, GenerationPhase(phase), 12, cause="task 2: it raised"))

    def rows() -> Any:
        return rest.get("/api/v1/topologies")[1]["result"]["topologies"]

    def states() -> Any:
        return rest.get("/topologies/states")[1]["result"]["local"]["default"]["Exact"]

    wait_until(lambda: rows()[0]["state"] == word)
    wait_until(lambda: states()["status"] == heron)
    found = rest.get("/api/v1/topology", **PLACE)[1]["result"]
    assert "task 2: it raised" in found["tasks_state"]["trouble"]
    kept.kill_master()
    wait_until(lambda: not rest.get("/api/v1/topology", **PLACE)[1]["result"]["tasks_state"]["told"])
    assert rows()[0]["state"] == word, "what the plan in the store says is enough"

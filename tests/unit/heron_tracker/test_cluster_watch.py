"""The watch of a cluster whose state store is missing or was replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from heron_control.packing import pack
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.model.records import ExecutionState
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition, TopologyState
from heron_runtime.state import StoreAddress, open_store, topologies
from heron_runtime.state.store import StateStore
from heron_tracker.cluster_watch import ClusterWatch
from heron_tracker.events import EventBroadcast
from heron_tracker.self_metrics import TrackerMetrics
from tests.support.waiting import wait_until_async


def submitted(home: Path) -> StateStore:
    """A store with one topology."""
    store = open_store(f"files://{home}/state")
    store.open()
    definition = TopologyDefinition("words", "words-1", (ComponentSpec("word", ComponentKind.SPOUT, "m:Word", 1),))
    state = ExecutionState("words", "words-1", "local", "me", "default", TopologyState.RUNNING)
    topologies.submit(store, definition, pack(definition), state)
    return store


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[ClusterWatch]:
    metrics = TrackerMetrics()
    address = StoreAddress(f"files://{tmp_path}/state")
    made = ClusterWatch(address, Homes(tmp_path, "local"), EventBroadcast(metrics), metrics)
    made.start()
    yield made
    await made.stop()


async def test_before_the_first_submit_there_are_no_topologies(watch: ClusterWatch, tmp_path: Path) -> None:
    await wait_until_async(lambda: not watch.state.stale)
    assert watch.state.topologies == {}
    assert not (tmp_path / "state").exists()
    submitted(tmp_path).close()
    await wait_until_async(lambda: set(watch.state.topologies) == {"words"})


async def test_a_lost_store_is_stale_and_a_kill_is_not(watch: ClusterWatch, tmp_path: Path) -> None:
    store = submitted(tmp_path)
    await wait_until_async(lambda: set(watch.state.topologies) == {"words"})
    store.close()
    (tmp_path / "state").rename(tmp_path / "lost")
    await wait_until_async(lambda: "its folder was removed" in watch.state.error)
    store.open()  # an empty one
    await wait_until_async(lambda: "the state store was replaced" in watch.state.error)
    assert watch.state.stale
    assert set(watch.state.topologies) == {"words"}, "the last known state is served"
    store.close()
    (tmp_path / "state").rename(tmp_path / "empty")
    (tmp_path / "lost").rename(tmp_path / "state")
    store.open()
    await wait_until_async(lambda: not watch.state.stale)
    topologies.kill(store, "words")
    await wait_until_async(lambda: watch.state.topologies == {})
    assert not watch.state.stale
    store.close()

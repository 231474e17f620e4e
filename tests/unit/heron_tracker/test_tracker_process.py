"""Stores that a tracker follows, its query threads and its Prometheus targets."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from heron_control.packing import pack
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.failures import Unavailable
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.records import ContainerLocation, ExecutionState, TopologyRecord
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition, TopologyState
from heron_runtime.state import StoreAddress, open_store, topologies
from heron_runtime.state.store import StateStore
from heron_tracker import server
from heron_tracker import tracker as tracker_module
from heron_tracker.__main__ import app, main
from heron_tracker.cluster_watch import ClusterWatch
from heron_tracker.core.heron_records import prometheus_targets
from heron_tracker.events import EventBroadcast
from heron_tracker.self_metrics import TrackerMetrics
from heron_tracker.server import StartError, TrackerOptions, stores
from heron_tracker.tracker import Tracker
from tests.support.waiting import wait_until_async


def test_clusters_and_credentials_are_matched_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[TrackerOptions] = []
    monkeypatch.setattr(server, "serve", served.append)
    clusters = ["--cluster", "a=zookeeper://zk:2181/a", "--cluster", "b=files:///b"]
    app([*clusters, "--store-credential", f"a={tmp_path}/reader"], standalone_mode=False)
    assert stores(served[0]) == {
        "a": StoreAddress("zookeeper://zk:2181/a", f"{tmp_path}/reader"),
        "b": StoreAddress("files:///b"),
    }


def test_default_store_is_that_of_the_home(tmp_path: Path) -> None:
    assert stores(TrackerOptions(home=tmp_path)) == {"local": StoreAddress(f"files://{tmp_path}/state")}
    (tmp_path / "config.yaml").write_text(
        "local: {heron.state.url: 'zookeeper://zk:2181/x', heron.state.credential.file: zk}\n"
    )
    assert stores(TrackerOptions(home=tmp_path)) == {"local": StoreAddress("zookeeper://zk:2181/x", f"{tmp_path}/zk")}


def test_malformed_cluster_option_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["heron_tracker", "--cluster", "files:///b"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "'files:///b' is not a cluster. Write NAME=STORE_URL" in caplog.text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (TrackerOptions(clusters=(("a", "memory://"), ("a", "memory://"))), "same name"),
        (TrackerOptions(clusters=(("a", "memory://"),), credentials=(("b", "/x"),)), "unknown cluster b"),
        (TrackerOptions(credentials=(("local", "/x"),)), "config.yaml"),
    ],
)
def test_inconsistent_options_are_rejected(options: TrackerOptions, why: str) -> None:
    with pytest.raises(StartError, match=why):
        stores(options)


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


async def test_query_does_not_block_the_loop_and_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "MAX_QUERIES", 2)
    tracker = Tracker({})
    go = threading.Event()
    waiting = [asyncio.ensure_future(tracker.run_query(lambda: go.wait(30))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="2 queries"):
        await tracker.run_query(lambda: None)
    go.set()
    assert await asyncio.gather(*waiting) == [True, True]

    def fault() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await tracker.run_query(fault)
    assert await tracker.run_query(lambda: 1) == 1  # the failed query has released its place
    await tracker.stop()


def record(*places: tuple[str, int]) -> TopologyRecord:
    locations = tuple(ContainerLocation("t-1", n, host, 7000 + n, 1, 1, port) for n, (host, port) in enumerate(places))
    execution = ExecutionState("t", "t-1", "docker", "ada", "prod", TopologyState.RUNNING, "ada", 1.0, "0.1.0", "/h")
    return TopologyRecord(TopologyDefinition("t", "t-1", ()), PackingPlan("t"), None, execution, None, None, locations)


def test_each_container_with_metrics_is_a_target() -> None:
    found = prometheus_targets("docker", record(("heron-t-0", 9100), ("10.0.0.7", 40123), ("fd00::7", 9101), ("h", 0)))
    assert [t["targets"] for t in found] == [["heron-t-0:9100"], ["10.0.0.7:40123"], ["[fd00::7]:9101"]]
    assert found[1]["labels"] == {
        "cluster": "docker", "role": "ada", "environ": "prod", "__meta_heron_topology": "t",
        "__meta_heron_container": "1",
    }  # fmt: skip

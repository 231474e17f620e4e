"""An API server over a store with topologies of an earlier release reports them and does not take them over."""

from __future__ import annotations

from pathlib import Path

from heron_control.packing import pack
from heron_runtime.model.records import ExecutionState
from heron_runtime.model.topology import ComponentKind, ComponentSpec, StreamSchema, TopologyDefinition, TopologyState
from heron_runtime.state import open_store, topologies
from heron_runtime.state.store import Create, Delete
from tests.support.api_server_process import TOPOLOGIES, api_server
from tests.support.waiting import wait_until


def test_topologies_of_an_earlier_release_are_reported_with_a_remedy(tmp_path: Path) -> None:
    home = tmp_path / "api"
    home.mkdir(mode=0o700)
    store = open_store((home / "state").as_uri().replace("file:", "files:", 1))
    store.open()
    try:
        spout = ComponentSpec("word", ComponentKind.SPOUT, "m:Word", 1, (StreamSchema(fields=("word",)),))
        definition = TopologyDefinition("words", "words-1", (spout,))
        state = ExecutionState("words", "words-1", "box", "ads", "prod", TopologyState.RUNNING)
        topologies.submit(store, definition, pack(definition), state)
        store.commit([Create("/epochs/words", b"")])  # as a master of that release created it
        with api_server(home, "--cluster", "box", ready=False) as server:
            wait_until(lambda: "earlier release: words" in server.request("GET", "/readyz").json()["trouble"])
            answer = server.request("GET", "/readyz")
            assert answer.status_code == 503
            assert "kill them there" in answer.json()["trouble"]
            assert server.request("DELETE", f"{TOPOLOGIES}/box/ads/prod/words").status_code == 503
            assert topologies.read_topology(store, "words").definition == definition, "nothing was touched"
            # The earlier release kills the topology.
            topologies.kill(store, "words")
            store.commit([Delete("/epochs/words")])
            wait_until(lambda: server.request("GET", "/readyz").status_code == 200)
    finally:
        store.close()

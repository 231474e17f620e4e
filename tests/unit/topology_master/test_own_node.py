"""Writes of a master require its own session to hold the master node: two sessions on one tree."""

from __future__ import annotations

from heron_runtime.launch import Launch
from heron_runtime.model.records import ExecutionState, MasterLocation
from heron_runtime.model.topology import TopologyState
from heron_runtime.state import paths
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import Create
from heron_runtime.wire import message_codecs
from tests.support.harness.masters import ID, NAME, definition
from topology_master.core import events as e
from topology_master.shell.store import MasterStore, read_stored

RUNNING = ExecutionState(NAME, ID, "local", "me", "default", TopologyState.RUNNING)


def session(tree: MemoryTree, port: int) -> tuple[MemoryStore, MasterStore]:
    store = MemoryStore(tree)
    store.open()
    launch = Launch("local", "me", "default", NAME, ID, "memory://", "/nowhere", "/nowhere")
    return store, MasterStore(store, launch, MasterLocation(ID, "here", port, 0, port), lambda event: None)


def test_only_the_owner_of_the_node_writes() -> None:
    tree = MemoryTree()
    (store, first), (_, second) = session(tree, 1), session(tree, 2)
    store.commit(
        [
            Create(paths.topology(NAME), message_codecs.TOPOLOGY.encode(definition())),
            Create(paths.execution_state(NAME), message_codecs.EXECUTION_STATE.encode(RUNNING)),
        ]
    )
    assert first.commit(e.Campaign(1, -1))[0] is e.WriteResult.DONE
    stored = read_stored(store, NAME)
    paused = ExecutionState(NAME, ID, "local", "me", "default", TopologyState.PAUSED)
    write = e.CommitTransaction(None, -1, paused, stored.execution_version)
    assert second.commit(write)[0] is e.WriteResult.NOT_OWNER, "there is a master node, and it is another session's"
    assert read_stored(store, NAME).execution == RUNNING
    assert second.commit(e.Resign("it is not mine"))[0] is not e.WriteResult.DONE
    assert read_stored(store, NAME).master is not None
    assert first.commit(write)[0] is e.WriteResult.DONE
    assert first.commit(e.Resign("done"))[0] is e.WriteResult.DONE
    assert second.commit(e.Campaign(2, read_stored(store, NAME).epoch_version))[0] is e.WriteResult.DONE
    stored = read_stored(store, NAME)
    again = e.CommitTransaction(None, -1, RUNNING, stored.execution_version)
    assert first.commit(again)[0] is e.WriteResult.NOT_OWNER

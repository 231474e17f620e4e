"""The killed state of a topology.

A topology has ended if its execution state is missing, is the killed state, or belongs to another submission. A record
that is missing in a store which has lost its contents is not a kill.
"""

from __future__ import annotations

from heron_runtime.model.topology import TopologyState
from heron_runtime.state import paths
from heron_runtime.state.store import StateStore, check_identity
from heron_runtime.state.topologies import decoded
from heron_runtime.wire import store_codecs as codec


def is_killed(store: StateStore, topology: str, topology_id: str, store_id: str) -> bool:
    """Return True if the processes of this submission must stop. Blocks.

    ``store_id`` is the identity of the store that had the record; "" if it is unknown.

    Raises:
        StoreReplaced: The record is missing in another store.
        StoreError: The execution state cannot be read.
    """
    path = paths.execution_state(topology)
    state = decoded(path, store.get(path), codec.EXECUTION_STATE)
    if state is None:
        check_identity(store, store_id)  # after the read, so that the store cannot be lost between the two unnoticed
    return state is None or state.topology_id != topology_id or state.state is TopologyState.KILLED

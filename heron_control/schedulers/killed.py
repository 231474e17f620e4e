"""The killed state of a topology.

A topology has ended if its execution state is missing, is the killed state, or belongs to another submission.
"""

from __future__ import annotations

from heron_runtime.model.topology import TopologyState
from heron_runtime.state import paths
from heron_runtime.state.store import StateStore
from heron_runtime.state.topologies import decoded
from heron_runtime.wire import store_codecs as codec


def is_killed(store: StateStore, topology: str, topology_id: str) -> bool:
    """Return True if the processes of this submission must stop. Blocks.

    Raises:
        StoreError: The execution state cannot be read.
    """
    path = paths.execution_state(topology)
    state = decoded(path, store.get(path), codec.EXECUTION_STATE)
    return state is None or state.topology_id != topology_id or state.state is TopologyState.KILLED

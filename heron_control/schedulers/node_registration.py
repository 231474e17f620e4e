"""Ephemeral node with the address of a process, restored after lost sessions, and the killed state of a topology.

A topology has ended if its execution state is missing, is the killed state, or belongs to another submission. A record
that is missing in a store which has lost its contents is not a kill.
"""

from __future__ import annotations

from heron_runtime.model.topology import TopologyState
from heron_runtime.state import paths
from heron_runtime.state.store import (
    CheckOwner,
    Create,
    Delete,
    NodeExists,
    Set,
    StateStore,
    TransactionFailed,
    check_identity,
)
from heron_runtime.state.topologies import decoded
from heron_runtime.wire import store_codecs as codec


class NodeRegistration:
    """Ephemeral node of a process.

    ``data`` must differ from that of every other process, for example by containing the process id.
    """

    def __init__(self, store: StateStore, path: str, data: bytes) -> None:
        self._store = store
        self.path = path
        self.data = data
        self._written = data

    def keep(self) -> bytes:
        """Create or update the node, unless another process holds it. Blocks; call it on a thread.

        Returns:
            The current bytes of the node: those of this process or of another holder. b"" if the node could not be
                created
            at this moment.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        node = self._store.get(self.path)
        try:
            if node is not None and (node.data == self.data or node.data != self._written):
                return node.data
            if node is not None:  # ours, with outdated data
                self._store.commit([CheckOwner(self.path), Set(self.path, self.data, node.version)])
            else:
                self._store.commit([Create(self.path, self.data, ephemeral=True)])
            self._written = self.data
            return self.data
        except NodeExists:
            node = self._store.get(self.path)
            return node.data if node is not None else b""
        except TransactionFailed:
            return b""  # the session ended at this moment; the next call begins a new one

    def withdraw(self) -> None:
        """Remove the node if it is ours. Idempotent. Blocks.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        node = self._store.get(self.path)
        if node is None or node.data != self._written:
            return
        try:
            self._store.commit([CheckOwner(self.path), Delete(self.path)])
        except TransactionFailed:
            return  # it belongs to an earlier session and ends with it, or it is already gone


def is_killed(store: StateStore, topology: str, topology_id: str, store_id: str) -> bool:
    """Return True if the processes of this submission must stop. Blocks.

    ``store_id`` is the identity of the store that had the record; "" if it is unknown.

    Raises:
        StoreReplaced: The record is missing in another store.
        StoreError: The execution state cannot be read.
    """
    path = paths.execution_state(topology)
    state = decoded(path, store.get(path), codec.EXECUTION_STATE)
    if state is None and store_id:  # read again between two checks: the store may have been lost or restored meanwhile
        check_identity(store, store_id)
        state = decoded(path, store.get(path), codec.EXECUTION_STATE)
        check_identity(store, store_id)
    return state is None or state.topology_id != topology_id or state.state is TopologyState.KILLED

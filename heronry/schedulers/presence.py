"""An ephemeral node that says where a process is, kept there over lost sessions.

``keep`` is called again and again (each second or two). It looks at the node, makes it when it is missing and tells
who holds it. A node that an earlier session or an earlier process left behind vanishes by itself when that session
ends, and the next call makes the new one; so no callback about sessions is needed.
"""

from __future__ import annotations

from heronry.state.store import Create, NodeExists, StateStore, TransactionFailed


class Presence:
    """One ephemeral node. ``data`` must differ from that of every other process (a process id and incarnation do)."""

    def __init__(self, store: StateStore, path: str, data: bytes) -> None:
        self._store = store
        self.path = path
        self.data = data

    def keep(self) -> bytes:
        """The bytes of the node as it stands now: ours, or those of another holder.

        b"" when it could not be made at this moment. Blocks; call it on a thread. Raises StoreUnavailable.
        """
        node = self._store.get(self.path)
        if node is not None:
            return node.data
        try:
            self._store.commit([Create(self.path, self.data, ephemeral=True)])
            return self.data
        except NodeExists:
            node = self._store.get(self.path)
            return node.data if node is not None else b""
        except TransactionFailed:
            return b""  # the session ended at this moment; the next call begins a new one

"""Clients of the memory store and the files store for the store contract.

The fixture ``world`` makes clients of one tree. A new store joins with a class that has ``client()``, ``clients`` and
``end_session(client)``, and with its name in ``STORES``. The ZooKeeper store needs servers, so it runs the same tests
in ``tests/zookeeper``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from heron_runtime.state.files import FilesStore
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import MAX_VALUE_BYTES, StateStore


class StoreClients(Protocol):
    """Clients of one tree."""

    max_value_bytes: int

    def client(self) -> StateStore:
        """Return another open client."""

    def end_session(self, client: StateStore) -> None:
        """Let the client's session end as by a failure, not by ``close``."""


class MemoryStoreClients:
    """Clients of one MemoryTree."""

    max_value_bytes = MAX_VALUE_BYTES

    def __init__(self, _: Path) -> None:
        self.tree = MemoryTree()
        self.clients: list[StateStore] = []

    def client(self) -> StateStore:
        store = MemoryStore(self.tree)
        store.open()
        self.clients.append(store)
        return store

    def end_session(self, client: StateStore) -> None:
        assert isinstance(client, MemoryStore)
        client.expire_session()


class FilesStoreClients:
    """Clients of one folder."""

    max_value_bytes = MAX_VALUE_BYTES

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "state"
        self.clients: list[StateStore] = []

    def client(self, session_timeout_secs: float = 6.0) -> StateStore:
        store = FilesStore(self.folder, poll_interval_secs=0.02, session_timeout_secs=session_timeout_secs)
        store.open()
        self.clients.append(store)
        return store

    def end_session(self, client: StateStore) -> None:
        assert isinstance(client, FilesStore)
        session = client._session.owned
        assert session is not None
        session._deadline_ns = 0  # as if the process had been stopped past its lease
        session._write_lease = lambda: None  # type: ignore[method-assign]


STORES = {"memory": MemoryStoreClients, "files": FilesStoreClients}

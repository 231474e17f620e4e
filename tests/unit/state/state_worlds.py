"""One contract suite for every store: the ``world`` fixture makes clients of the same tree.

A new store joins by a class with ``client()``, ``clients`` and ``end_session(client)``, and its name in ``WORLDS``.
(The ZooKeeper store needs servers, so it joins in ``tests/zookeeper``, where the same tests run again.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from heron_runtime.state.files import FilesStore
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import MAX_VALUE_BYTES, StateStore


class World(Protocol):
    """One tree, any number of clients."""

    max_value_bytes: int

    def client(self) -> StateStore:
        """Another open client."""

    def end_session(self, client: StateStore) -> None:
        """Let the client's session end as by a failure, not by ``close``."""


class MemoryWorld:
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


class FilesWorld:
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


WORLDS = {"memory": MemoryWorld, "files": FilesWorld}

"""Clients of the ZooKeeper store for the store contract, and how to end a session from outside."""

from __future__ import annotations

from kazoo.client import KazooClient

from heron_runtime.state.credential import StoreCredential
from heron_runtime.state.store import StateStore
from heron_runtime.state.zookeeper import ZookeeperStore
from heron_runtime.state.zookeeper_transactions import MAX_VALUE_BYTES


class ZookeeperStoreClients:
    """Clients of one root."""

    max_value_bytes = MAX_VALUE_BYTES

    def __init__(self, hosts: str, root: str) -> None:
        self.hosts = hosts
        self.root = root
        self.clients: list[StateStore] = []

    def client(self, session_timeout_secs: float = 6.0, credential: StoreCredential | None = None) -> ZookeeperStore:
        store = ZookeeperStore(
            self.hosts, root=self.root, session_timeout_secs=session_timeout_secs, credential=credential
        )
        store.open()
        self.clients.append(store)
        return store

    def end_session(self, client: StateStore) -> None:
        assert isinstance(client, ZookeeperStore)
        end_session(client)


def end_session(store: ZookeeperStore) -> None:
    """End the session through a second client with the same id and password, like an expiry."""
    session = store._link.client().client_id
    assert session is not None
    twin = KazooClient(hosts=store._link.hosts, client_id=session)
    twin.start()
    assert twin.client_id == session
    twin.stop()
    twin.close()

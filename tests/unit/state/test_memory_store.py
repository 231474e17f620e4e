"""Memory store and its simulation hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_runtime.state import open_store
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import Create, SessionState, StoreError, StoreUnavailable
from tests.support.distributions import write_distribution


def pair() -> tuple[MemoryStore, MemoryStore, list[SessionState]]:
    tree = MemoryTree()
    one, two = MemoryStore(tree), MemoryStore(tree)
    one.open()
    two.open()
    states: list[SessionState] = []
    one.on_session(states.append)
    return one, two, states


def test_lost_connection_suspends_and_keeps_nodes() -> None:
    one, two, states = pair()
    fired: list[str] = []
    one.watch("/a/b", fired.append)
    one.commit([Create("/tmanagers/t", b"", ephemeral=True)])
    one.lose_connection()
    one.lose_connection()
    assert states == [SessionState.SUSPENDED]
    with pytest.raises(StoreUnavailable):
        one.get("/tmanagers/t")
    assert two.get("/tmanagers/t") is not None
    two.commit([Create("/a/b", b"")])
    assert fired == []
    one.restore_connection()
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert fired == ["/a/b"]
    assert one.get("/tmanagers/t") is not None


def test_session_expired_offline_is_lost_on_reconnect() -> None:
    one, two, states = pair()
    one.commit([Create("/tmanagers/t", b"", ephemeral=True)])
    one.lose_connection()
    one.expire_session()
    assert states == [SessionState.SUSPENDED]
    assert two.get("/tmanagers/t") is None
    one.restore_connection()
    assert states == [SessionState.SUSPENDED, SessionState.LOST]
    one.get("/tmanagers/t")
    assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]


def test_callbacks_run_in_order_on_the_calling_thread() -> None:
    one, two, _ = pair()
    fired: list[str] = []
    two.watch("/a/b", lambda path: fired.append("two " + path))
    one.watch("/a", lambda path: fired.append("one " + path))
    one.watch("/a/b", lambda path: fired.append("one " + path))
    one.commit([Create("/a/b", b"")])
    assert fired == ["one /a", "one /a/b", "two /a/b"]


def test_stores_of_one_name_share_a_tree() -> None:
    one, two, other = open_store("memory://shared-tree"), open_store("memory://shared-tree"), open_store("memory://")
    for store in (one, two, other):
        store.open()
    one.commit([Create("/a/b", b"")])
    assert two.get("/a/b") is not None
    assert other.get("/a/b") is None


OWN = """
from heron_runtime.state.memory import MemoryStore

def of_url(parameters):
    parameters.refuse_credential()
    store = MemoryStore()
    store.told = (parameters.url.netloc, parameters.session_timeout_secs)
    return store
"""


def test_plugin_scheme_opens_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = {"heronry.state_stores": {"cloud": "store_of_mine:of_url"}}
    monkeypatch.syspath_prepend(write_distribution(tmp_path, "my-store", offers, {"store_of_mine": OWN}))
    store = open_store("cloud://north:80/x", session_timeout_secs=3)
    assert isinstance(store, MemoryStore)
    assert store.told == ("north:80", 3)  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="does not use a credential"):
        open_store("cloud://north", credential_file="/x")
    with pytest.raises(StoreError, match=r"'clod://x' names no store: .* did you mean 'cloud'\? \(A plug-in must be"):
        open_store("clod://x")

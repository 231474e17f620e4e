"""Contract of ``heron_runtime.state.store`` for every store."""

from __future__ import annotations

import threading

import pytest

from heron_runtime.state.store import (
    BadVersion,
    CheckOwner,
    Create,
    Delete,
    InvalidPath,
    Node,
    NoNode,
    SessionState,
    Set,
    StateStore,
    StoreError,
    StoreUnavailable,
)
from tests.support.stores.local import StoreClients
from tests.support.waiting import wait_until


def test_store_implements_the_interface(store: StateStore) -> None:
    assert isinstance(store, StateStore)
    assert store.session() is SessionState.CONNECTED


def test_get_all_returns_nodes_in_the_requested_order(world: StoreClients) -> None:
    store, owner = world.client(), world.client()
    store.commit([Create("/topologies/a", b"one"), Create("/topologies/b", b"")])
    owner.commit([Create("/containers/a/1", b"here", ephemeral=True), Set("/topologies/b", b"two")])
    asked = ["/topologies/b", "/topologies/gone", "/containers/a/1", "/topologies/a", "/topologies/b"]
    two = Node(b"two", 1)
    assert store.get_all(asked) == [two, None, Node(b"here", 0, True), Node(b"one", 0), two]
    assert store.get_all([]) == []
    world.end_session(owner)
    wait_until(lambda: store.get_all(asked) == [two, None, None, Node(b"one", 0), two], "the owner's node goes")


def test_later_reads_are_not_older(world: StoreClients) -> None:
    """Two nodes are written in order; a reader in reverse order never sees the second without the first."""
    writer, reader = world.client(), world.client()
    writer.commit([Create("/a/first", b"0"), Create("/a/second", b"0")])

    def write() -> None:
        for value in range(1, 150):
            for path in ("/a/first", "/a/second"):
                writer.commit([Set(path, str(value).encode())])

    thread = threading.Thread(target=write)
    thread.start()
    ended, wrong = False, []
    while not ended:
        ended = not thread.is_alive()
        second, first = (int(node.data) for node in reader.get_all(["/a/second", "/a/first"]) if node is not None)
        if first < second:
            wrong.append((first, second))
    thread.join()
    assert not wrong
    assert second == 149


def test_children_are_sorted_and_direct(store: StateStore) -> None:
    assert store.children("/topologies") == []
    store.commit([Create(f"/topologies/{name}", b"") for name in ("b", "a.1", "a", "Ä")])
    store.commit([Create("/topologies2/x", b"")])
    assert store.children("/topologies") == ["a", "a.1", "b", "Ä"]
    assert store.children("/topologies/a") == []


@pytest.mark.parametrize(
    "path",
    ["", "a", "/", "/a", "/a/", "//a", "/a//b", "/a/..", "/../a", "/a/b\n", "/a/\0", "/a/b/c/d", "/a/b/" + "x" * 256],
)
def test_invalid_paths_are_rejected(store: StateStore, path: str) -> None:
    with pytest.raises(InvalidPath):
        store.commit([Create(path, b"")])
    with pytest.raises(InvalidPath):
        store.get(path)
    with pytest.raises(InvalidPath):
        store.get_all(["/a/b", path])


def test_values_and_transactions_are_bounded(world: StoreClients) -> None:
    store = world.client()
    with pytest.raises(StoreError, match="at most"):
        store.commit([Create("/a/b", b"x" * (world.max_value_bytes + 1))])
    with pytest.raises(StoreError, match="at most"):
        store.commit([Set("/a/b", b"")] * 2000)
    store.commit([Create("/a/b", b"\x00" * world.max_value_bytes)])
    found = store.get("/a/b")
    assert found is not None
    assert len(found.data) == world.max_value_bytes


def test_closed_store_raises(world: StoreClients) -> None:
    client = world.client()
    client.close()
    client.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        client.get("/a/b")
    with pytest.raises(StoreUnavailable, match="not open"):
        client.get_all([])


# -- sessions ------------------------------------------------------------------------------------------------------


def test_nested_folder_has_its_own_nodes_owners_and_watches(world: StoreClients) -> None:
    owner, other = world.client(), world.client()
    fired: list[str] = []
    other.watch("/containers/t", fired.append)
    owner.commit([Create("/containers/t/1", b"one", ephemeral=True), Create("/containers/t/2", b"two")])
    wait_until(lambda: fired, "the watch of the folder fires")
    assert (other.children("/containers"), other.children("/containers/t")) == (["t"], ["1", "2"])
    assert other.get("/containers/t/1") == Node(b"one", 0, True)
    assert owner.commit([CheckOwner("/containers/t/1"), Set("/containers/t/2", b"more")]) == [0, 1]
    fired.clear()
    owner.close()
    wait_until(lambda: fired, "the watch of the folder fires when an owner goes")
    wait_until(lambda: other.children("/containers/t") == ["2"], "its node goes, and no other")
    other.commit([Delete("/containers/t/2")])
    assert other.children("/containers/t") == []


def test_only_the_owner_passes_check_owner(world: StoreClients) -> None:
    owner, other = world.client(), world.client()
    owner.commit([Create("/tmanagers/t", b"", ephemeral=True)])
    assert owner.commit([CheckOwner("/tmanagers/t"), Set("/tmanagers/t", b"new")]) == [0, 1]
    assert owner.commit([CheckOwner("/tmanagers/t")]) == [1]
    with pytest.raises(BadVersion):
        other.commit([CheckOwner("/tmanagers/t")])
    other.commit([Create("/tmanagers/u", b"", ephemeral=True)])
    with pytest.raises(BadVersion):
        other.commit([CheckOwner("/tmanagers/t")])
    assert other.commit([Delete("/tmanagers/t")]) == [-1]  # any client may delete
    with pytest.raises(NoNode):
        owner.commit([CheckOwner("/tmanagers/t")])


def test_lost_session_removes_its_nodes_and_a_new_one_begins(world: StoreClients) -> None:
    owner, other = world.client(), world.client()
    states: list[SessionState] = []
    fired: list[str] = []

    def heard(state: SessionState) -> None:
        if state is not SessionState.SUSPENDED:  # some clients learn of it by a broken connection
            states.append(state)

    owner.on_session(heard)
    owner.watch("/topologies/x", fired.append)
    owner.commit([Create("/tmanagers/t", b"old", ephemeral=True)])
    world.end_session(owner)
    wait_until(lambda: states == [SessionState.LOST], "the owner is LOST")
    assert owner.session() is SessionState.LOST
    wait_until(lambda: other.get("/tmanagers/t") is None, "the node goes")
    other.commit([Create("/tmanagers/t", b"other", ephemeral=True)])
    with pytest.raises(BadVersion):
        owner.commit([CheckOwner("/tmanagers/t"), Create("/pplans/t", b"")])
    assert other.get("/pplans/t") is None
    wait_until(lambda: states == [SessionState.LOST, SessionState.CONNECTED], "a new session begins")
    wait_until(lambda: fired, "every watch fires after a reconnect")
    owner.commit([Create("/tmanagers/mine", b"new", ephemeral=True)])
    assert other.get("/tmanagers/mine") == Node(b"new", 0, True)
    assert other.get("/tmanagers/t") == Node(b"other", 0, True)


def test_session_listener_can_be_removed(world: StoreClients) -> None:
    owner = world.client()
    kept: list[SessionState] = []
    undone: list[SessionState] = []
    owner.on_session(undone.append)()
    owner.on_session(kept.append)
    owner.commit([Create("/tmanagers/t", b"", ephemeral=True)])
    world.end_session(owner)
    wait_until(lambda: kept, "the listener is called")
    assert undone == []


# -- watches -------------------------------------------------------------------------------------------------------


def test_watches_fire_for_the_node_and_for_children(world: StoreClients) -> None:
    watcher, writer = world.client(), world.client()
    fired: list[str] = []
    watcher.watch("/topologies/a", fired.append)
    watcher.watch("/topologies", fired.append)
    steps = [
        Create("/topologies/a", b""),
        Set("/topologies/a", b"1"),
        Delete("/topologies/a"),
    ]
    for step in steps:
        del fired[:]
        writer.commit([step])
        wait_until(lambda: {"/topologies/a", "/topologies"} <= set(fired), f"both watches fire after {step}")
    del fired[:]
    writer.commit([Create("/topologies/b", b"")])
    wait_until(lambda: "/topologies" in fired, "the folder's watch fires")
    assert "/topologies/a" not in fired


def test_client_sees_its_own_changes(store: StateStore) -> None:
    fired: list[str] = []
    store.watch("/a/b", fired.append)
    store.commit([Create("/a/b", b"")])
    wait_until(lambda: fired, "the watch fires")


def test_removed_watch_is_silent(world: StoreClients) -> None:
    watcher, writer = world.client(), world.client()
    undone: list[str] = []
    kept: list[str] = []
    watcher.watch("/a/b", undone.append)()
    watcher.watch("/a/b", kept.append)
    writer.commit([Create("/a/b", b"")])
    wait_until(lambda: kept, "the other watch fires")
    assert undone == []


def test_watch_fires_when_an_owner_leaves(world: StoreClients) -> None:
    watcher, owner = world.client(), world.client()
    owner.commit([Create("/tmanagers/t", b"", ephemeral=True)])
    seen: list[Node | None] = []
    watcher.watch("/tmanagers/t", lambda path: seen.append(watcher.get(path)))
    owner.close()
    wait_until(lambda: seen and seen[-1] is None, "the watch fires after the node is gone")


def test_last_change_is_never_missed(world: StoreClients) -> None:
    """Watches are registered during writes; each one observes the last value in the end."""
    writer, watcher = world.client(), world.client()
    writer.commit([Create("/a/n", b"0")])
    last: dict[int, bytes] = {}

    def look(number: int) -> None:
        found = watcher.get("/a/n")
        assert found is not None
        last[number] = found.data

    def write() -> None:
        for value in range(1, 60):
            writer.commit([Set("/a/n", str(value).encode())])

    thread = threading.Thread(target=write)
    thread.start()
    for number in range(20):
        watcher.watch("/a/n", lambda _, n=number: look(n))
        look(number)
    thread.join()
    wait_until(lambda: set(last.values()) == {b"59"}, "every watcher has seen the last value")


# -- concurrency ---------------------------------------------------------------------------------------------------


def test_concurrent_threads_count_correctly(world: StoreClients) -> None:
    """Compare-and-set from eight threads over two clients: no increment is lost or repeated."""
    clients = [world.client(), world.client()]
    clients[0].commit([Create("/a/counter", b"0"), Create("/a/twin", b"0")])
    torn: list[object] = []

    def increment(client: StateStore) -> None:
        for _ in range(10):
            while True:
                found = client.get("/a/counter")
                assert found is not None
                value = str(int(found.data) + 1).encode()
                try:
                    versions = client.commit([Set("/a/counter", value, found.version), Set("/a/twin", value)])
                except BadVersion:
                    continue
                if versions[0] != versions[1]:
                    torn.append(versions)
                break

    threads = [threading.Thread(target=increment, args=(clients[n % 2],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clients[0].get("/a/counter") == Node(b"80", 80)
    assert clients[1].get("/a/twin") == Node(b"80", 80)
    assert torn == []

"""Three servers whose leader dies while clients write: no write is lost or applied twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from heron_runtime.state import paths, topologies
from heron_runtime.state.store import (
    AnswerLost,
    BadVersion,
    CheckOwner,
    Create,
    Node,
    NodeExists,
    SessionState,
    Set,
    StateStore,
    StoreUnavailable,
)
from heron_runtime.state.topologies import AlreadyExists
from heron_runtime.state.zookeeper import ZookeeperStore
from tests.support.servers.zookeeper import Ensemble
from tests.support.waiting import wait_until
from tests.unit.state.test_topologies import parts

ROUNDS = 3  # leaders killed


@pytest.fixture
def client(ensemble: Ensemble, root: str) -> Iterator[Callable[[], ZookeeperStore]]:
    """Yield a function that creates clients of one tree on the ensemble."""
    made: list[ZookeeperStore] = []

    def make() -> ZookeeperStore:
        store = ZookeeperStore(ensemble.hosts, root=root)
        store.open()
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


def kill_leaders(ensemble: Ensemble, pause_secs: float) -> None:
    """Kill the leader, and restart it when another leads; ``ROUNDS`` times."""
    for _ in range(ROUNDS):
        time.sleep(pause_secs)
        leader = ensemble.leader()
        leader.kill()
        ensemble.leader()
        leader.start()


def test_committed_data_is_visible_to_all_clients_at_once(client: Callable[[], ZookeeperStore]) -> None:
    """Clients choose their servers independently; a read waits until its server has caught up."""
    stores = [client() for _ in range(5)]
    stores[0].commit([Create("/a/x", b"0")])
    for number in range(1, 30):
        stores[number % 5].commit([Set("/a/x", str(number).encode())])
        for store in stores:
            assert store.get("/a/x") == Node(str(number).encode(), number)
    stores[1].commit([Create("/a/mine", b"", ephemeral=True)])
    assert all(store.children("/a") == ["mine", "x"] for store in stores)
    stores[1].close()
    assert all(store.get("/a/mine") is None for store in stores if store is not stores[1])


def test_no_count_is_lost_or_doubled_when_leaders_die(ensemble: Ensemble, client: Callable[[], ZookeeperStore]) -> None:
    """Four threads compare and set. A read settles a lost answer: the value names its writer."""
    first = client()
    first.commit([Create("/a/counter", b"0 nobody")])
    over = threading.Event()
    done = [0] * 4
    lost = [0] * 4
    wrong: list[object] = []

    def settle(store: StateStore, wanted: bytes, version: int) -> bool:
        """Return True if the write that creates this version was applied."""
        while True:
            try:
                found = store.get("/a/counter")
            except StoreUnavailable:
                continue
            assert found is not None
            if found.version < version:
                return False
            if found.version == version:
                return found.data == wanted
            history = store.get(f"/history/{version}")
            return history is not None and history.data == wanted

    def count(number: int) -> None:
        store = client()
        while not over.is_set():
            try:
                found = store.get("/a/counter")
                assert found is not None
                wanted = b"%d thread %d" % (int(found.data.split()[0]) + 1, number)
                after = found.version + 1
                store.commit([Set("/a/counter", wanted, found.version), Create(f"/history/{after}", wanted)])
            except (BadVersion, NodeExists):
                continue
            except AnswerLost:
                lost[number] += 1
                if settle(store, wanted, after):
                    done[number] += 1
                continue
            except StoreUnavailable:
                continue  # it was not sent
            except Exception as error:
                wrong.append(error)
                return
            done[number] += 1

    threads = [threading.Thread(target=count, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    kill_leaders(ensemble, 1.0)
    before = sum(done)
    wait_until(lambda: wrong or sum(done) > before + 10, "counting goes on")
    over.set()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    found = client().get("/a/counter")
    assert found is not None
    assert (int(found.data.split()[0]), found.version) == (sum(done), sum(done))
    print(f"{sum(done)} counted, {sum(lost)} answers lost")


def test_submit_and_kill_survive_the_leaders_death(ensemble: Ensemble, client: Callable[[], ZookeeperStore]) -> None:
    """Submits and kills run continuously: each call ends as with a store that is always available."""
    over = threading.Event()
    rounds = [0] * 3
    wrong: list[object] = []

    def live(number: int) -> None:
        store, name = client(), f"words{number}"
        try:
            while not over.is_set():
                definition, packing, state = parts(name, rounds[number])
                topologies.submit(store, definition, packing, state)
                assert topologies.read_topology(store, name).definition.id == definition.id
                other = replace(definition, id="other")
                with pytest.raises(AlreadyExists):
                    topologies.submit(store, other, packing, replace(state, topology_id="other"))
                assert topologies.kill(store, name, definition.id)
                assert store.get(paths.execution_state(name)) is None
                rounds[number] += 1
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    kill_leaders(ensemble, 0.7)
    before = list(rounds)
    wait_until(lambda: wrong or all(now > then for now, then in zip(rounds, before, strict=True)), "all go on")
    over.set()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    print(f"{sum(rounds)} topologies submitted and killed")


def test_sessions_and_watches_survive_a_dead_leader(ensemble: Ensemble, client: Callable[[], ZookeeperStore]) -> None:
    owner, watcher = client(), client()
    lost: list[SessionState] = []
    fired: list[str] = []
    for store in (owner, watcher):
        store.on_session(lambda state: lost.append(state) if state is SessionState.LOST else None)
    owner.commit([Create("/tmanagers/t", b"me", ephemeral=True)])
    watcher.watch("/topologies", fired.append)
    leader = ensemble.leader()
    began = time.monotonic()
    leader.kill()
    while True:
        try:
            owner.commit([CheckOwner("/tmanagers/t"), Create("/topologies/t", b"")])
            break
        except AnswerLost:
            if watcher.get("/topologies/t") is not None:
                break
        except StoreUnavailable:
            continue
    print(f"written {time.monotonic() - began:.1f} s after the leader's death")
    wait_until(lambda: fired, "the watch fires")
    assert watcher.get("/topologies/t") is not None
    assert watcher.get("/tmanagers/t") == Node(b"me", 0, True)
    assert lost == []
    leader.start()

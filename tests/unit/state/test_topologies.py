"""Submit, kill, read and list of topologies, over every store."""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import pytest

from heron_control.schedulers.node_registration import is_killed
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.records import ContainerLocation, ExecutionState, MasterEpoch, MasterLocation, WantedState
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heron_runtime.state import paths, topologies
from heron_runtime.state.memory import MemoryStore
from heron_runtime.state.store import (
    Create,
    Delete,
    Node,
    Set,
    StateStore,
    StoreError,
    StoreForbidden,
    StoreReplaced,
    StoreUnavailable,
    store_identity,
)
from heron_runtime.state.topologies import AlreadyExists, DamagedNode, NoSuchTopology, OlderLayout
from heron_runtime.wire import message_codecs
from tests.support.definitions import component, plan_of, round_robin_packing, topology_spec
from tests.support.stores.local import StoreClients
from topology_master.shell.store import read_stored

KINDS = [value for key, value in vars(paths).items() if key.isupper()]


def parts(name: str = "words", number: int = 1) -> tuple[TopologyDefinition, PackingPlan, ExecutionState]:
    definition = topology_spec(name, component("word", fields=("word",)), number=str(number))
    packing = round_robin_packing(definition)
    state = ExecutionState(name, definition.id, "local", "me", "default", TopologyState.RUNNING, submitted_at=5.0)
    return definition, packing, state


def publish(store: StateStore, topology_id: str) -> None:
    """Write the nodes of a submission's master and containers."""
    definition, packing, _ = parts()
    plan = plan_of(replace(definition, id=topology_id), packing)
    store.commit(
        [
            Create(paths.physical_plan("words"), message_codecs.PHYSICAL_PLAN.encode(plan)),
            Create(paths.epoch("words"), message_codecs.MASTER_EPOCH.encode(MasterEpoch(1))),
            Create(
                paths.master("words"),
                message_codecs.MASTER_LOCATION.encode(MasterLocation(topology_id, "h", 1, 1)),
                True,
            ),
            *(
                Create(
                    paths.container("words", n),
                    message_codecs.CONTAINER_LOCATION.encode(ContainerLocation(topology_id, n, "h", n, n, 1)),
                    True,
                )
                for n in (0, 2, 10)
            ),
        ]
    )


def test_submitted_topology_can_be_read(store: StateStore) -> None:
    definition, packing, state = parts()
    topologies.submit(store, definition, packing, state)
    record = topologies.read_topology(store, "words")
    assert (record.definition, record.packing, record.execution) == (definition, packing, state)
    assert (record.physical, record.master, record.scheduler, record.containers) == (None, None, None, ())
    publish(store, definition.id)
    record = topologies.read_topology(store, "words")
    assert record.physical is not None
    assert record.master is not None
    assert [c.container for c in record.containers] == [0, 2, 10]
    assert record.container(2) is not None
    assert record.container(3) is None


def test_name_can_be_used_once(store: StateStore) -> None:
    topologies.submit(store, *parts(number=1))
    with pytest.raises(AlreadyExists):
        topologies.submit(store, *parts(number=2))
    assert topologies.read_topology(store, "words").definition.id == "words-1"


def test_one_of_concurrent_submissions_wins(world: StoreClients) -> None:
    won: list[int] = []
    lost: list[int] = []

    def submit(number: int, store: StateStore) -> None:
        try:
            topologies.submit(store, *parts(number=number))
        except AlreadyExists:
            lost.append(number)
        else:
            won.append(number)

    threads = [threading.Thread(target=submit, args=(n, world.client())) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(lost) == 4
    assert topologies.read_topology(world.client(), "words").definition.id == f"words-{won[0]}"


def test_kill_removes_all_nodes_and_is_idempotent(world: StoreClients) -> None:
    client, owner = world.client(), world.client()
    topologies.submit(client, *parts())
    topologies.submit(client, *parts("other"))
    publish(owner, "words-1")
    assert topologies.kill(client, "words") is True
    assert topologies.kill(client, "words") is False
    with pytest.raises(NoSuchTopology):
        topologies.read_topology(client, "words")
    assert client.get(paths.master("words")) is not None  # removed with its owner's session or by `clear`
    for _ in range(2):
        topologies.clear(client, "words")
    for kind in KINDS:
        assert [name for name in client.children(kind) if name.startswith("words")] == []
    assert [state.topology for state in topologies.list_topologies(client)] == ["other"]


def test_topology_may_set_only_its_own_wanted_state(store: StateStore) -> None:
    definition, packing, state = parts()
    topologies.submit(store, definition, packing, state)

    def wanted(topology_id: str, wanted: TopologyState) -> TopologyState:
        path = paths.wanted_state("words")
        before = [] if store.get(path) is None else [Delete(path)]
        store.commit([*before, Create(path, message_codecs.WANTED_STATE.encode(WantedState(topology_id, wanted)))])
        (listed,) = topologies.list_topologies(store)
        read = topologies.read_topology(store, "words").execution
        assert listed == read == replace(state, state=read.state)
        return read.state

    assert wanted("words-1", TopologyState.PAUSED) is TopologyState.PAUSED
    assert wanted("words-1", TopologyState.RUNNING) is TopologyState.RUNNING
    assert wanted("words-1", TopologyState.KILLED) is TopologyState.RUNNING
    assert wanted("words-0", TopologyState.PAUSED) is TopologyState.RUNNING  # of the previous submission
    store.commit([Set(paths.wanted_state("words"), b"\xff nonsense")])
    assert topologies.list_topologies(store) == (state,)
    assert topologies.kill(store, "words")
    assert store.get(paths.wanted_state("words")) is None


def test_kill_of_one_submission_spares_its_successor(store: StateStore) -> None:
    topologies.submit(store, *parts(number=2))
    assert topologies.kill(store, "words", "words-1") is False
    assert topologies.kill(store, "words", "words-2") is True


def test_leftovers_of_a_dead_submission_do_not_block_a_new_one(world: StoreClients) -> None:
    client, owner = world.client(), world.client()
    publish(owner, "words-1")
    topologies.submit(client, *parts(number=2))
    record = topologies.read_topology(client, "words")
    assert (record.physical, record.master, record.containers) == (None, None, ())
    assert client.get(paths.physical_plan("words")) is None
    assert client.get(paths.epoch("words")) is None


def test_older_layout_is_named_and_orphans_are_cleared(world: StoreClients) -> None:
    store, dead = world.client(), world.client()
    topologies.submit(store, *parts())
    publish(dead, "words-1")
    store.commit([Create(paths.master("gone"), b""), Create("/epochs/gone", b"")])
    topologies.check_layout(store)
    topologies.clear_orphans(store)
    assert store.children(paths.masters("gone")) == []
    assert topologies.read_topology(store, "words").master is not None
    store.commit([Create("/epochs/words", b"")])
    with pytest.raises(OlderLayout, match="earlier release: words") as refused:
        topologies.check_layout(store)
    assert "kill them there" in refused.value.cure


def test_names_with_a_common_prefix_are_distinct(store: StateStore) -> None:
    for name in ("a", "a.1"):
        location = message_codecs.CONTAINER_LOCATION.encode(ContainerLocation(name, 1, "h", 1, 1, 1))
        store.commit([Create(paths.container(name, 1), location)])
    assert [c.topology_id for c in topologies.containers(store, "a")] == ["a"]
    assert [c.topology_id for c in topologies.containers(store, "a.1")] == ["a.1"]


def test_unreadable_record_hides_no_other(store: StateStore) -> None:
    topologies.submit(store, *parts())
    store.commit([Create(paths.execution_state("broken"), b"\xff\xff\xff")])
    assert [state.topology for state in topologies.list_topologies(store)] == ["words"]
    with pytest.raises(StoreError, match="cannot be read"):
        topologies.read_topology(store, "broken")


class GoesAway(MemoryStore):
    """Store that loses its connection after a number of reads."""

    reads = 0

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read while reads are left."""
        self.reads -= 1
        if self.reads < 0:
            raise StoreUnavailable("the connection is lost")
        return super().get_all(paths)


def test_lost_store_hides_no_topology() -> None:
    """A caller that took missing topologies for killed ones would stop them."""
    store = GoesAway()
    store.open()
    store.reads = 1000
    topologies.submit(store, *parts())
    topologies.submit(store, *parts("other"))
    store.reads = 1
    with pytest.raises(StoreUnavailable):
        topologies.list_topologies(store)
    store.reads = 1000
    assert len(topologies.list_topologies(store)) == 2
    store.close()


class Hides(MemoryStore):
    """Store with some unreadable nodes."""

    hidden: Container[str] = ()

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read unless a node is hidden."""
        for path in paths:
            if path in self.hidden:
                raise StoreForbidden(f"{path}: not allowed")
        return super().get_all(paths)


def test_forbidden_node_hides_no_other() -> None:
    store = Hides()
    store.open()
    for name in ("words", "other"):
        topologies.submit(store, *parts(name))
    asked = WantedState(topologies.read_topology(store, "words").definition.id, TopologyState.PAUSED)
    store.commit([Create(paths.wanted_state("words"), message_codecs.WANTED_STATE.encode(asked))])
    store.hidden = {paths.wanted_state("other")}
    found = {state.topology: state.state for state in topologies.list_topologies(store)}
    assert found == {"other": TopologyState.RUNNING, "words": TopologyState.PAUSED}
    store.hidden = {paths.execution_state("other"), paths.master("words")}
    assert [state.topology for state in topologies.list_topologies(store)] == ["words"]
    with pytest.raises(StoreForbidden, match=paths.master("words")):
        topologies.read_topology(store, "words")
    definition, packing, _ = parts("words")
    assert topologies.read_plans(store, "words") == (definition, packing)
    store.close()


def test_every_reader_of_a_damaged_record_names_it(store: StateStore) -> None:
    """Schedulers, containers and topology masters continue and report the path."""
    topologies.submit(store, *parts())
    path = paths.execution_state("words")
    store.commit([Set(path, b"\xc1 damaged")])
    for use in (
        lambda: topologies.submit(store, *parts(number=2)),
        lambda: topologies.kill(store, "words", "words-1"),
        lambda: is_killed(store, "words", "words-1", ""),
        lambda: read_stored(store, "words"),
    ):
        with pytest.raises(DamagedNode, match=path):
            use()
    assert topologies.kill(store, "words"), "without an id it can still be removed"


def test_a_killed_topology_leaves_the_identity_of_the_store(world: StoreClients) -> None:
    store, other = world.client(), world.client()
    topologies.submit(store, *parts())
    identity = store_identity(store, create=True)
    assert identity
    assert not is_killed(store, "words", "words-1", identity)
    topologies.kill(store, "words")
    topologies.clear(store, "words")
    assert store_identity(store) == store_identity(other) == identity
    assert is_killed(other, "words", "words-1", identity)


def test_a_record_that_is_missing_in_another_store_is_not_a_kill(store: StateStore) -> None:
    topologies.submit(store, *parts("other"))
    assert store_identity(store, create=True)
    with pytest.raises(StoreReplaced, match="the state store was replaced: its contents have another identity"):
        is_killed(store, "words", "words-1", "of the lost store")
    with pytest.raises(StoreReplaced):
        read_stored(store, "words", "of the lost store")
    topologies.submit(store, *parts("words", 2))
    assert is_killed(store, "words", "words-1", "of the lost store"), "another submission has the name"
    assert not is_killed(store, "words", "words-2", "of the lost store"), "a record proves more than the identity"


class RestoredMeanwhile:
    """A store whose first read finds nothing, as if its contents were restored right after it."""

    def __init__(self, store: StateStore) -> None:
        self._store, self._lost = store, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, path: str) -> Any:
        lost, self._lost = self._lost, False
        return None if lost else self._store.get(path)

    def get_all(self, paths: Sequence[str]) -> Any:
        lost, self._lost = self._lost, False
        return [None] * len(paths) if lost else self._store.get_all(paths)


def test_a_store_restored_while_it_is_read_is_not_a_kill(store: StateStore) -> None:
    topologies.submit(store, *parts())
    identity = store_identity(store, create=True)
    restored: Any = RestoredMeanwhile(store)
    assert not is_killed(restored, "words", "words-1", identity)
    restored = RestoredMeanwhile(store)
    assert read_stored(restored, "words", identity).execution is not None

"""Caching store: never older than its watches reported, boundedly stale, and quiet when idle."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import Create, Delete, Node, SessionState, Set, StateStore, StoreError, StoreUnavailable
from heron_runtime.state.wrappers import SURE_SECS, CachedStore, StoreWrapper

PATHS = ("/executionstate/t", "/containers/t/1", "/packingplans/t")
ONE = settings(report_multiple_bugs=False)
Nodes = list[Node | None]


class LateStore(StoreWrapper):
    """Store whose watches fire on ``deliver``. ``meanwhile`` runs during the next of its ``readings``."""

    def __init__(self, store: StateStore) -> None:
        super().__init__(store)
        self.pending: list[Callable[[], None]] = []
        self.readings = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def get_all(self, paths: Sequence[str]) -> Nodes:
        self.readings += 1
        found = super().get_all(paths)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return found

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        return super().watch(path, lambda which: self.pending.append(lambda: changed(which)))

    def deliver(self) -> None:
        pending, self.pending = self.pending, []
        for call in pending:
            call()


class Trial:
    """Caching client and another writer. ``history`` holds every distinct state in order.

    ``told``: reads return the state of this index or a later one.
    """

    def __init__(self) -> None:
        tree = MemoryTree()
        self.clock = 0.0
        self.memory, self.other = MemoryStore(tree), MemoryStore(tree)
        self.late = LateStore(self.memory)
        self.store = CachedStore(self.late, PATHS, clock=lambda: self.clock)
        self.other.open()
        self.store.open()
        self.written = 0
        self.history: list[Nodes] = [self.other.get_all(PATHS)]
        self.told = 0
        self.read_at = -math.inf

    def write(self, client: StateStore, number: int) -> None:
        """Write a node: create or change it, and occasionally delete it."""
        self.written += 1
        path, data = PATHS[number % len(PATHS)], str(self.written).encode()
        there = self.other.get(path) is not None
        removes = there and self.written % 5 == 0
        client.commit([Delete(path) if removes else Set(path, data) if there else Create(path, data)])
        self.history.append(self.other.get_all(PATHS))

    def take(self, step: str, number: int) -> None:
        match step:
            case "other":
                self.write(self.other, number)
            case "own":
                if self.memory._reachable:
                    self.write(self.store, number)
                    self.told = self.latest
            case "deliver":
                if self.late.pending and self.memory._reachable:  # otherwise some may be lost or still pending
                    self.told = self.latest
                self.late.deliver()
            case "lose":
                self.late.pending.clear()
            case "wait":
                self.clock += number
            case "cut":
                self.memory.lose_connection()
            case "mend":
                self.memory.restore_connection()
            case "expire":
                self.memory.expire_session()
            case "meanwhile":
                self.late.meanwhile = lambda: self.write_and_tell(number)

    def write_and_tell(self, number: int) -> None:
        self.write(self.other, number)
        self.late.deliver()

    @property
    def latest(self) -> int:
        return len(self.history) - 1

    def look(self) -> None:
        """Check that reads are right and that an immediate second read does not reach the store."""
        if not self.memory._reachable:
            try:
                self.store.get_all(PATHS)
            except StoreUnavailable:
                return
            raise AssertionError("nobody knows what stands there now")
        connected = self.store.session() is SessionState.CONNECTED
        if not connected or self.clock >= self.read_at + SURE_SECS:
            self.told = self.latest
        readings, latest = self.late.readings, self.latest
        found = self.store.get_all(PATHS)
        assert found in self.history[self.told :], "older than what was told"
        if self.late.readings > readings:
            self.read_at = self.clock
            assert found == self.history[latest]
            if self.latest > latest:  # written and reported during the read
                self.told = self.latest
        else:
            assert [self.store.get(path) for path in PATHS] == found
            assert self.late.readings == readings, "nothing has happened"


STEPS = st.sampled_from(["other", "own", "deliver", "lose", "wait", "cut", "mend", "expire", "meanwhile"])


def is_right(steps: list[tuple[str, int]]) -> None:
    trial = Trial()
    trial.look()
    for step, number in steps:
        trial.take(step, number)
        trial.look()


@ONE
@given(st.lists(st.tuples(STEPS, st.integers(0, 8)), max_size=20))
def test_reported_changes_are_visible(steps: list[tuple[str, int]]) -> None:
    is_right(steps)


@ONE
@given(st.lists(st.tuples(st.sampled_from(["other", "lose", "wait"]), st.integers(2, 8)), min_size=5, max_size=20))
def test_lost_watch_hides_no_change(steps: list[tuple[str, int]]) -> None:
    """A case that the steps of the test above rarely reach."""
    is_right(steps)


@ONE
@given(st.lists(st.floats(0.0, 2.0), max_size=20))
def test_idle_client_does_not_read_the_store(waits: list[float]) -> None:
    trial = Trial()
    for wait in waits:
        trial.clock += wait
        trial.look()
    assert trial.late.readings <= 1 + trial.clock / SURE_SECS


def test_watch_callback_reads_the_change() -> None:
    """The order of the watches on one path does not matter."""
    tree = MemoryTree()
    store, other = CachedStore(MemoryStore(tree), PATHS), MemoryStore(tree)
    seen: list[Node | None] = []
    store._store.open()
    store.watch(PATHS[0], lambda path: seen.append(store.get(path)))  # registered before the cache's own watch
    store.attach()
    other.open()
    assert store.get(PATHS[0]) is None
    other.commit([Create(PATHS[0], b"here")])
    assert seen == [Node(b"here", 0)]


def test_uncached_nodes_are_read_each_time_and_all_are_after_detach() -> None:
    tree = MemoryTree()
    memory, other = MemoryStore(tree), MemoryStore(tree)
    late = LateStore(memory)
    store = CachedStore(late, PATHS)
    other.open()
    store.open()
    assert store.get_all([PATHS[0], "/pplans/t/newest"]) == [None, None]
    other.commit([Create("/pplans/t/newest", b"plan")])
    assert store.get("/pplans/t/newest") == Node(b"plan", 0)
    assert store.get(PATHS[0]) is None
    store.detach()
    other.commit([Create(PATHS[0], b"here")])
    assert store.get(PATHS[0]) == Node(b"here", 0), "nobody tells, so it is read"
    store.close()
    with pytest.raises(StoreUnavailable):
        store.get(PATHS[0])


def test_store_that_cannot_be_watched_is_closed() -> None:
    class Unwatched(MemoryStore):
        def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
            if path == PATHS[1]:
                raise StoreError("not allowed")
            return super().watch(path, changed)

    memory = Unwatched()
    with pytest.raises(StoreError, match="not allowed"):
        CachedStore(memory, PATHS).open()
    assert not memory._opened
    assert not memory._table.watches()

"""Election of an API server over a memory store: beliefs of the servers and permitted writes."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heron_apiserver.leadership import (
    Leadership,
    LeadershipEvent,
    LeadershipRole,
    LeadershipSignal,
    LeadershipStep,
    NodeRead,
)
from heron_runtime.failures import Unavailable
from heron_runtime.state import paths
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import (
    Check,
    Create,
    Delete,
    NodeExists,
    SessionState,
    Set,
    StoreError,
    StoreUnavailable,
    TransactionFailed,
)
from heron_runtime.state.wrappers import FencedStore, LeadershipLost, fenced

NODE = paths.api_server("box")
COUNTER = "/topologies/counter"
SERVERS = 3


class Server:
    """API server core with a shell whose steps wait until the test takes them."""

    def __init__(self, tree: MemoryTree, name: str) -> None:
        self.store = MemoryStore(tree)
        self.store.open()
        self.fence = FencedStore(self.store, NODE)
        self.core = Leadership(name)
        self.told: Counter[LeadershipStep] = Counter()
        self.watching = False
        self.steps: deque[LeadershipStep] = deque()
        self.answers: deque[LeadershipEvent] = deque()  # answered by the store, but not delivered yet
        self.events: deque[LeadershipEvent] = deque([LeadershipSignal.STORE_CONNECTED])
        heard = {
            SessionState.SUSPENDED: LeadershipSignal.STORE_SUSPENDED,
            SessionState.CONNECTED: LeadershipSignal.STORE_CONNECTED,
            SessionState.LOST: LeadershipSignal.SESSION_LOST,
        }
        self.store.on_session(lambda state: self.events.append(heard[state]))
        self.store.watch(NODE, lambda _: self.events.append(LeadershipSignal.NODE_CHANGED))

    @property
    def idle(self) -> bool:
        """True if the server waits for others."""
        return not self.steps and not self.answers and not self.events

    def move(self) -> None:
        """Carry out one step or deliver one event; steps come first, as in the shell."""
        if self.answers:
            self.events.append(self.answers.popleft())
        elif self.steps:
            self._take(self.steps.popleft())
        elif self.events:
            self.steps.extend(self.core.handle(self.events.popleft()))

    def _take(self, step: LeadershipStep) -> None:
        self.told[step] += 1
        if step is LeadershipStep.LOOK:
            try:
                node = self.store.get(NODE)
            except StoreError:
                return  # it learns of the connection when it is back
            holder = node.data.decode() if node else ""
            self.answers.append(NodeRead(holder))
        elif step is LeadershipStep.STAND:
            try:
                self.store.commit([Create(NODE, self.core.claim.encode(), ephemeral=True)])
            except StoreError:
                pass
            self.answers.append(LeadershipSignal.CLAIM_FINISHED)
        elif step in (LeadershipStep.LEAD, LeadershipStep.RESUME):
            assert not self.watching
            self.watching = True
        elif step in (LeadershipStep.PAUSE, LeadershipStep.END):
            self.watching = False


def owner(tree: MemoryTree) -> str:
    """Return the owner of the claim in the store."""
    record = tree.nodes.get(NODE)
    return record.data.decode() if record else ""


class Election(RuleBasedStateMachine):
    """Servers that move at any speed while connections break and sessions end."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = MemoryTree()
        self.servers = [Server(self.tree, f"server-{number}") for number in range(SERVERS)]
        self.writes = 0
        plain = MemoryStore(self.tree)
        plain.open()
        plain.commit([Create(COUNTER, b"")])
        self.plain = plain

    @rule(which=st.integers(0, SERVERS - 1), moves=st.integers(1, 6))
    def move(self, which: int, moves: int) -> None:
        for _ in range(moves):
            self.servers[which].move()

    @rule(which=st.integers(0, SERVERS - 1))
    def settle(self, which: int) -> None:
        while not self.servers[which].idle:
            self.servers[which].move()

    @rule(which=st.integers(0, SERVERS - 1))
    def cut_off(self, which: int) -> None:
        self.servers[which].store.lose_connection()

    @rule(which=st.integers(0, SERVERS - 1))
    def reach_again(self, which: int) -> None:
        self.servers[which].store.restore_connection()

    @rule(which=st.integers(0, SERVERS - 1))
    def expire(self, which: int) -> None:
        self.servers[which].store.expire_session()

    @rule(which=st.integers(0, SERVERS - 1))
    def start_again(self, which: int) -> None:
        """Replace a server whose process has ended."""
        if self.servers[which].core.role is LeadershipRole.OVER:
            self.servers[which].store.close()
            self.writes += 1
            self.servers[which] = Server(self.tree, f"server-{which}-{self.writes}")

    @rule(which=st.integers(0, SERVERS - 1))
    def write(self, which: int) -> None:
        """Write regardless of belief: it succeeds only if the server owns the node."""
        server = self.servers[which]
        owns = owner(self.tree) == server.core.claim
        before = self.plain.get(COUNTER)
        try:
            server.fence.commit([Set(COUNTER, b"x")])
        except LeadershipLost:
            assert not owns
        except StoreUnavailable:
            pass
        else:
            assert owns
            return
        assert self.plain.get(COUNTER) == before

    @rule()
    def somebody_removes_the_node(self) -> None:
        """Delete the node externally."""
        if owner(self.tree):
            self.plain.commit([Delete(NODE)])

    @invariant()
    def who_acts_owns_the_node_or_has_not_heard_yet(self) -> None:
        for server in self.servers:
            assert server.told[LeadershipStep.LEAD] <= 1
            if server.core.role is LeadershipRole.LEADING and server.idle:
                assert owner(self.tree) == server.core.claim
                assert server.watching
            if server.idle:
                assert server.watching <= (server.store.session() is SessionState.CONNECTED), "it starts containers"
            if server.told[LeadershipStep.END]:
                assert server.core.role is LeadershipRole.OVER, "an end is for good"

    def teardown(self) -> None:
        """Without faults exactly one server leads, and it may write."""
        for number, server in enumerate(self.servers):
            server.store.restore_connection()
            while not server.idle:
                server.move()
            self.start_again(number)
        while any(not server.idle for server in self.servers):
            for number, server in enumerate(self.servers):
                server.move()
                self.start_again(number)
        acting = [server for server in self.servers if server.watching]
        assert [server.core.role for server in acting] == [LeadershipRole.LEADING]
        acting[0].fence.commit([Set(COUNTER, b"y")])


TestElection = Election.TestCase


def two() -> tuple[MemoryStore, MemoryStore]:
    """Return two sessions on one tree."""
    tree = MemoryTree()
    stores = MemoryStore(tree), MemoryStore(tree)
    for store in stores:
        store.open()
    return stores


def test_fence_preserves_versions_and_errors() -> None:
    leads, other = two()
    leads.commit([Create(NODE, b"", ephemeral=True)])
    fence = fenced(leads, NODE)
    assert fence.commit([Create("/a/x", b"1"), Create("/a/y", b"2"), Set("/a/x", b"3")]) == [0, 0, 1]
    assert fence.commit([]) == []
    with pytest.raises(NodeExists) as caught:
        fence.commit([Check("/a/x"), Create("/a/y", b"2")])
    assert (caught.value.index, caught.value.path) == (1, "/a/y")
    with pytest.raises(LeadershipLost):
        fenced(other, NODE).commit([Delete("/a/x")])
    node = other.get("/a/x")
    assert node is not None
    assert (node.data, node.version) == (b"3", 1)


def test_fence_rejection_is_retryable_and_not_a_conflict() -> None:
    _, other = two()
    with pytest.raises(LeadershipLost) as caught:
        fenced(other, NODE).commit([Create("/a/x", b"1")])
    assert not isinstance(caught.value, TransactionFailed)
    assert caught.value.http_status == Unavailable.http_status == 503
    assert "Send the request again" in caught.value.cure


def test_answer_from_before_a_suspension_does_not_resume() -> None:
    core = Leadership("mine")
    core.handle(LeadershipSignal.STORE_CONNECTED)
    assert core.handle(NodeRead("mine")) == [LeadershipStep.LEAD]
    assert core.handle(LeadershipSignal.STORE_SUSPENDED) == [LeadershipStep.PAUSE]
    assert core.handle(NodeRead("mine")) == []
    assert core.role is LeadershipRole.SUSPENDED
    assert core.handle(LeadershipSignal.STORE_CONNECTED) == [LeadershipStep.LOOK]
    assert core.handle(NodeRead("mine")) == [LeadershipStep.RESUME]

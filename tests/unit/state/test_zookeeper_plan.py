"""Transactions and watches on ZooKeeper, with a tree that behaves like a server.

Another client changes the tree between the read and the transaction. The store's answer must equal that of the
pure rules of ``heron_runtime.state.store_base`` on the tree at the time of the transaction.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.state import zookeeper_transactions as plan
from heron_runtime.state.store import (
    Check,
    CheckOwner,
    Create,
    Delete,
    Operation,
    SessionState,
    Set,
    StoreError,
    StoreUnavailable,
    TransactionFailed,
)
from heron_runtime.state.store_base import Record, evaluate
from heron_runtime.state.zookeeper import Trigger, WatchThread
from heron_runtime.state.zookeeper_transactions import Action, NodeSnapshot, Op, OpOutcome, RetryAfterRead

ME, OTHER = "me", "other"
PATHS = ("/a/x", "/a/y", "/b/x")


@dataclass
class Tree:
    """Nodes with version and owner, and folders with a version, as on a server."""

    nodes: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=lambda: {"/a": 0, "/b": 0})

    def multi(self, ops: list[Op], session: str) -> list[int | OpOutcome]:
        """Run all operations or none."""
        nodes, folders = dict(self.nodes), dict(self.folders)
        replies: list[int | OpOutcome] = []
        for number, op in enumerate(ops):
            reply = _do(nodes, folders, op, session)
            if isinstance(reply, OpOutcome):
                return [OpOutcome.NOT_DONE] * number + [reply] + [OpOutcome.NOT_DONE] * (len(ops) - number - 1)
            replies.append(reply)
        self.nodes, self.folders = nodes, folders
        return replies

    def look(self, path: str) -> NodeSnapshot:
        """Read a node as the store does."""
        found = self.nodes.get(path)
        return NodeSnapshot(
            self.folders["/" + path.split("/")[1]], found[0] if found else None, bool(found and found[1] == ME)
        )

    def records(self) -> dict[str, Record]:
        """Return the records for the pure rules."""
        return {path: Record(b"", version, owner, 0) for path, (version, owner) in self.nodes.items()}

    def expire(self, session: str) -> None:
        """Delete the nodes of the session; folder versions do not change."""
        self.nodes = {path: node for path, node in self.nodes.items() if node[1] != session}


def _do(nodes: dict[str, tuple[int, str | None]], folders: dict[str, int], op: Op, session: str) -> int | OpOutcome:
    if op.path in folders:
        wrong = op.version not in (plan.ANY_VERSION, folders[op.path])
        if wrong:
            return OpOutcome.BAD_VERSION
        if op.action is Action.SET:
            folders[op.path] += 1
        return folders[op.path]
    found = nodes.get(op.path)
    if op.action is Action.CREATE:
        if found:
            return OpOutcome.EXISTS
        nodes[op.path] = (0, session if op.ephemeral else None)
        return 0
    if found is None:
        return OpOutcome.NO_NODE
    if op.version not in (plan.ANY_VERSION, found[0]):
        return OpOutcome.BAD_VERSION
    if op.action is Action.DELETE:
        del nodes[op.path]
    elif op.action is Action.SET:
        nodes[op.path] = (found[0] + 1, found[1])
        return found[0] + 1
    return 0


paths = st.sampled_from(PATHS)
versions = st.none() | st.integers(-1, 2)
operations = st.one_of(
    st.builds(Create, paths, st.just(b""), st.booleans()),
    st.builds(Set, paths, st.just(b""), versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
    st.builds(CheckOwner, paths),
)
changes = st.one_of(st.lists(operations, min_size=1, max_size=3), st.sampled_from([ME, OTHER]))


def change(tree: Tree, what: list[Operation] | str) -> None:
    """Apply another client's transaction, or expire a session."""
    if isinstance(what, str):
        tree.expire(what)
    else:
        looked = {path: tree.look(path) for path in plan.to_look_at(what)}
        tree.multi(plan.ops(what, looked), OTHER)


@given(
    st.lists(changes, max_size=3),
    st.lists(operations, max_size=2),
    st.lists(operations, min_size=1, max_size=4),
    st.lists(changes, max_size=3),
)
def test_answer_matches_the_tree_at_the_transaction(
    before: list[list[Operation] | str],
    mine: list[Operation],
    asked: list[Operation],
    between: list[list[Operation] | str],
) -> None:
    tree = Tree()
    for what in before:
        change(tree, what)
    if mine:
        tree.multi(plan.ops(mine, {path: tree.look(path) for path in plan.to_look_at(mine)}), ME)
    for attempt in range(3):
        ops = plan.ops(asked, {path: tree.look(path) for path in plan.to_look_at(asked)})
        if attempt == 0:
            for what in between:
                change(tree, what)
        records = tree.records()
        outcome = plan.read_replies(asked, ops, tree.multi(ops, ME))
        if isinstance(outcome, RetryAfterRead):
            assert tree.records() == records
            assert attempt == 0, "nothing changed since the second look"
            continue
        if isinstance(outcome, TransactionFailed):
            with pytest.raises(type(outcome)) as caught:
                evaluate(asked, records.get, ME, 0)
            assert (outcome.index, outcome.path) == (caught.value.index, caught.value.path)
        else:
            assert outcome == evaluate(asked, records.get, ME, 0).versions
        return
    pytest.fail("it was never done")


@pytest.mark.parametrize("ended", [False, True])
def test_owner_replaced_after_the_read_is_rejected(ended: bool) -> None:
    """The new node has the same version. Only its creation changes the folder's version, not the end of a session."""
    tree = Tree({"/a/x": (0, ME)})
    asked: list[Operation] = [CheckOwner("/a/x"), Create("/b/x", b"")]
    ops = plan.ops(asked, {"/a/x": tree.look("/a/x")})
    if ended:
        tree.expire(ME)
    change(tree, [*([] if ended else [Delete("/a/x")]), Create("/a/x", b"", True)])
    assert tree.nodes == {"/a/x": (0, OTHER)}
    assert isinstance(plan.read_replies(asked, ops, tree.multi(ops, ME)), RetryAfterRead)
    assert "/b/x" not in tree.nodes


def test_oversized_value_or_transaction_is_rejected_by_path() -> None:
    large = b"x" * (plan.MAX_VALUE_BYTES + 1)
    with pytest.raises(StoreError, match=r"/a/y: a value has at most .* fewer tasks"):
        plan.check_size([Create("/a/x", b""), Set("/a/y", large)], "/heronry")
    half = b"x" * (plan.MAX_VALUE_BYTES // 2)
    plan.check_size([Create("/a/x", half), Set("/a/y", half)], "/heronry")
    with pytest.raises(StoreError, match=r"/a/x: a transaction has at most"):
        plan.check_size([Create("/a/x", half), Set("/a/y", half), Set("/b/x", half)], "/heronry")


BOUND_SECONDS = 60.0


def test_watch_registration_is_retried() -> None:
    tries: list[str] = []

    def arm(path: str, trigger: Trigger) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise StoreUnavailable("not yet")

    table, called = WatchThread(arm), threading.Event()
    table.start()
    try:
        table.watch("/a", lambda _: called.set())
        assert called.wait(BOUND_SECONDS)
        assert tries[:3] == ["/a"] * 3
    finally:
        table.stop()


def test_jobs_and_states_keep_their_order_despite_an_exception() -> None:
    table, said, over = WatchThread(lambda path, trigger: None), list[object](), threading.Event()
    table.listen(said.append)
    table.start()
    try:
        table.tell(SessionState.SUSPENDED)
        table.call(lambda: 1 // 0)
        table.call(lambda: said.append("job"))
        table.tell(SessionState.CONNECTED)
        table.call(over.set)
        assert over.wait(BOUND_SECONDS)
    finally:
        table.stop()
    assert said == [SessionState.SUSPENDED, "job", SessionState.CONNECTED]

"""Transactions as ZooKeeper's: a tree that acts as a server's, and races between the look and the transaction.

The tree is changed by somebody else between the look and the transaction; whatever happens, what the store answers is
what the pure rules of ``heronry.state.transaction`` answer on the tree as it is then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronry.state import zookeeper_plan as plan
from heronry.state.store import (
    Check,
    CheckOwner,
    Create,
    Delete,
    Operation,
    Set,
    StoreError,
    TransactionFailed,
)
from heronry.state.transaction import Record, evaluate
from heronry.state.zookeeper_plan import Action, LookAgain, Reply, Seen, Step

ME, OTHER = "me", "other"
PATHS = ("/a/x", "/a/y", "/b/x")


@dataclass
class Tree:
    """Nodes with version and owner, and folders with a version, as a server has them."""

    nodes: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=lambda: {"/a": 0, "/b": 0})

    def multi(self, steps: list[Step], session: str) -> list[int | Reply]:
        """All steps or none."""
        nodes, folders = dict(self.nodes), dict(self.folders)
        replies: list[int | Reply] = []
        for number, step in enumerate(steps):
            reply = _do(nodes, folders, step, session)
            if isinstance(reply, Reply):
                return [Reply.NOT_DONE] * number + [reply] + [Reply.NOT_DONE] * (len(steps) - number - 1)
            replies.append(reply)
        self.nodes, self.folders = nodes, folders
        return replies

    def look(self, path: str) -> Seen:
        """As the store looks."""
        found = self.nodes.get(path)
        return Seen(self.folders["/" + path.split("/")[1]], found[0] if found else None, bool(found and found[1] == ME))

    def records(self) -> dict[str, Record]:
        """For the pure rules."""
        return {path: Record(b"", version, owner, 0) for path, (version, owner) in self.nodes.items()}

    def expire(self, session: str) -> None:
        """The session's nodes go; no folder is touched."""
        self.nodes = {path: node for path, node in self.nodes.items() if node[1] != session}


def _do(nodes: dict[str, tuple[int, str | None]], folders: dict[str, int], step: Step, session: str) -> int | Reply:
    if step.path in folders:
        wrong = step.version not in (plan.ANY_VERSION, folders[step.path])
        if wrong:
            return Reply.BAD_VERSION
        if step.action is Action.SET:
            folders[step.path] += 1
        return folders[step.path]
    found = nodes.get(step.path)
    if step.action is Action.CREATE:
        if found:
            return Reply.EXISTS
        nodes[step.path] = (0, session if step.ephemeral else None)
        return 0
    if found is None:
        return Reply.NO_NODE
    if step.version not in (plan.ANY_VERSION, found[0]):
        return Reply.BAD_VERSION
    if step.action is Action.DELETE:
        del nodes[step.path]
    elif step.action is Action.SET:
        nodes[step.path] = (found[0] + 1, found[1])
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
    """Somebody else's transaction, or a session that expires."""
    if isinstance(what, str):
        tree.expire(what)
    else:
        looked = {path: tree.look(path) for path in plan.to_look_at(what)}
        tree.multi(plan.steps(what, looked), OTHER)


@given(
    st.lists(changes, max_size=3),
    st.lists(operations, max_size=2),
    st.lists(operations, min_size=1, max_size=4),
    st.lists(changes, max_size=3),
)
def test_the_answer_is_that_of_the_tree_at_the_transaction(
    before: list[list[Operation] | str],
    mine: list[Operation],
    asked: list[Operation],
    between: list[list[Operation] | str],
) -> None:
    tree = Tree()
    for what in before:
        change(tree, what)
    if mine:
        tree.multi(plan.steps(mine, {path: tree.look(path) for path in plan.to_look_at(mine)}), ME)
    for attempt in range(3):
        steps = plan.steps(asked, {path: tree.look(path) for path in plan.to_look_at(asked)})
        if attempt == 0:
            for what in between:
                change(tree, what)
        records = tree.records()
        outcome = plan.read_replies(asked, steps, tree.multi(steps, ME))
        if isinstance(outcome, LookAgain):
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


def test_an_owner_that_was_replaced_between_look_and_transaction_is_refused() -> None:
    """Deleted and made again by somebody else, the node has the version it had."""
    tree = Tree({"/a/x": (0, ME)})
    asked: list[Operation] = [CheckOwner("/a/x"), Create("/b/x", b"")]
    steps = plan.steps(asked, {"/a/x": tree.look("/a/x")})
    change(tree, [Delete("/a/x"), Create("/a/x", b"", True)])
    assert tree.nodes == {"/a/x": (0, OTHER)}
    assert isinstance(plan.read_replies(asked, steps, tree.multi(steps, ME)), LookAgain)
    assert "/b/x" not in tree.nodes


def test_an_owner_whose_session_ended_is_refused() -> None:
    """The folder is not touched when a session ends, but it is when the next owner comes."""
    tree = Tree({"/a/x": (0, ME)})
    asked: list[Operation] = [CheckOwner("/a/x"), Create("/b/x", b"")]
    steps = plan.steps(asked, {"/a/x": tree.look("/a/x")})
    tree.expire(ME)
    change(tree, [Create("/a/x", b"", True)])
    assert isinstance(plan.read_replies(asked, steps, tree.multi(steps, ME)), LookAgain)
    assert "/b/x" not in tree.nodes


def test_what_the_servers_would_not_take_is_refused_with_its_name() -> None:
    large = b"x" * (plan.MAX_VALUE_BYTES + 1)
    with pytest.raises(StoreError, match=r"/a/y: a value has at most .* fewer tasks"):
        plan.check_size([Create("/a/x", b""), Set("/a/y", large)], "/heronry")
    half = b"x" * (plan.MAX_VALUE_BYTES // 2)
    plan.check_size([Create("/a/x", half), Set("/a/y", half)], "/heronry")
    with pytest.raises(StoreError, match=r"/a/x: a transaction has at most"):
        plan.check_size([Create("/a/x", half), Set("/a/y", half), Set("/b/x", half)], "/heronry")

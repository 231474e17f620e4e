"""Mastership transitions, including cases that a real store produces too rarely for random tests.

An election is a transaction whose answer may be late or missing, so most hazards concern past epochs.
Invariants: no leadership with an epoch below one that was seen; a node that was won too late is given back,
and one that may belong to another master is left alone; an election won without an answer is adopted once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heron_runtime.model.records import MasterLocation
from topology_master.core.events import (
    Campaign,
    Effect,
    LogNote,
    ReadStore,
    Resign,
    Session,
    StoreSnapshot,
    WriteResult,
)
from topology_master.core.mastership import MasterRole, Mastership

US, THEM = ("h", 1, 1), ("h", 2, 2)
NOBODY = StoreSnapshot(epoch=0, epoch_version=-1)


def node(epoch: int, who: tuple[str, int, int] = US, recorded: int | None = None) -> StoreSnapshot:
    """Return the store while ``who`` holds the master node; ``recorded`` is the highest stored epoch."""
    host, port, pid = who
    return StoreSnapshot(
        master=MasterLocation("t-1", host, port, epoch, pid),
        epoch=epoch if recorded is None else recorded,
        epoch_version=7,
    )


def leader(epoch: int = 1) -> Mastership:
    """Return a master that leads with this epoch."""
    master = Mastership(US)
    assert campaigns(master.read(StoreSnapshot(epoch=epoch - 1, epoch_version=7))) == [epoch]
    assert ReadStore() in master.campaign_ended(epoch, WriteResult.DONE)
    assert (master.role, master.epoch) == (MasterRole.LEADING, epoch)
    return master


def candidate() -> Mastership:
    """Return a master whose first election, for epoch 1, has not been answered."""
    master = Mastership(US)
    master.read(NOBODY)
    return master


def campaigns(effects: list[Effect]) -> list[int]:
    return [effect.epoch for effect in effects if isinstance(effect, Campaign)]


def reasons(effects: list[Effect]) -> list[str]:
    """Return the reasons given for resigning."""
    return [effect.reason for effect in effects if isinstance(effect, Resign)]


def test_new_master_has_no_epoch() -> None:
    master = Mastership(US)
    assert (master.role, master.epoch, master.acting, master.may_decide) == (MasterRole.STANDBY, 0, False, False)
    assert master.read(node(1, THEM)) == []
    assert not master.acting


@pytest.mark.parametrize("seen", [StoreSnapshot(epoch=5, epoch_version=7), 5, node(5, THEM, recorded=0)])
def test_election_uses_an_epoch_above_all_seen_ones(seen: StoreSnapshot | int) -> None:
    master = Mastership(US)
    if isinstance(seen, int):
        assert master.epoch_seen(seen) == []
    else:
        first = master.read(seen)
        master.campaign_ended(6, WriteResult.REFUSED) if campaigns(first) else None
    assert campaigns(master.read(StoreSnapshot(epoch=0, epoch_version=9))) == [6]


def test_unanswered_campaign_is_not_repeated() -> None:
    assert candidate().read(NOBODY) == []


def test_suspended_session_does_not_campaign() -> None:
    master = Mastership(US)
    assert master.session_changed(Session.SUSPENDED) == []
    assert master.read(NOBODY) == []
    assert master.session_changed(Session.CONNECTED) == [ReadStore()]
    assert campaigns(master.read(NOBODY)) == [1]


def test_leadership_changes_are_counted_and_logged() -> None:
    master = candidate()
    (led,) = [x for x in master.campaign_ended(1, WriteResult.DONE) if isinstance(x, LogNote)]
    (left,) = [x for x in master.epoch_seen(2) if isinstance(x, LogNote)]
    assert led == LogNote("leading with epoch 1", "__mastership_changes")
    assert left == LogNote("stepping down from epoch 1: epoch 2 is higher than 1", "__mastership_changes")


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (NOBODY, "the master node was removed"),
        (node(2, THEM), "another master leads"),
        (node(2), "another master leads"),  # a past or future life of this process
        (node(1, recorded=2), "another master leads"),  # another candidate has campaigned, and the node will change
    ],
)
def test_master_without_the_node_resigns_and_reads_again(stored: StoreSnapshot, reason: str) -> None:
    master = leader()
    effects = master.read(stored)
    assert master.role is MasterRole.STANDBY
    assert reasons(effects) == [reason]
    assert effects[-1] == ReadStore()


@pytest.mark.parametrize("session", [Session.CONNECTED, Session.SUSPENDED])
def test_master_with_the_node_keeps_leading(session: Session) -> None:
    master = leader()
    said = master.session_changed(session)
    assert master.acting
    assert master.may_decide == (session is Session.CONNECTED)
    if session is Session.SUSPENDED:
        assert said == [LogNote("the state store does not answer: deciding nothing until it does")]
        assert master.read(node(1)) == []
        assert not master.may_decide  # the read may precede the suspension
        assert master.session_changed(Session.CONNECTED) == [ReadStore()]
    assert master.read(node(1)) == []
    assert master.may_decide


def test_unanswered_election_is_adopted_if_the_node_confirms_it() -> None:
    master = candidate()
    assert master.campaign_ended(1, WriteResult.UNKNOWN) == [ReadStore()]
    assert master.role is MasterRole.STANDBY
    assert ReadStore() in master.read(node(1))
    assert (master.role, master.epoch) == (MasterRole.LEADING, 1)


def test_unanswered_election_below_a_seen_epoch_is_not_adopted() -> None:
    master = candidate()
    master.campaign_ended(1, WriteResult.UNKNOWN)
    master.epoch_seen(2)
    assert reasons(master.read(node(1))) == ["a master node of an epoch that is over"]
    assert master.role is MasterRole.STANDBY


@pytest.mark.parametrize("led", [True, False])
def test_node_of_a_lost_session_is_not_adopted(led: bool) -> None:
    """The node of a lost session may remain for a moment, whether it led or only campaigned."""
    master = leader() if led else candidate()
    effects = master.session_changed(Session.LOST)
    told = [effect.text for effect in effects if isinstance(effect, LogNote)]
    assert told == (["stepping down from epoch 1: the store session is lost"] if led else [])
    assert master.role is MasterRole.STANDBY
    assert reasons(effects) == []  # the node goes with the session, and the next one may belong to another master
    assert effects[-1] == ReadStore()
    master.session_changed(Session.CONNECTED)
    assert reasons(master.read(node(1))) == ["a master node of an epoch that is over"]
    assert master.role is MasterRole.STANDBY


@pytest.mark.parametrize("result", list(WriteResult))
def test_node_won_by_an_abandoned_election_is_given_back(result: WriteResult) -> None:
    master = candidate()
    master.session_changed(Session.LOST)
    effects = master.campaign_ended(1, result)
    assert effects == ([Resign("an election that was given up"), ReadStore()] if result is WriteResult.DONE else [])
    assert master.role is MasterRole.STANDBY


def test_answer_of_an_earlier_election_is_ignored() -> None:
    master = candidate()
    master.session_changed(Session.LOST)
    master.session_changed(Session.CONNECTED)
    assert campaigns(master.read(StoreSnapshot(epoch=1, epoch_version=7))) == [2]
    assert reasons(master.campaign_ended(1, WriteResult.DONE)) == ["an election that was given up"]
    assert master.role is MasterRole.CANDIDATE


@pytest.mark.parametrize("result", list(WriteResult))
def test_election_below_an_epoch_seen_meanwhile_is_lost(result: WriteResult) -> None:
    master = candidate()
    assert master.epoch_seen(2) == []
    effects = master.campaign_ended(1, result)
    assert effects == [*([Resign("a higher epoch was seen")] if result is WriteResult.DONE else []), ReadStore()]
    assert (master.role, master.epoch) == (MasterRole.STANDBY, 0)


def test_own_epoch_seen_before_the_answer_does_not_lose_the_election() -> None:
    """A stream manager may read the new node and connect before the store's answer arrives."""
    master = candidate()
    assert master.epoch_seen(1) == []
    master.campaign_ended(1, WriteResult.DONE)
    assert (master.role, master.epoch) == (MasterRole.LEADING, 1)


def test_abandoned_epoch_is_not_adopted_again() -> None:
    master = leader()
    master.not_owner()
    assert reasons(master.read(node(1))) == ["a master node of an epoch that is over"]
    assert master.role is MasterRole.STANDBY


def test_refused_write_ends_leadership_without_resigning() -> None:
    master = leader()
    (said,) = master.not_owner()
    assert isinstance(said, LogNote)
    assert "belongs to another session" in said.text
    assert master.role is MasterRole.STANDBY
    assert master.not_owner() == []  # repeated: there is nothing left to end


@pytest.mark.parametrize("suspended", [False, True])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_only_a_higher_epoch_ends_leadership(epoch: int, suspended: bool) -> None:
    master = leader()
    if suspended:
        master.session_changed(Session.SUSPENDED)
    effects = master.epoch_seen(epoch)
    assert master.acting == (epoch < 2)
    assert reasons(effects) == (["epoch 2 is higher than 1"] if epoch == 2 else [])


@pytest.mark.parametrize("session", [Session.CONNECTED, Session.SUSPENDED])
def test_election_won_while_suspended_decides_after_reconnect(session: Session) -> None:
    """The answer of an election may be delivered after the session was suspended."""
    master = candidate()
    master.session_changed(session)
    master.campaign_ended(1, WriteResult.DONE)
    assert master.acting
    assert master.may_decide == (session is Session.CONNECTED)
    assert master.session_changed(Session.CONNECTED) == [ReadStore()]
    master.read(node(1))
    assert master.may_decide


def test_read_of_a_higher_epoch_ends_leadership_while_suspended() -> None:
    master = leader()
    master.session_changed(Session.SUSPENDED)
    assert reasons(master.read(node(2, THEM))) == ["another master leads"]
    assert not master.acting


Fact = Callable[[Mastership], object]


def facts() -> st.SearchStrategy[Fact]:
    """Build any fact in any order: late, repeated, or of another epoch."""
    epochs = st.integers(0, 4)
    stored = st.one_of(
        st.builds(lambda epoch: StoreSnapshot(epoch=epoch, epoch_version=7), epochs),
        st.builds(node, epochs, st.sampled_from((US, THEM)), st.none() | epochs),
    )
    return st.one_of(
        st.builds(lambda s: lambda m: m.session_changed(s), st.sampled_from(list(Session))),
        st.builds(lambda s: lambda m: m.read(s), stored),
        st.builds(lambda n, r: lambda m: m.campaign_ended(n, r), epochs, st.sampled_from(list(WriteResult))),
        st.builds(lambda n: lambda m: m.epoch_seen(n), epochs),
        st.just(lambda m: m.not_owner()),
    )


WON_LATE: list[Fact] = [
    lambda m: m.read(NOBODY),
    lambda m: m.session_changed(Session.SUSPENDED),
    lambda m: m.campaign_ended(1, WriteResult.DONE),
]


@example(WON_LATE)
@given(st.lists(facts(), max_size=12))
def test_only_the_highest_epoch_decides_and_only_while_connected(told: list[Fact]) -> None:
    master = Mastership(US)
    for fact in told:
        fact(master)
        master.check()

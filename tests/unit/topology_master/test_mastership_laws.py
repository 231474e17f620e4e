"""Who leads, word by word: the cases that a store and its faults bring about too rarely to leave them to chance.

An election is a transaction whose answer may be late or never come, so most of what can go wrong is about epochs that
are over. The laws: nobody leads with an epoch below one that was seen; a node that was won too late is given back, and
one that may be another's is left alone; an election that was won without an answer is taken up, once.
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
    """The store while ``who`` holds the master node with an epoch, and this one is recorded as the highest."""
    host, port, pid = who
    return StoreSnapshot(
        master=MasterLocation("t-1", host, port, epoch, pid),
        epoch=epoch if recorded is None else recorded,
        epoch_version=7,
    )


def leader(epoch: int = 1) -> Mastership:
    """A master that leads with this epoch."""
    master = Mastership(US)
    assert campaigns(master.read(StoreSnapshot(epoch=epoch - 1, epoch_version=7))) == [epoch]
    assert ReadStore() in master.campaign_ended(epoch, WriteResult.DONE)
    assert (master.role, master.epoch) == (MasterRole.LEADING, epoch)
    return master


def candidate() -> Mastership:
    """A master whose first election, of epoch 1, has not been answered."""
    master = Mastership(US)
    master.read(NOBODY)
    return master


def campaigns(effects: list[Effect]) -> list[int]:
    return [effect.epoch for effect in effects if isinstance(effect, Campaign)]


def reasons(effects: list[Effect]) -> list[str]:
    """Why a node is given back."""
    return [effect.reason for effect in effects if isinstance(effect, Resign)]


def test_who_has_led_nothing_knows_no_epoch() -> None:
    master = Mastership(US)
    assert (master.role, master.epoch, master.acting, master.may_decide) == (MasterRole.STANDBY, 0, False, False)
    assert master.read(node(1, THEM)) == []
    assert not master.acting


@pytest.mark.parametrize("seen", [StoreSnapshot(epoch=5, epoch_version=7), 5, node(5, THEM, recorded=0)])
def test_an_election_is_for_an_epoch_above_all_that_were_seen(seen: StoreSnapshot | int) -> None:
    master = Mastership(US)
    if isinstance(seen, int):
        assert master.epoch_seen(seen) == []
    else:
        first = master.read(seen)
        master.campaign_ended(6, WriteResult.REFUSED) if campaigns(first) else None
    assert campaigns(master.read(StoreSnapshot(epoch=0, epoch_version=9))) == [6]


def test_a_campaign_that_waits_for_its_answer_is_not_begun_again() -> None:
    assert candidate().read(NOBODY) == []


def test_nobody_stands_while_the_store_does_not_answer() -> None:
    master = Mastership(US)
    assert master.session_changed(Session.SUSPENDED) == []
    assert master.read(NOBODY) == []
    assert master.session_changed(Session.CONNECTED) == [ReadStore()]
    assert campaigns(master.read(NOBODY)) == [1]


def test_what_changes_is_counted_and_told() -> None:
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
        (node(2), "another master leads"),  # a life of ours that is over, or to come
        (node(1, recorded=2), "another master leads"),  # somebody has stood already, and the node is about to change
    ],
)
def test_who_no_longer_has_the_node_gives_it_back_and_reads_again(stored: StoreSnapshot, reason: str) -> None:
    master = leader()
    effects = master.read(stored)
    assert master.role is MasterRole.STANDBY
    assert reasons(effects) == [reason]
    assert effects[-1] == ReadStore()


@pytest.mark.parametrize("session", [Session.CONNECTED, Session.SUSPENDED])
def test_whose_node_still_stands_leads_on(session: Session) -> None:
    master = leader()
    said = master.session_changed(session)
    assert master.acting
    assert master.may_decide == (session is Session.CONNECTED)
    if session is Session.SUSPENDED:
        assert said == [LogNote("the state store does not answer: deciding nothing until it does")]
        assert master.read(node(1)) == []
        assert not master.may_decide  # the read may be older than the silence
        assert master.session_changed(Session.CONNECTED) == [ReadStore()]
    assert master.read(node(1)) == []
    assert master.may_decide


def test_an_election_without_an_answer_is_taken_up_if_the_node_says_so() -> None:
    master = candidate()
    assert master.campaign_ended(1, WriteResult.UNKNOWN) == [ReadStore()]
    assert master.role is MasterRole.STANDBY
    assert ReadStore() in master.read(node(1))
    assert (master.role, master.epoch) == (MasterRole.LEADING, 1)


def test_an_election_without_an_answer_is_not_taken_up_below_an_epoch_that_was_seen() -> None:
    master = candidate()
    master.campaign_ended(1, WriteResult.UNKNOWN)
    master.epoch_seen(2)
    assert reasons(master.read(node(1))) == ["a master node of an epoch that is over"]
    assert master.role is MasterRole.STANDBY


@pytest.mark.parametrize("led", [True, False])
def test_a_node_of_a_lost_session_is_not_taken_up(led: bool) -> None:
    """Whether the session had been led with or only stood for: its node may stand for a moment, and then it goes."""
    master = leader() if led else candidate()
    effects = master.session_changed(Session.LOST)
    told = [effect.text for effect in effects if isinstance(effect, LogNote)]
    assert told == (["stepping down from epoch 1: the store session is lost"] if led else [])
    assert master.role is MasterRole.STANDBY
    assert reasons(effects) == []  # the node goes with the session; the next one may be another's
    assert effects[-1] == ReadStore()
    master.session_changed(Session.CONNECTED)
    assert reasons(master.read(node(1))) == ["a master node of an epoch that is over"]
    assert master.role is MasterRole.STANDBY


@pytest.mark.parametrize("result", list(WriteResult))
def test_what_an_election_that_was_given_up_has_won_is_given_back(result: WriteResult) -> None:
    master = candidate()
    master.session_changed(Session.LOST)
    effects = master.campaign_ended(1, result)
    assert effects == ([Resign("an election that was given up"), ReadStore()] if result is WriteResult.DONE else [])
    assert master.role is MasterRole.STANDBY


def test_the_answer_of_an_election_before_the_last_one_is_no_answer() -> None:
    master = candidate()
    master.session_changed(Session.LOST)
    master.session_changed(Session.CONNECTED)
    assert campaigns(master.read(StoreSnapshot(epoch=1, epoch_version=7))) == [2]
    assert reasons(master.campaign_ended(1, WriteResult.DONE)) == ["an election that was given up"]
    assert master.role is MasterRole.CANDIDATE


@pytest.mark.parametrize("result", list(WriteResult))
def test_an_election_below_an_epoch_that_was_seen_meanwhile_is_lost(result: WriteResult) -> None:
    master = candidate()
    assert master.epoch_seen(2) == []
    effects = master.campaign_ended(1, result)
    assert effects == [*([Resign("a higher epoch was seen")] if result is WriteResult.DONE else []), ReadStore()]
    assert (master.role, master.epoch) == (MasterRole.STANDBY, 0)


def test_to_hear_of_its_own_epoch_before_the_answer_loses_no_election() -> None:
    """A stream manager may have read the new node and come before the store's answer has."""
    master = candidate()
    assert master.epoch_seen(1) == []
    master.campaign_ended(1, WriteResult.DONE)
    assert (master.role, master.epoch) == (MasterRole.LEADING, 1)


def test_an_epoch_that_was_left_is_not_taken_up_again() -> None:
    master = leader()
    master.not_owner()
    assert reasons(master.read(node(1))) == ["a master node of an epoch that is over"]
    assert master.role is MasterRole.STANDBY


def test_a_write_that_the_store_refuses_ends_leadership_and_leaves_the_node_alone() -> None:
    master = leader()
    (said,) = master.not_owner()
    assert isinstance(said, LogNote)
    assert "belongs to another session" in said.text
    assert master.role is MasterRole.STANDBY
    assert master.not_owner() == []  # told again: nothing to end


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
def test_who_wins_while_the_store_is_silent_decides_once_it_answers(session: Session) -> None:
    """The answer of an election may be told after the session was suspended."""
    master = candidate()
    master.session_changed(session)
    master.campaign_ended(1, WriteResult.DONE)
    assert master.acting
    assert master.may_decide == (session is Session.CONNECTED)
    assert master.session_changed(Session.CONNECTED) == [ReadStore()]
    master.read(node(1))
    assert master.may_decide


def test_a_read_of_a_higher_epoch_ends_leadership_also_while_the_store_is_silent() -> None:
    master = leader()
    master.session_changed(Session.SUSPENDED)
    assert reasons(master.read(node(2, THEM))) == ["another master leads"]
    assert not master.acting


Fact = Callable[[Mastership], object]


def facts() -> st.SearchStrategy[Fact]:
    """Anything that may be told, in any order: late, doubled, of another epoch."""
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


def test_whatever_is_told_only_the_highest_epoch_decides_and_only_while_the_store_answers() -> None:
    @example(WON_LATE)
    @given(st.lists(facts(), max_size=12))
    def holds(told: list[Fact]) -> None:
        master = Mastership(US)
        for fact in told:
            fact(master)
            master.check()

    holds()

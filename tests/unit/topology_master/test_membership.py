"""Membership of stream managers and their silence, compared with a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.model.plan import PlanVersion, StreamManagerInfo
from heron_runtime.wire.master import (
    NOBODY,
    Bottleneck,
    FlowStatus,
    Heartbeat,
    InstanceInfo,
    Register,
    StreamManagerStatus,
)
from topology_master.core.membership import MAX_STEP_MS, Membership, RegistrationResult

LEASE_MS = 5_000
INSTANCES = (InstanceInfo(3, "word", 77, 1),)


def registers(container: int, incarnation: int = 1, plan: PlanVersion | None = None) -> Register:
    info = StreamManagerInfo(container, "h", 1, incarnation)
    return Register(PROTOCOL_VERSION, "t-1", info, INSTANCES, plan or PlanVersion(), 1)


def beat(plan: PlanVersion, seconds: float = 0.0, paused: bool = False) -> Heartbeat:
    return Heartbeat((), paused, plan, (), FlowStatus(4, 5, Bottleneck("split", 2, seconds)), 1, ())


def made(*containers: int) -> Membership:
    membership = Membership(LEASE_MS)
    assert membership.expect(containers) == []
    return membership


STEPS = st.lists(
    st.tuples(st.sampled_from(("register", "beat", "close", "pass")), st.integers(1, 3), st.integers(0, 3000)),
    max_size=40,
)


@given(STEPS)
def test_silence_counts_in_bounded_steps_and_lapsed_members_are_removed(
    steps: list[tuple[str, int, int]],
) -> None:
    membership, link, now_ms = made(1, 2, 3), 0, 0
    membership.advance(0)
    model: dict[int, tuple[int | None, int]] = {}  # container to link and silence
    for what, container, ms in steps:
        there = model.get(container)
        if what == "register":
            link += 1
            before = there[0] if there else None
            assert membership.register(link, registers(container)) == (RegistrationResult.ACCEPTED, before)
            model[container] = (link, 0)
        elif what == "beat" and there and there[0] is not None:
            member = membership.heard(there[0], beat(PlanVersion(1, 1)))
            assert member is not None
            assert member.info.container == container
            model[container] = (there[0], 0)
        elif what == "close" and there and there[0] is not None:
            membership.closed(there[0])
            model[container] = (None, there[1])
        elif what == "pass":
            now_ms += ms
            lapsed = {member.info.container for member in membership.advance(now_ms)}
            model = {c: (at, silent + min(ms, MAX_STEP_MS)) for c, (at, silent) in model.items()}
            assert lapsed == {c for c, (_, silent) in model.items() if silent > LEASE_MS}
            model = {c: found for c, found in model.items() if c not in lapsed}
        assert membership.missing() == [c for c in (1, 2, 3) if c not in model]
        assert membership.links() == [at for _, (at, _) in sorted(model.items()) if at is not None]
        shown = {s.container: (s.registered, s.heartbeat_age_seconds) for s in membership.status()}
        assert shown == {
            c: (model[c][0] is not None, model[c][1] / 1000) if c in model else (False, 0.0) for c in (1, 2, 3)
        }
        assert [info.container for info in membership.registrations()] == sorted(model)
        membership.check()
    assert membership.clear() == [at for _, (at, _) in sorted(model.items()) if at is not None]
    assert (membership.links(), membership.missing(), membership.newest(1)) == ([], [1, 2, 3], None)


def test_lease_runs_from_the_last_message_to_the_millisecond() -> None:
    membership = made(1)
    membership.advance(0)
    membership.register(1, registers(1))
    assert [membership.advance(now_ms) for now_ms in (2_000, 4_000, LEASE_MS)] == [[], [], []]
    assert [member.info.container for member in membership.advance(LEASE_MS + 1)] == [1]


def test_older_process_and_unknown_container_are_not_admitted() -> None:
    membership = made(1)
    assert membership.register(1, registers(2)) == (RegistrationResult.UNKNOWN_CONTAINER, None)
    assert membership.newest(1) is None
    assert membership.register(2, registers(1, 5)) == (RegistrationResult.ACCEPTED, None)
    assert membership.register(3, registers(1, 4)) == (RegistrationResult.REPLACED, None)
    assert (membership.newest(1), membership.links()) == (5, [2])
    assert membership.register(2, registers(1, 5)) == (RegistrationResult.ACCEPTED, None), (
        "on its own link it replaces nobody"
    )
    assert membership.register(4, registers(1, 6)) == (RegistrationResult.ACCEPTED, 2)
    assert membership.member_on(2) is None
    assert membership.heard(2, beat(PlanVersion())) is None
    membership.closed(2)
    assert membership.links() == [4]


def test_expect_learns_incarnations_and_drops_unwanted_containers() -> None:
    membership = made(1, 2)
    for link, container in ((1, 1), (2, 2)):
        membership.register(link, registers(container, 7))
    known = (StreamManagerInfo(1, "h", 1, 6), StreamManagerInfo(3, "h", 1, 9))
    assert membership.expect([3, 1], known) == [2], "the link of the container that is gone"
    assert (membership.newest(1), membership.newest(3)) == (7, 9)
    assert membership.register(3, registers(3, 8))[0] is RegistrationResult.REPLACED
    assert membership.missing() == [3]
    membership.closed(1)
    assert membership.expect([3]) == [], "it had no link any more"


def test_all_follow_requires_every_member_at_the_version() -> None:
    membership = made(1, 2)
    membership.register(1, registers(1, plan=PlanVersion(1, 4)))
    assert not membership.all_follow(PlanVersion(1, 4)), "one is missing"
    membership.register(2, registers(2, plan=PlanVersion(1, 3)))
    assert [membership.all_follow(PlanVersion(1, n)) for n in (3, 4)] == [True, False]
    membership.heard(2, beat(PlanVersion(2, 1)))
    assert [membership.all_follow(PlanVersion(1, n)) for n in (3, 4, 5)] == [True, True, False]


@pytest.mark.parametrize(("first", "second", "named"), [(0.0, 0.0, None), (2.0, 1.0, 2.0), (1.0, 3.0, 3.0)])
def test_status_contains_the_reports_of_stream_managers(first: float, second: float, named: float | None) -> None:
    membership = made(1, 2)
    assert membership.holder() == NOBODY
    for link, seconds in ((1, first), (2, second)):
        membership.register(link, registers(link))
        assert membership.member_on(link).instances == INSTANCES  # type: ignore[union-attr]  # it has registered
        membership.heard(link, beat(PlanVersion(1, 1), seconds, paused=link == 2))
        assert membership.member_on(link).instances == ()  # type: ignore[union-attr]
    assert membership.holder().seconds == (named or 0.0)
    flows = [FlowStatus(4, 5, Bottleneck("split", 2, seconds)) for seconds in (first, second)]
    assert membership.status() == (
        StreamManagerStatus(1, True, 0.0, False, (), flows[0]),
        StreamManagerStatus(2, True, 0.0, True, (), flows[1]),
    )

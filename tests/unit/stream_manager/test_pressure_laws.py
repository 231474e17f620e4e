"""Backpressure and credit: pauses follow causes, dead peers are cleared, hysteresis holds, queues are bounded."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.checkpoints import CheckpointCommand
from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.wire.control import CauseChange, CauseSet, Pause, PlanUpdate, TaskWeight, TaskWeights
from stream_manager.core.backpressure import BackpressureCauses, is_slow
from stream_manager.core.credit import CreditGrant, memory_bound
from stream_manager.core.links import MAX_CHANGES, ControlOutbox, peer_credit
from tests.support.harness.stream_managers import StreamManagerHarness, frame, make_plan

HIGH, LOW, WINDOW = 20_000, 8_000, 65_536
MARKS: dict[str, Any] = {
    "topology__backpressure__high__watermark__bytes": HIGH,
    "topology__backpressure__low__watermark__bytes": LOW,
}
WINDOWS = {"heron.streammgr.upload.window.bytes": WINDOW, "heron.streammgr.peer.window.bytes": 4000}
ALL_CAUSES = [
    Cause(CauseKind.TASK, "split", 2, 1),
    Cause(CauseKind.TASK, "sink", 3, 1),
    Cause(CauseKind.LINK, "", 0, 1, 2),
]


def started(**config: Any) -> StreamManagerHarness:
    world = StreamManagerHarness(make_plan(**MARKS, **config), WINDOWS)
    world.start()
    return world


def paused(world: StreamManagerHarness) -> set[int]:
    """Return the spouts that have been told to pause."""
    return {task for task, i in world.instances.items() if i.paused is not None and i.paused.paused}


def flood(world: StreamManagerHarness, source: int, destination: int, total: int) -> int:
    """Send up to ``total`` bytes as credit allows, and return the number of frames sent."""
    sent = 0
    for _ in range(total // 1000):
        if world.instances[source].sent >= world.instances[source].limit:
            break
        world.send(source, [frame(source, destination, bytes(1000 - 64))])
        world.settle()
        sent += 1
    return sent


def drain(world: StreamManagerHarness, task: int) -> int:
    taken = 0
    while world.take(task) is not None:
        world.settle()
        taken += 1
    return taken


def test_only_upstream_spouts_pause_and_resume_below_the_low_watermark() -> None:
    world = started()
    flood(world, 1, 6, 40_000)  # split in container 2 is fed over the link, so the queue is in the sender
    assert paused(world) == {1, 5}, "both word spouts, in two containers; the other branch goes on"
    assert {c.component for c in world.instances[5].paused.causes} == {"split"}  # type: ignore[union-attr]
    while world.instances[6].inbox:
        world.take(6)
        world.settle()
        queued = world.cores[1].connections.peers[2].link.destinations[6].weight
        if queued > LOW and paused(world) != {1, 5}:
            raise AssertionError(f"went on at {queued} bytes")
    assert paused(world) == set()


def test_topology_scope_pauses_every_spout() -> None:
    world = started(topology__backpressure__scope="topology")
    flood(world, 1, 2, 30_000)
    assert paused(world) == {1, 5, 7}


def test_spout_that_registers_under_pressure_starts_paused() -> None:
    world = started()
    world.disconnect(5)
    flood(world, 1, 2, 30_000)
    again = world.connect(5, incarnation=2)
    assert [m.paused for m in again.heard if isinstance(m, Pause)] == [True]


def test_dead_peer_takes_its_causes_with_it() -> None:
    world = started()
    flood(world, 1, 2, 30_000)
    assert paused(world) == {1, 5}
    world.break_link(1, 2)
    assert paused(world) == {1}
    world.link(1, 2)
    world.settle()
    assert paused(world) == {1, 5}, "the whole set comes with the connect"


def test_broken_link_pauses_the_spouts_that_need_it() -> None:
    world = started()
    world.break_link(1, 3)
    flood(world, 2, 8, 30_000)
    causes = {cause.kind for cause in world.instances[1].paused.causes}  # type: ignore[union-attr]
    assert causes == {CauseKind.LINK}
    world.link(1, 3)
    world.settle()
    drain(world, 8)
    assert paused(world) == set()


def test_full_queue_stops_only_the_credit_of_its_feeders() -> None:
    world = started()
    for _ in range(3):
        flood(world, 1, 2, 200_000)
    assert world.instances[1].sent >= world.instances[1].limit, "withheld"
    core = world.cores[1]
    assert core.forwarder.blocked == {2}
    assert flood(world, 3, 8, 30_000) == 30, "an instance that feeds another queue goes on"
    again = world.connect(1, incarnation=2)
    assert again.limit == 0, "a reconnect is no way round"
    drain(world, 2)
    assert core.forwarder.blocked == set()
    assert again.limit > 0


def test_reconnected_peer_gets_no_second_window_for_queued_frames() -> None:
    world = started()
    world.disconnect(6)
    flood(world, 1, 6, 10_000)
    queued = world.cores[2].connections.instances[6].link.weight
    assert queued >= 4000
    for _ in range(5):
        world.break_link(1, 2)
        world.link(1, 2)
        world.settle()
    assert world.cores[2].connections.instances[6].link.weight <= 4000 + 2 * 1000
    world.connect(6, incarnation=2)
    world.settle()
    drain(world, 6)
    assert world.cores[1].connections.peers[2].link.weight == 0


@given(sizes=st.lists(st.integers(0, 300), max_size=50), high=st.integers(2, 200), low=st.integers(0, 200))
def test_slow_state_follows_both_watermarks(sizes: list[int], high: int, low: int) -> None:
    low, slow = min(low, high - 1), False
    for size in sizes:
        was, slow = slow, is_slow(size, slow, high, low)
        assert slow or size < high
        assert not slow or size > low
        if slow != was:
            assert (size >= high) == slow
            assert (size <= low) != slow


@given(
    events=st.lists(
        st.one_of(
            st.tuples(st.just("own"), st.sampled_from(ALL_CAUSES), st.booleans()),
            st.tuples(st.just("hear"), st.booleans(), st.none()),
            st.tuples(st.just("whole"), st.none(), st.none()),
            st.tuples(st.just("break"), st.none(), st.none()),
        ),
        max_size=40,
    )
)
def test_peer_knows_all_causes_after_a_full_set(events: list[tuple[str, Any, Any]]) -> None:
    here, there = BackpressureCauses(1), BackpressureCauses(2)
    missed = False
    for kind, what, slow in events:
        if kind == "own":
            here.set_slow(what, slow)
        elif kind == "hear":
            change = here.take_change()
            if change is not None and what:
                there.peer_change(1, change)
            elif change is not None:
                missed = True
        elif kind == "whole":
            change = here.take_change()
            if change is not None:
                there.peer_change(1, change)
            there.peer_set(1, here.announced())
            missed = False
        else:
            there.remove_peer(1)
            assert there.union() == ()
            missed = True
        if kind in ("hear", "whole") and not missed and there._peers:
            assert set(there.union()) == set(here.own)
    here.take_change()
    there.peer_set(1, here.announced())
    assert set(there.union()) == set(here.own)


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=60), st.integers(10, 200))
def test_credit_is_exceeded_by_at_most_a_frame_and_renewed(steps: list[tuple[int, bool]], window: int) -> None:
    grant, limit, sent, queued = CreditGrant(window), window, 0, []
    for size, use in steps:
        if sent < limit:
            assert grant.receive(size)
            sent += size
            queued.append(size)
        if use and queued:
            grant.use(queued.pop(0))
        limit = grant.renewal() or limit
        assert sum(queued) <= window + 50
    for size in queued:
        grant.use(size)
    limit = grant.renewal() or limit
    assert limit > sent or limit - sent > -50
    assert limit - grant.used > window // 2


@given(
    st.lists(st.tuples(st.sampled_from(("send", "use", "lose")), st.integers(1, 50)), max_size=80), st.integers(60, 200)
)
def test_credit_holds_across_connections(steps: list[tuple[str, int]], window: int) -> None:
    """A sender within its limit fills the window and at most one frame, including data of earlier connections."""
    grant, sent, queued = CreditGrant(window), 0, list[int]()
    for what, size in steps:
        match what:
            case "send" if sent < grant.limit:
                assert grant.receive(size), "within the limit"
                sent += size
                queued.append(size)
            case "use" if queued:
                grant.use(queued.pop(0))
                grant.renewal()
            case "lose":
                grant.restart(open_now=size > 5)
                sent = 0
                assert grant.limit in (0, max(0, window - sum(queued)))
                assert (grant.limit == 0) == (size <= 5 or sum(queued) >= window)
        assert sum(queued) <= window + 50
        assert grant.received - grant.used == sum(queued)
        assert 0 <= grant.taken <= sent, "nobody is told that more is taken than he has sent"


def test_memory_bound_of_a_queue_sums_its_feeders() -> None:
    bound = memory_bound(high=1000, upload_window=100, peer_window=200, largest_frame=7, instances=2, peers=3)
    assert bound == 2 * 1000 + 7 + 2 * (100 + 7) + 3 * (200 + 7)


@given(st.lists(st.tuples(st.integers(0, 500), st.sets(st.sampled_from(ALL_CAUSES))), max_size=20))
def test_time_under_pressure_is_charged_to_lasting_causes(steps: list[tuple[int, set[Cause]]]) -> None:
    """A cause is charged for an interval if it holds at both ends; the causes of one task add up."""
    routes = started().cores[1].current.routes
    pressure, seconds, initiated, starts = BackpressureCauses(1), dict.fromkeys(ALL_CAUSES, 0), 0, 0
    before: set[Cause] = set()
    for elapsed_ms, now in steps:
        for cause in ALL_CAUSES:
            revision, changed = pressure.revision, (cause in now) != (cause in before)
            pressure.set_slow(cause, cause in now)
            assert (pressure.revision > revision) == changed
        starts += len(now - before)
        pressure.pass_time(elapsed_ms)
        initiated += elapsed_ms if now else 0
        for cause in now & before:
            seconds[cause] += elapsed_ms
        before = now
    names = {cause: routes.instance_name(cause.task) if cause.task else "stream_manager-2" for cause in ALL_CAUSES}
    totals = pressure.totals(routes)
    assert totals["__server/__time_spent_back_pressure_initiated"] == initiated
    assert totals["__back_pressure_starts"] == starts
    for name in set(names.values()):
        spent = sum(seconds[cause] for cause in ALL_CAUSES if names[cause] == name)
        assert totals.get(f"__time_spent_back_pressure_by_compid/{name}", 0) == spent
    pressure.set_routes(routes)
    assert pressure.totals(routes) == totals, "tasks of the plan are timed on"


def light(task: int) -> int:
    return 0


MESSAGES = st.one_of(
    st.builds(CauseSet, st.integers(0, 9)),
    st.builds(CauseChange, st.integers(0, 200)),
    st.builds(Pause, st.booleans()),
    st.builds(lambda weights: TaskWeights(tuple(TaskWeight(t, w) for t, w in sorted(weights.items()))),
              st.dictionaries(st.integers(1, 4), st.integers(0, 9))),
    st.builds(lambda limits: peer_credit([CreditGrant(limit, task=t) for t, limit in limits.items()], light),
              st.dictionaries(st.integers(1, 4), st.integers(1, 9))),
)  # fmt: skip


@given(st.lists(MESSAGES, max_size=40), st.booleans())
def test_outbox_preserves_the_meaning_of_its_messages(messages: list[Any], many: bool) -> None:
    """A receiver of the output ends in the same state, and the outbox is bounded."""
    outbox = ControlOutbox()
    changes = [CauseChange(n) for n in range(1_000, 1_000 + 2 * MAX_CHANGES)] if many else []
    for message in [*changes, *messages]:
        outbox.put(message)
    out = []
    while outbox:
        out.append(outbox.take())
    assert outbox.take() is None
    assert len(out) <= MAX_CHANGES + 4
    heard, told = meaning([*changes[:MAX_CHANGES], *messages], MAX_CHANGES), meaning(out, MAX_CHANGES)
    assert told == heard


def meaning(messages: list[Any], most: int) -> dict[Any, Any]:
    """Return the resulting state: the last message of each kind and task, and the changes since the last full set."""
    found: dict[Any, Any] = {}
    changes: dict[int, CauseChange] = {}
    for message in messages:
        if isinstance(message, CauseChange):
            if len(changes) < most:
                changes[message.number] = message
        elif isinstance(message, CauseSet):
            changes.clear()
            found[CauseSet] = message
        elif isinstance(message, Pause):
            found[Pause] = message
        else:
            found.setdefault(type(message), {}).update({about.task: about for about in message.tasks})
    return {**found, "changes": set(changes)}


def test_control_messages_are_coalesced() -> None:
    outbox = ControlOutbox()
    change = CauseChange(1, (ALL_CAUSES[0],))
    for message in (
        CauseSet(0),
        change,
        peer_credit([CreditGrant(10, task=1), CreditGrant(20, task=2)], light),
        CauseChange(2),
        TaskWeights((TaskWeight(1, 5), TaskWeight(2, 6))),
        peer_credit([CreditGrant(30, task=2)], light),
        TaskWeights((TaskWeight(2, 0),)),
        Pause(True),
        Pause(False),
    ):
        outbox.put(message)
    sent = []
    while outbox:
        sent.append(outbox.take())
    weights = TaskWeights((TaskWeight(1, 5), TaskWeight(2, 0)))
    assert sent == [
        CauseSet(0),
        change,
        peer_credit([CreditGrant(10, task=1), CreditGrant(30, task=2)], light),
        CauseChange(2),
        weights,
        Pause(False),
    ]
    outbox.put(change)
    outbox.put(CauseSet(7))
    assert outbox.take() == CauseSet(7)
    assert not outbox


def test_newer_checkpoint_command_does_not_overtake_the_plan() -> None:
    outbox = ControlOutbox()
    weights, plan, wish = TaskWeights((TaskWeight(1, 5),)), PlanUpdate(make_plan(), 2), CheckpointCommand(2, under=7)
    for message in (CheckpointCommand(1, under=6), PlanUpdate(make_plan(), 1), weights, plan, wish):
        outbox.put(message)
    assert [outbox.take(), outbox.take(), outbox.take(), outbox.take()] == [weights, plan, wish, None]

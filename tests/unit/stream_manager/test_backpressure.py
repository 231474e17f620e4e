"""Backpressure and credit: pauses follow causes, queues are bounded, and peers and history learn of both."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heron_runtime.model.checkpoints import CheckpointCommand
from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.wire.control import CauseChange, CauseSet, Pause, PlanUpdate, TaskWeight, TaskWeights
from stream_manager.core.backpressure import (
    LONGEST_MS,
    MAX_CAUSES,
    MAX_WAITING,
    QUIET_MS,
    BackpressureCauses,
    BackpressureEpisode,
    BackpressureEpisodes,
    is_slow,
)
from stream_manager.core.credit import CreditGrant, memory_bound
from stream_manager.core.events import Effect, SendMessage, Tick
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
    for size in queued:
        grant.use(size)
    grant.renewal()
    assert grant.limit - grant.used > window // 2


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


def test_newer_checkpoint_command_does_not_overtake_the_plan() -> None:
    """Plans and commands move to the end when they replace an older message; credit and weights keep their place."""
    outbox = ControlOutbox()
    credit, more = (peer_credit([CreditGrant(limit, task=1)], light) for limit in (10, 30))
    weights, plan, wish = TaskWeights((TaskWeight(1, 5),)), PlanUpdate(make_plan(), 2), CheckpointCommand(2, under=7)
    old = CheckpointCommand(1, under=6), PlanUpdate(make_plan(), 1)
    for message in (TaskWeights((TaskWeight(1, 9),)), credit, Pause(True), *old, weights, more, plan, wish):
        outbox.put(message)
    assert [outbox.take() for _ in range(6)] == [weights, more, Pause(True), plan, wish, None]


CAUSE = Cause(CauseKind.TASK, "split", 2, 1, 0)


def mesh(containers: int, **settings: object) -> StreamManagerHarness:
    """Return a mesh of idle, connected stream managers; ``__`` in settings stands for a dot."""
    places = {number: {number: "word"} for number in range(1, containers + 1)}
    found = StreamManagerHarness(make_plan(places), {key.replace("__", "."): value for key, value in settings.items()})
    found.start()
    return found


def told(world: StreamManagerHarness, effects: list[Effect]) -> Counter[int]:
    """Count the full sets sent to each peer."""
    sets = (effect for effect in effects if isinstance(effect, SendMessage) and isinstance(effect.message, CauseSet))
    return Counter(world.numbers[effect.connection][1] for effect in sets)


def beat(world: StreamManagerHarness) -> Counter[int]:
    """Run one heartbeat of container 1."""
    world.now_ms += 1000
    return told(world, world.tell(1, Tick(world.now_ms)))


def test_small_mesh_informs_all_peers_each_time() -> None:
    world = mesh(5)
    assert beat(world) == beat(world) == Counter([2, 3, 4, 5])


def test_large_mesh_informs_each_peer_once_in_ten_heartbeats() -> None:
    world = mesh(61)
    beats = [beat(world) for _ in range(30)]
    assert max(sum(beat.values()) for beat in beats) == 6
    for first in range(20):
        assert sum(beats[first : first + 10], Counter()) == Counter(range(2, 62))


def test_interval_between_full_sets_fits_the_lease() -> None:
    """The lease is at least three times as long as the interval between two sets for a peer."""
    world = mesh(13, heron__streammgr__partition__lease__secs=9.0)
    assert sum((beat(world) for _ in range(3)), Counter()) == Counter(range(2, 14))
    world = mesh(13, heron__streammgr__partition__lease__secs=1.0)
    assert beat(world) == Counter(range(2, 14))


def test_missed_change_is_repaired_at_the_next_heartbeat() -> None:
    world, everybody = mesh(41), Counter(range(2, 42))
    assert sum(beat(world).values()) == 4
    pressure = world.cores[1].causes
    pressure.set_slow(CAUSE, True)
    beat(world)
    assert beat(world) == everybody, "as long as there are causes"
    pressure.set_slow(CAUSE, False)
    assert beat(world) == everybody, "and when there are none any more"
    assert sum(beat(world).values()) == 4


CAUSES = [Cause(CauseKind.TASK, "count", task, 1) for task in range(12)]


def looks_after(*waits: int) -> st.SearchStrategy[list[tuple[int, dict[str, list[Cause]]]]]:
    """Build observations: the time since the last one, and the causes of each spout paused then."""
    causes = st.lists(st.sampled_from(CAUSES), min_size=1, max_size=12, unique=True)
    paused = st.dictionaries(st.sampled_from(["words", "lines"]), causes)
    return st.lists(st.tuples(st.sampled_from(waits), paused), max_size=60)


ONE = settings(report_multiple_bugs=False)


@ONE
@given(looks_after(0, 100, 500, 29_900, 30_000, 200_000))
def test_durations_pauses_and_causes_add_up(looks: list[tuple[int, dict[str, list[Cause]]]]) -> None:
    found, now, told = BackpressureEpisodes(), 0, list[BackpressureEpisode]()
    paused_ms, stood_ms, begun = dict.fromkeys(["words", "lines"], 0), 0, 0
    before: dict[str, list[Cause]] = {}
    for wait, paused in looks:
        now += wait
        for spout, causes in before.items():
            paused_ms[spout] += wait
            stood_ms += wait * len(causes)
        begun += sum(spout not in before for spout in paused)
        found.observe(now, {spout: tuple(causes) for spout, causes in paused.items()})
        found.check()
        told += found.take()
        before = paused
    for spout, causes in before.items():
        paused_ms[spout] += 70
        stood_ms += 70 * len(causes)
    found.end(now + 70)
    told += found.take()
    for spout, ms in paused_ms.items():
        assert sum(each.paused_ms for each in told if each.spout == spout) == ms
    assert sum(ms for each in told for ms in each.causes.values()) == stood_ms
    assert sum(each.pauses for each in told) >= begun, "one that goes on into the next episode counts there, too"
    assert all(len(each.causes) <= MAX_CAUSES + 1 for each in told)
    assert found.idle


@ONE
@given(looks_after(100, 500, 1000, 29_900))
def test_flapping_yields_at_most_two_episodes_a_minute(
    looks: list[tuple[int, dict[str, list[Cause]]]],
) -> None:
    found, now, told = BackpressureEpisodes(), 0, list[BackpressureEpisode]()
    for wait, paused in looks:
        now += wait
        found.observe(now, {spout: tuple(causes) for spout, causes in paused.items()})
        told += found.take()
    for spout in ("words", "lines"):
        assert sum(each.spout == spout for each in told) <= now // QUIET_MS


@ONE
@given(st.lists(st.integers(1, 20_000), max_size=40))
def test_lasting_pressure_yields_one_episode_in_five_minutes(waits: list[int]) -> None:
    found, now = BackpressureEpisodes(), 0
    for wait in [*waits, *[10_000] * 70]:
        found.observe(now, {"words": (CAUSES[0],)})
        now += wait
    found.observe(now, {"words": (CAUSES[0],)})
    told = found.take()
    assert now // (LONGEST_MS + 20_000) <= len(told) <= now // LONGEST_MS


def test_episode_text_names_duration_and_causes() -> None:
    found = BackpressureEpisodes()
    link = Cause(CauseKind.LINK, "", 0, 1, 2)
    found.observe(1000, {"words": (CAUSES[3],)})
    found.observe(3000, {"words": (CAUSES[3], link)})
    found.observe(4000, {})
    found.observe(5000, {"words": (link,)})
    found.end(5500)
    (each,) = found.take()
    assert each.text == (
        "paused 2 times for 3.5 s of 4.5 s: count task 3 (seen in container 1) 3.0 s, "
        "link from container 1 to container 2 1.5 s"
    )
    told = json.loads(each.detail(10_000.4))
    assert (told["from_ms"], told["to_ms"], told["pauses"], told["paused_ms"]) == (11_000, 15_500, 2, 3500)
    assert told["causes"][1] == {"kind": "link", "component": "", "task": 0, "container": 1, "peer": 2, "ms": 1500}


def test_untaken_episodes_are_bounded_to_the_newest() -> None:
    found = BackpressureEpisodes()
    for number in range(100):
        found.observe(number * 2 * QUIET_MS, {f"spout{number}": (CAUSES[0],)})
        found.observe(number * 2 * QUIET_MS + 1, {})
    assert [each.spout for each in found.take()] == [f"spout{n}" for n in range(99 - MAX_WAITING, 99)]

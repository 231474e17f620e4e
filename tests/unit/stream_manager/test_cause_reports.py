"""Which peers are told the whole set of causes at which heartbeat: all after a change, else some in turn."""

from __future__ import annotations

from collections import Counter

from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.wire.control import CauseSet
from stream_manager.core.events import Effect, SendMessage, Tick
from tests.support.harness.stream_managers import StreamManagerHarness, make_plan

CAUSE = Cause(CauseKind.TASK, "split", 2, 1, 0)


def mesh(containers: int, **settings: object) -> StreamManagerHarness:
    """So many stream managers that know each other, with nothing to do; settings with ``__`` for dots."""
    places = {number: {number: "word"} for number in range(1, containers + 1)}
    found = StreamManagerHarness(make_plan(places), {key.replace("__", "."): value for key, value in settings.items()})
    found.start()
    return found


def told(world: StreamManagerHarness, effects: list[Effect]) -> Counter[int]:
    """Peers that are told a whole set."""
    sets = (effect for effect in effects if isinstance(effect, SendMessage) and isinstance(effect.message, CauseSet))
    return Counter(world.numbers[effect.connection][1] for effect in sets)


def beat(world: StreamManagerHarness) -> Counter[int]:
    """A heartbeat of container 1."""
    world.now_ms += 1000
    return told(world, world.tell(1, Tick(world.now_ms)))


def test_in_a_small_mesh_everybody_is_told_each_time() -> None:
    world = mesh(5)
    assert beat(world) == beat(world) == Counter([2, 3, 4, 5])


def test_in_a_large_mesh_each_is_told_once_in_ten_heartbeats() -> None:
    world = mesh(61)
    beats = [beat(world) for _ in range(30)]
    assert max(sum(beat.values()) for beat in beats) == 6
    for first in range(20):
        assert sum(beats[first : first + 10], Counter()) == Counter(range(2, 62))


def test_who_hears_of_one_alone_is_not_cut_off() -> None:
    """The lease is three times as long as the time from one word to the next, and more."""
    world = mesh(13, heron__streammgr__partition__lease__secs=9.0)
    assert sum((beat(world) for _ in range(3)), Counter()) == Counter(range(2, 14))
    world = mesh(13, heron__streammgr__partition__lease__secs=1.0)
    assert beat(world) == Counter(range(2, 14))


def test_a_change_that_was_missed_is_repaired_at_the_next_heartbeat() -> None:
    world, everybody = mesh(41), Counter(range(2, 42))
    assert sum(beat(world).values()) == 4
    pressure = world.cores[1].causes
    pressure.set_slow(CAUSE, True)
    beat(world)
    assert beat(world) == everybody, "as long as there are causes"
    pressure.set_slow(CAUSE, False)
    assert beat(world) == everybody, "and when there are none any more"
    assert sum(beat(world).values()) == 4

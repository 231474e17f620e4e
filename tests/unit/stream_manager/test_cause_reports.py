"""Full cause sets in heartbeats to peers: all peers after a change, otherwise a few in turn."""

from __future__ import annotations

from collections import Counter

from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.wire.control import CauseSet
from stream_manager.core.events import Effect, SendMessage, Tick
from tests.support.harness.stream_managers import StreamManagerHarness, make_plan

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

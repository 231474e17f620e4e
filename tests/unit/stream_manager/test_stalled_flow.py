"""A stream manager says that nothing is acked: after a message timeout, while roots are open, until one is acked."""

from __future__ import annotations

import pytest
from sm_world import World, column, frame, make_plan

from heron_runtime.model.weights import SECOND_BYTES
from heron_runtime.wire.control import Credit
from heron_runtime.wire.data import Ack
from heron_runtime.wire.master import Flow, Heartbeat
from stream_manager.core.events import Heard, MasterConnected

TIMEOUT_SECONDS = 3


@pytest.fixture
def world() -> World:
    made = World(make_plan(topology__message__timeout__secs=TIMEOUT_SECONDS))
    made.start()
    made.tell(1, MasterConnected())
    return made


def flow(world: World) -> Flow:
    """What the next heartbeat of container 1 says."""
    world.to_master.clear()
    for _ in range(2):
        world.tick(500)
    beats = [m for m in world.to_master if isinstance(m, Heartbeat)]
    return beats[-1].flow


def test_what_is_acked_is_not_stalled(world: World) -> None:
    for _ in range(2 * TIMEOUT_SECONDS):
        root = world.open_root(1, [11])
        world.send(2, acks=[Ack(1, column([root]), column([11]))])
        assert flow(world) == Flow(0)


def test_what_is_not_acked_is_stalled_through_expiry_and_again_open_roots(world: World) -> None:
    for second in range(4 * TIMEOUT_SECONDS):
        world.open_root(1, [11])  # what expired is emitted again
        told = flow(world)
        assert told.in_flight > 0
        assert (told.stalled_ms >= 1000 * TIMEOUT_SECONDS) == (told.stalled_ms > 0) == (second >= TIMEOUT_SECONDS)
    root = world.open_root(1, [11])
    world.send(2, acks=[Ack(1, column([root]), column([11]))])
    assert flow(world).stalled_ms == 0


def test_a_long_rest_ends_it(world: World) -> None:
    world.open_root(1, [11])
    for _ in range(4 * TIMEOUT_SECONDS):
        flow(world)
    world.open_root(1, [11])
    assert flow(world).stalled_ms == 0


def test_the_deepest_queue_is_named_in_seconds(world: World) -> None:
    split = world.instances[2]
    assert split.connection is not None
    world.tell(1, Heard(split.connection, Credit(split.granted, SECOND_BYTES // 2)))
    for _ in range(TIMEOUT_SECONDS + 1):
        world.open_root(1, [11])
        flow(world)
    world.disconnect(2)
    world.send(1, [frame(1, 2, count=4), frame(1, 3, count=1)])
    told = flow(world)
    assert (told.deepest, told.deepest_seconds) == ("split", 2.0)

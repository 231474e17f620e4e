"""Report of a stalled flow: after a message timeout with open roots, until one is acked."""

from __future__ import annotations

import pytest

from heron_runtime.model.dataflow import SECOND_BYTES, FailKind
from heron_runtime.wire.control import CallDuration, Credit
from heron_runtime.wire.data import Ack, Reason
from heron_runtime.wire.master import NOBODY, Bottleneck, FlowStatus, Heartbeat, HeartbeatReply
from stream_manager.core.events import ControlReceived, MasterConnected, MasterDisconnected, MasterMessage
from tests.support.harness.stream_managers import StreamManagerHarness, column, frame, make_plan

TIMEOUT_SECONDS = 3


@pytest.fixture
def world() -> StreamManagerHarness:
    made = StreamManagerHarness(make_plan(topology__message__timeout__secs=TIMEOUT_SECONDS))
    made.start()
    made.tell(1, MasterConnected())
    return made


def flow(world: StreamManagerHarness) -> FlowStatus:
    """Return the flow status of the next heartbeat of container 1."""
    world.to_master.clear()
    for _ in range(2):
        world.tick(500)
    beats = [m for m in world.to_master if isinstance(m, Heartbeat)]
    return beats[-1].flow


def test_acked_flow_is_not_stalled(world: StreamManagerHarness) -> None:
    before = world.open_root(1, [11])
    for _ in range(3 * TIMEOUT_SECONDS):
        root = world.open_root(1, [11])
        world.send(2, acks=[Ack(1, column([before]), column([11]))])
        assert flow(world) == FlowStatus(1)  # one root is always in flight
        before = root


def test_unacked_flow_is_stalled_across_expiry_and_new_roots(world: StreamManagerHarness) -> None:
    for second in range(4 * TIMEOUT_SECONDS):
        world.open_root(1, [11])  # expired tuples are emitted again
        told = flow(world)
        assert told.in_flight > 0
        assert (told.stalled_ms >= 1000 * TIMEOUT_SECONDS) == (told.stalled_ms > 0) == (second >= TIMEOUT_SECONDS)
    root = world.open_root(1, [11])
    world.send(2, acks=[Ack(1, column([root]), column([11]))])
    assert flow(world).stalled_ms == 0


def test_long_idle_time_ends_the_stall(world: StreamManagerHarness) -> None:
    world.open_root(1, [11])
    for _ in range(4 * TIMEOUT_SECONDS):
        flow(world)
    world.open_root(1, [11])
    assert flow(world).stalled_ms == 0


def test_short_idle_time_does_not_end_the_stall(world: StreamManagerHarness) -> None:
    """Expired tuples may be emitted again shortly after."""
    world.open_root(1, [11])
    for _ in range(4 * TIMEOUT_SECONDS):
        if flow(world).in_flight == 0:
            break
    assert flow(world).in_flight == 0
    world.open_root(1, [11])
    assert flow(world).stalled_ms >= 1000 * TIMEOUT_SECONDS


def busy(world: StreamManagerHarness, task: int, milliseconds: int) -> None:
    """Report that the task's user code has been in one call for this long."""
    connection = world.instances[task].connection
    assert connection is not None
    world.tell(world.plan.container_of(task), ControlReceived(connection, CallDuration(milliseconds)))


def slow_queue(world: StreamManagerHarness) -> None:
    """Queue four tuples for task 2, which takes half a second for each."""
    split = world.instances[2]
    assert split.connection is not None
    world.tell(1, ControlReceived(split.connection, Credit(split.granted, SECOND_BYTES // 2)))
    world.disconnect(2)
    world.send(1, [frame(1, 2, count=4), frame(1, 3, count=1)])


def test_deepest_queue_is_named_in_seconds(world: StreamManagerHarness) -> None:
    assert flow(world).holder == NOBODY
    slow_queue(world)
    assert flow(world).holder == Bottleneck("split", 2, 2.0)


def test_call_longer_than_any_queue_is_named(world: StreamManagerHarness) -> None:
    slow_queue(world)
    busy(world, 3, 1500)
    assert flow(world).holder.task == 2
    busy(world, 3, 41_000)
    told = flow(world).holder
    assert told == Bottleneck("sink", 3, 41.0, in_call=True)
    assert str(told) == "sink task 3 (in one call for 41 s)"
    busy(world, 3, 0)
    assert flow(world).holder.task == 2
    busy(world, 3, 41_000)
    world.disconnect(3)
    assert flow(world).holder.task == 2


def test_timeout_reason_names_the_bottleneck(world: StreamManagerHarness) -> None:
    world.tell(1, MasterMessage(HeartbeatReply(1, Bottleneck("count", 8, 12.0))))
    world.open_root(1, [11])
    for _ in range(4 * TIMEOUT_SECONDS):
        world.tick(500)
    world.settle()
    world.tell(1, MasterDisconnected())
    world.open_root(1, [11])
    for _ in range(4 * TIMEOUT_SECONDS):
        world.tick(500)
    world.settle()
    known, unknown = world.instances[1].reasons
    assert known == Reason(FailKind.TIMEOUT, "count", 8, "bottleneck: count task 8 (12.0 s of work)")
    assert (unknown.component, unknown.task) == ("", 0)
    assert "no queue is long" in unknown.message
    assert "\n" not in known.message + unknown.message

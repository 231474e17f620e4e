"""Epochs, leases, local pauses and removed tasks (protocols 1, 3.2 and 5)."""

from __future__ import annotations

from heron_runtime.model.dataflow import Cause, CauseKind, FailKind
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.model.plan import StreamManagerInfo
from heron_runtime.model.settings import Keys
from heron_runtime.wire.control import CauseChange, CauseSet, Leave, PeerHello, PlanUpdate
from heron_runtime.wire.data import Ack
from heron_runtime.wire.master import Heartbeat, HeartbeatReply, Register
from stream_manager.core.ack_tracker import MAX_LIVE
from stream_manager.core.backpressure import BackpressureCauses
from stream_manager.core.events import (
    ConnectionOpened,
    EpochRaised,
    LeaveMaster,
    MasterConnected,
    MasterMessage,
    PlanAccepted,
    PlanLoaded,
    SendToMaster,
    StopReplaced,
    Tick,
)
from stream_manager.core.stream_manager import StreamManager
from tests.support.harness.stream_managers import PLACES, TOPOLOGY_ID, StreamManagerHarness, column, make_plan


def started(places: dict[int, dict[int, str]] = PLACES) -> StreamManagerHarness:
    world = StreamManagerHarness(make_plan(places))
    world.start()
    return world


def test_highest_epoch_is_kept() -> None:
    """The epoch may come from a heartbeat, a known plan or a peer. Messages of a lower epoch are rejected."""
    core = StreamManager(TOPOLOGY_ID, StreamManagerInfo(1, "h", 1, 101), {}, 0)
    plan = make_plan()
    assert [type(effect) for effect in core.handle(PlanLoaded(plan, 1))] == [EpochRaised, PlanAccepted]
    assert core.handle(MasterMessage(PlanUpdate(plan, 2))) == [EpochRaised(2)]
    assert core.handle(MasterMessage(HeartbeatReply(3))) == [EpochRaised(3)]
    assert core.handle(MasterMessage(HeartbeatReply(3))) == []
    assert EpochRaised(4) in core.handle(ConnectionOpened(1, PeerHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 102, 4)))
    for lower in (Leave("go", 3), Leave("go"), HeartbeatReply(3), PlanUpdate(make_plan(number=9, epoch=3), 3)):
        assert [type(effect) for effect in core.handle(MasterMessage(lower))] == [LeaveMaster]
    assert [type(effect) for effect in core.handle(MasterMessage(Leave("go", 4)))] == [StopReplaced]


def test_master_is_told_the_highest_epoch() -> None:
    """The epoch may exceed the plan's: a heartbeat can announce a higher one, which a deposed master must learn."""
    core = StreamManager(TOPOLOGY_ID, StreamManagerInfo(1, "h", 1, 101), {}, 0)
    core.handle(PlanLoaded(make_plan(), 1))
    core.handle(MasterMessage(HeartbeatReply(3)))
    told = [
        effect.message
        for effect in core.handle(MasterConnected()) + core.handle(Tick(1000))
        if isinstance(effect, SendToMaster)
    ]
    assert [type(message) for message in told] == [Register, Heartbeat]
    assert [message.epoch for message in told] == [3, 3]


def test_instance_of_a_removed_task_is_told_to_leave() -> None:
    world = started()
    places = {**PLACES, 1: {1: "word", 3: "sink"}, 3: {**PLACES[3], 2: "split"}}
    world.plan = make_plan(places, number=2)
    world.tell(1, PlanLoaded(world.plan, 1))
    assert isinstance(world.instances[2].heard[-1], Leave)
    assert world.cores[1].connections.instances[2].connection is None
    assert [type(world.instances[task].heard[-1]) is not Leave for task in (1, 3)] == [True, True]


def ticks_to_expiry(world: StreamManagerHarness, step_ms: int, most: int) -> int:
    for n in range(1, most):
        world.tick(step_ms)
        world.settle()
        if world.instances[1].verdicts:
            return n
    raise AssertionError("it never expires")


def test_pause_of_the_process_expires_no_root() -> None:
    """The process stops just before an expiry; the sockets it reads afterwards hold the final ack."""
    first = started()
    first.open_root(1, [5])
    ticks = ticks_to_expiry(first, 100, 1000)
    for pauses in (1, 2, 3):
        world = started()
        root = world.open_root(1, [5])
        for _ in range(ticks - 1):
            world.tick(100)
        for _ in range(pauses):
            world.tick(10_000)
        world.send(2, acks=[Ack(1, column([root]), column([5]))])
        world.settle()
        assert world.instances[1].verdicts == [(root, None)]


def test_roots_expire_with_slow_ticks() -> None:
    for step_ms in (900, 1500, 20_000):
        world = started()
        root = world.open_root(1, [5])
        ticks_to_expiry(world, step_ms, 200)
        assert world.instances[1].verdicts == [(root, FailKind.TIMEOUT)]


def test_single_stream_manager_does_not_pause_for_a_partition() -> None:
    alone, several = started({1: PLACES[1]}), started()
    several.break_link(1, 2)
    several.break_link(1, 3)
    for _ in range(400):
        alone.tick(100)
        several.tick(100)
    assert not alone.cores[1].instances.has_paused_spouts()
    assert several.cores[1].instances.has_paused_spouts()


def test_change_after_a_gap_waits_for_the_next_full_set() -> None:
    pressure = BackpressureCauses(1)
    a, b, c = (Cause(CauseKind.TASK, "x", task, 2) for task in (1, 2, 3))
    pressure.peer_set(2, CauseSet(1, (a,)))
    pressure.peer_change(2, CauseChange(2, (b,), ()))
    assert pressure.union() == (a, b)
    pressure.peer_change(2, CauseChange(4, (c,), (a,)))  # change 3 may have removed c or added another cause
    assert pressure.union() == (a, b)
    pressure.peer_change(2, CauseChange(2, (), (b,)))
    assert pressure.union() == (a, b), "nor is one applied twice"
    pressure.peer_set(2, CauseSet(4, (b, c)))
    assert pressure.union() == (b, c)


def test_spout_pending_limit_is_below_the_trackers() -> None:
    most = Keys.TOPOLOGY_MAX_SPOUT_PENDING.maximum
    assert most is not None
    assert 1.5 * most < MAX_LIVE

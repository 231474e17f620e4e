"""Epochs, leases, pauses of one's own, tasks that have gone (protocols 1, 3.2 and 5), and what notices if they fail."""

from __future__ import annotations

from typing import Any

import pytest
from laws import Law, Mutation, each_law, each_mutation
from sm_world import PLACES, TOPOLOGY_ID, World, column, make_plan

from heron_runtime.model.causes import Cause, CauseKind
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.model.plan import StreamManagerInfo
from heron_runtime.model.reasons import FailKind
from heron_runtime.model.settings import Keys
from heron_runtime.wire.control import CauseChange, CauseSet, Leave, PeerHello, PlanUpdate
from heron_runtime.wire.data import Ack
from heron_runtime.wire.master import Heartbeat, HeartbeatReply, Register
from stream_manager.core import stream_manager as manager_module
from stream_manager.core.ack_tracker import MAX_LIVE
from stream_manager.core.backpressure import Pressure
from stream_manager.core.effects import EpochHeard, PlanAccepted, RefuseMaster, Replaced, TellMaster
from stream_manager.core.events import Connected, MasterConnected, MasterHeard, PlanRecalled, Tick
from stream_manager.core.instance_side import InstanceSide
from stream_manager.core.stream_manager import StreamManager


def started(places: dict[int, dict[int, str]] = PLACES) -> World:
    world = World(make_plan(places))
    world.start()
    return world


def law_the_highest_epoch_is_kept() -> None:
    """Whoever speaks of it: a heartbeat, a plan that is known, a peer. A lower master is refused whatever it says."""
    core = StreamManager(TOPOLOGY_ID, StreamManagerInfo(1, "h", 1, 101), {}, 0)
    plan = make_plan()
    assert [type(effect) for effect in core.handle(PlanRecalled(plan, 1))] == [EpochHeard, PlanAccepted]
    assert core.handle(MasterHeard(PlanUpdate(plan, 2))) == [EpochHeard(2)]
    assert core.handle(MasterHeard(HeartbeatReply(3))) == [EpochHeard(3)]
    assert core.handle(MasterHeard(HeartbeatReply(3))) == []
    assert EpochHeard(4) in core.handle(Connected(1, PeerHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 102, 4)))
    for lower in (Leave("go", 3), Leave("go"), HeartbeatReply(3), PlanUpdate(make_plan(number=9, epoch=3), 3)):
        assert [type(effect) for effect in core.handle(MasterHeard(lower))] == [RefuseMaster]
    assert [type(effect) for effect in core.handle(MasterHeard(Leave("go", 4)))] == [Replaced]


def law_a_master_is_told_the_highest_epoch() -> None:
    """Not its plan's: a heartbeat may have told of a higher one, and the deposed master must hear of it."""
    core = StreamManager(TOPOLOGY_ID, StreamManagerInfo(1, "h", 1, 101), {}, 0)
    core.handle(PlanRecalled(make_plan(), 1))
    core.handle(MasterHeard(HeartbeatReply(3)))
    told = [
        effect.message
        for effect in core.handle(MasterConnected()) + core.handle(Tick(1000))
        if isinstance(effect, TellMaster)
    ]
    assert [type(message) for message in told] == [Register, Heartbeat]
    assert [message.epoch for message in told] == [3, 3]


def law_an_instance_whose_task_has_gone_is_told_to_leave() -> None:
    world = started()
    places = {**PLACES, 1: {1: "word", 3: "sink"}, 3: {**PLACES[3], 2: "split"}}
    world.plan = make_plan(places, number=2)
    world.tell(1, PlanRecalled(world.plan, 1))
    assert isinstance(world.instances[2].heard[-1], Leave)
    assert world.cores[1].connections.instances[2].connection is None
    assert [type(world.instances[task].heard[-1]) is not Leave for task in (1, 3)] == [True, True]


def ticks_to_expiry(world: World, step_ms: int, most: int) -> int:
    for n in range(1, most):
        world.tick(step_ms)
        world.settle()
        if world.instances[1].verdicts:
            return n
    raise AssertionError("it never expires")


def law_a_pause_of_its_own_expires_nothing() -> None:
    """Stopped on the brink of an expiry; what it finds in its sockets when it goes on says that the tree is done."""
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


def law_roots_expire_however_slow_the_ticks_are() -> None:
    for step_ms in (900, 1500, 20_000):
        world = started()
        root = world.open_root(1, [5])
        ticks_to_expiry(world, step_ms, 200)
        assert world.instances[1].verdicts == [(root, FailKind.TIMEOUT)]


def law_alone_there_is_nobody_to_be_cut_off_from() -> None:
    alone, several = started({1: PLACES[1]}), started()
    several.break_link(1, 2)
    several.break_link(1, 3)
    for _ in range(400):
        alone.tick(100)
        several.tick(100)
    assert not alone.cores[1].local.spouts_paused()
    assert several.cores[1].local.spouts_paused()


def law_a_change_over_a_gap_waits_for_the_next_whole_set() -> None:
    pressure = Pressure(1)
    a, b, c = (Cause(CauseKind.TASK, "x", task, 2) for task in (1, 2, 3))
    pressure.peer_set(2, CauseSet(1, (a,)))
    pressure.peer_change(2, CauseChange(2, (b,), ()))
    assert pressure.union() == (a, b)
    pressure.peer_change(2, CauseChange(4, (c,), (a,)))  # 3 may have taken c back, or brought something else
    assert pressure.union() == (a, b)
    pressure.peer_change(2, CauseChange(2, (), (b,)))
    assert pressure.union() == (a, b), "nor is one applied twice"
    pressure.peer_set(2, CauseSet(4, (b, c)))
    assert pressure.union() == (b, c)


def law_a_spout_waits_before_the_tracker_refuses() -> None:
    most = Keys.TOPOLOGY_MAX_SPOUT_PENDING.maximum
    assert most is not None
    assert 1.5 * most < MAX_LIVE


def a_heartbeat_tells_no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamManager, "_hear_epoch", lambda self, epoch: None)


def a_master_is_told_the_plans_epoch(patch: pytest.MonkeyPatch) -> None:
    kind: Any
    for kind in (Register, Heartbeat):
        patch.setattr(manager_module, kind.__name__, lambda *facts, kind=kind: kind(*facts[:-1], 1))


def a_leave_is_followed_whoever_says_it(patch: pytest.MonkeyPatch) -> None:
    real = StreamManager._master_heard

    def heard(self: StreamManager, message: Any) -> None:
        real(self, Leave(message.reason, 1 << 40) if isinstance(message, Leave) else message)

    patch.setattr(StreamManager, "_master_heard", heard)


def who_has_gone_is_told_nothing(patch: pytest.MonkeyPatch) -> None:
    real = InstanceSide.give_plans
    patch.setattr(InstanceSide, "give_plans", lambda self, before, standing: real(self, standing.routes, standing))


def no_rest_after_a_pause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manager_module, "REST_MS", 0)


def one_rest_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manager_module, "MOST_LATE_TICKS", 0)


def it_rests_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manager_module, "MOST_LATE_TICKS", 10**9)


def one_without_peers_is_cut_off(patch: pytest.MonkeyPatch) -> None:
    real = Pressure.set_partitioned
    patch.setattr(Pressure, "set_partitioned", lambda self, _: real(self, True))


def nobody_is_ever_cut_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pressure, "set_partitioned", lambda self, _: None)


def a_gap_is_jumped(patch: pytest.MonkeyPatch) -> None:
    real = Pressure.peer_change

    def change(self: Pressure, container: int, message: CauseChange) -> None:
        _, causes = self._peers.get(container, (-1, {}))
        self._peers[container] = (message.number - 1, causes)
        real(self, container, message)

    patch.setattr(Pressure, "peer_change", change)


def the_tracker_is_smaller_than_a_window(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "MAX_LIVE", 1 << 23)


MUTATIONS: list[tuple[Mutation, Law]] = [
    (a_heartbeat_tells_no_epoch, law_the_highest_epoch_is_kept),
    (a_master_is_told_the_plans_epoch, law_a_master_is_told_the_highest_epoch),
    (a_leave_is_followed_whoever_says_it, law_the_highest_epoch_is_kept),
    (who_has_gone_is_told_nothing, law_an_instance_whose_task_has_gone_is_told_to_leave),
    (no_rest_after_a_pause, law_a_pause_of_its_own_expires_nothing),
    (one_rest_only, law_a_pause_of_its_own_expires_nothing),
    (it_rests_for_ever, law_roots_expire_however_slow_the_ticks_are),
    (one_without_peers_is_cut_off, law_alone_there_is_nobody_to_be_cut_off_from),
    (nobody_is_ever_cut_off, law_alone_there_is_nobody_to_be_cut_off_from),
    (a_gap_is_jumped, law_a_change_over_a_gap_waits_for_the_next_whole_set),
    (the_tracker_is_smaller_than_a_window, law_a_spout_waits_before_the_tracker_refuses),
]

test_law = each_law(globals())
test_each_law_notices_its_mutation = each_mutation(MUTATIONS)

"""Stream manager core: messages, their order, and rejected input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from heron_runtime.model.dataflow import CauseKind, FailKind
from heron_runtime.model.ids import PROTOCOL_VERSION, root_base
from heron_runtime.model.metrics import split_name
from heron_runtime.model.plan import StreamManagerInfo
from heron_runtime.wire.control import (
    CauseSet,
    Credit,
    InstanceHello,
    Leave,
    Pause,
    PeerHello,
    PlanUpdate,
    StreamManagerHello,
    TaskWeights,
)
from heron_runtime.wire.data import Ack, Fail, Init, Packet
from heron_runtime.wire.master import Heartbeat, HeartbeatReply, Register
from stream_manager.core.events import (
    ConnectionEnded,
    ConnectionOpened,
    DataStreamOpened,
    EndConnection,
    EpochRaised,
    LeaveMaster,
    MasterConnected,
    MasterMessage,
    PlanLoaded,
    SendMessage,
    StopReplaced,
    Tick,
)
from stream_manager.core.stream_manager import StreamManager
from tests.support.harness.stream_managers import (
    PLACES,
    TOPOLOGY_ID,
    StreamManagerHarness,
    column,
    failed,
    frame,
    make_plan,
)

HIGH, LOW = 10_000, 4_000
MARKS: dict[str, Any] = {
    "topology__backpressure__high__watermark__bytes": HIGH,
    "topology__backpressure__low__watermark__bytes": LOW,
}


@pytest.fixture
def world() -> StreamManagerHarness:
    made = StreamManagerHarness(make_plan(**MARKS))
    made.start()
    return made


def test_instance_receives_hello_credit_plan_and_pause_in_order(world: StreamManagerHarness) -> None:
    heard = world.instances[1].heard
    assert [type(m) for m in heard[:5]] == [StreamManagerHello, Credit, TaskWeights, PlanUpdate, Pause]
    assert heard[4] == Pause(False, ())
    bolt = [type(m) for m in world.instances[2].heard]
    assert bolt[:4] == [StreamManagerHello, Credit, TaskWeights, PlanUpdate]
    assert Pause not in bolt, "bolts never pause"


def test_each_spout_connection_receives_its_pause_state(
    world: StreamManagerHarness,
) -> None:
    for revision in range(4):
        world.disconnect(1)
        world.cores[1].causes.revision = revision
        world.instances[1].heard.clear()
        world.connect(1)
        assert [m for m in world.instances[1].heard if isinstance(m, Pause)] == [Pause(False, ())]


def test_tuple_tree_across_containers_completes_at_its_spout(world: StreamManagerHarness) -> None:
    a, b, c = 11, 22, 33
    root = world.open_root(1, [a, b])
    roots = column([root])
    world.send(1, [frame(1, 2, roots=roots, keys=column([a])), frame(1, 6, roots=roots, keys=column([b]))])
    world.settle()
    assert world.take(2) == frame(1, 2, roots=roots, keys=column([a]))
    assert world.take(6) == frame(1, 6, roots=roots, keys=column([b]))
    world.send(6, [frame(6, 8, roots=roots, keys=column([c]))], acks=[Ack(1, roots, column([b ^ c]))])
    world.send(2, acks=[Ack(1, roots, column([a]))])
    world.settle()
    assert world.instances[1].verdicts == []
    assert world.take(8) is not None
    world.send(8, acks=[Ack(1, roots, column([c]))])
    world.settle()
    assert world.instances[1].verdicts == [(root, None)]


def test_fail_reaches_the_spout_with_its_reason(world: StreamManagerHarness) -> None:
    root = world.open_root(1, [5])
    world.send(4, fails=[Fail(1, column([root, root]), failed("count", 4))])
    world.settle()
    assert world.instances[1].verdicts == [(root, FailKind.FAILED)]
    world.send(4, acks=[Ack(1, column([root]), column([5]))])
    world.settle()
    assert len(world.instances[1].verdicts) == 1
    assert world.cores[1].trackers.late == 1
    world.send(4, acks=[Ack(99, column([1, 2, 3]), column([4, 5, 6]))], fails=[Fail(99, column([1, 2]), failed())])
    world.settle()
    late = [core.trackers.late for core in world.cores.values()]
    assert sum(late) == 1 + 5, "also of a task that is nowhere"


def test_roots_expire_by_ticks_but_not_during_a_pause_of_the_process(world: StreamManagerHarness) -> None:
    root = world.open_root(1, [5])
    world.tick(3_600_000)
    world.settle()
    assert world.instances[1].verdicts == [], "a stopped stream manager reads first"
    world.send(2, acks=[Ack(1, column([root]), column([5]))])
    world.settle()
    assert world.instances[1].verdicts == [(root, None)]
    root = world.open_root(1, [6])
    for _ in range(460):
        world.tick(100)
    world.settle()
    assert world.instances[1].verdicts[1:] == [(root, FailKind.TIMEOUT)]


def test_verdicts_wait_for_a_reconnect_but_not_for_a_new_process(world: StreamManagerHarness) -> None:
    root = world.open_root(1, [5])
    world.disconnect(1)
    world.send(2, acks=[Ack(1, column([root]), column([5]))])
    world.connect(1)
    world.settle()
    assert world.instances[1].verdicts == [(root, None)]
    root = world.open_root(1, [5])
    world.disconnect(1)
    world.send(2, acks=[Ack(1, column([root]), column([5]))])
    world.connect(1, incarnation=2)
    world.settle()
    assert world.instances[1].verdicts == []


def test_newer_hello_replaces_the_older_process(world: StreamManagerHarness) -> None:
    old = world.instances[2].connection
    assert old is not None
    hello = InstanceHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 9, 4242)
    effects = world.cores[1].handle(ConnectionOpened(999, hello))
    assert isinstance(effects[0], SendMessage)
    assert isinstance(effects[0].message, Leave)
    assert isinstance(effects[1], EndConnection)
    assert effects[1].connection == old
    assert world.cores[1].handle(ConnectionEnded(old)) == [], "what comes of the old connection changes nothing"
    assert world.cores[1].connections.instances[2].connection == 999


def test_frames_for_a_dead_instance_wait_for_the_next(world: StreamManagerHarness) -> None:
    world.disconnect(2)
    world.send(1, [frame(1, 2, b"waits")])
    world.settle()
    world.connect(2, incarnation=2)
    world.settle()
    assert world.take(2) == frame(1, 2, b"waits")


def test_broken_link_loses_and_counts_sent_frames_but_keeps_queued_ones(
    world: StreamManagerHarness,
) -> None:
    world.send(1, [frame(1, 6, b"lost", count=3)])
    while world.pump(1):
        pass
    world.break_link(1, 2)
    world.send(1, [frame(1, 6, b"kept", count=2)])
    world.link(1, 2)
    world.settle()
    assert world.take(6) == frame(1, 6, b"kept", count=2)
    assert world.take(6) is None
    assert world.cores[1].connections.peers[2].link.lost == {0: 3}
    totals = world.cores[1].totals()
    assert totals["__lost_on_break/stream_manager-2/word/default"] == 3
    lost = {name: tuples for name, tuples in totals.items() if "_lost/" in name}
    assert lost == {"__server/__tuples_to_stmgrs_lost/stream_manager-2": 3}, "who has lost nothing is not named"


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (Packet(2), "packet 2 instead of 1"),
        (Packet(1, frames=[frame(3, 2)]), "a frame of task 3"),
        (Packet(1, inits=[Init(2, root_base(2, 1), column([1]))]), "not a spout"),
        *(
            (packet, "root 0 is not a valid root")
            for spout in (1, 5)  # tracked here, and at a peer
            for packet in (
                Packet(1, acks=[Ack(spout, column([0]), column([5]))]),
                Packet(1, fails=[Fail(spout, column([root_base(spout, 1), 0]), failed("split", 2))]),
            )
        ),
    ],
)
def test_protocol_violation_of_an_instance_ends_its_connection(
    world: StreamManagerHarness, packet: Packet, reason: str
) -> None:
    before = world.cores[1].violations
    number = world.instances[2].connection
    assert number is not None
    effects = world.cores[1].packet(number, packet)
    assert [type(effect) for effect in effects] == [EndConnection]
    said = effects[0].reason  # type: ignore[union-attr]  # it is an End
    assert said.startswith("task 2: ")
    assert reason in said
    assert world.cores[1].connections.instances[2].connection is None
    assert world.cores[1].violations == before + 1


def test_frames_without_credit_end_the_connection(world: StreamManagerHarness) -> None:
    number = world.instances[1].connection
    assert number is not None
    core = world.cores[1]
    big = frame(1, 6, bytes(5 * 1024 * 1024))
    world.act(1, core.packet(number, Packet(1, frames=[big])))
    assert world.instances[1].connection == number, "a frame may pass the limit"
    world.disconnect(6)
    effects = core.packet(number, Packet(2, frames=[frame(1, 6)]))
    assert any(isinstance(effect, EndConnection) and "without credit" in effect.reason for effect in effects)


def test_hello_of_another_topology_or_protocol_is_rejected(world: StreamManagerHarness) -> None:
    core = world.cores[1]
    for hello in (InstanceHello(PROTOCOL_VERSION, "t-2", 1, 1, 1), InstanceHello(99, TOPOLOGY_ID, 1, 1, 1)):
        effects = core.handle(ConnectionOpened(77, hello))
        assert [type(effect) for effect in effects] == [SendMessage, EndConnection]
    effects = core.handle(ConnectionOpened(78, PeerHello(PROTOCOL_VERSION, "t-2", 2, 102, 1)))
    assert [type(effect) for effect in effects] == [SendMessage, EndConnection]


def test_older_peer_must_leave_and_newer_peer_waits_for_its_plan(world: StreamManagerHarness) -> None:
    core = world.cores[1]
    world.break_link(1, 2)
    effects = core.handle(ConnectionOpened(500, PeerHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 101, 1)))
    assert isinstance(effects[0], SendMessage)
    assert isinstance(effects[0].message, Leave)
    newer = PeerHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 555, 1)
    assert core.handle(ConnectionOpened(501, newer)) == []
    assert core.handle(DataStreamOpened(501)) == []
    assert not core.connections.peers[2].link.is_open
    effects = core.handle(PlanLoaded(make_plan(number=2, incarnations={2: 555}, **MARKS), 1))
    assert core.connections.peers[2].link.is_open
    assert any(isinstance(e, SendMessage) and isinstance(e.message, CauseSet) for e in effects)
    core.check()


def test_highest_epoch_wins() -> None:
    core = StreamManager(TOPOLOGY_ID, StreamManagerInfo(1, "h", 1, 101), {}, 0)
    core.handle(PlanLoaded(make_plan(number=5, epoch=2), 2))
    core.handle(PlanLoaded(make_plan(number=9, epoch=1), 1))
    assert str(core.version) == "2.5"
    core.handle(PlanLoaded(make_plan(number=4, epoch=2), 2))
    assert str(core.version) == "2.5"
    effects = core.handle(MasterMessage(PlanUpdate(make_plan(number=9, epoch=1), 1)))
    assert [type(effect) for effect in effects] == [LeaveMaster]
    assert core.handle(MasterMessage(HeartbeatReply(3))) == [EpochRaised(3)]
    assert core.handle(PlanLoaded(make_plan(number=6, epoch=2), 2)) == []
    assert str(core.version) == "2.5", "a plan of a deposed master is refused once a newer epoch was heard"
    core.handle(PlanLoaded(make_plan(number=1, epoch=3), 3))
    assert str(core.version) == "3.1"
    assert [type(e) for e in core.handle(MasterMessage(Leave("replaced", 3)))] == [StopReplaced]


def test_heartbeats_list_instances_and_changes_are_sent_at_once(world: StreamManagerHarness) -> None:
    world.tell(1, MasterConnected())
    register = world.to_master[-1]
    assert isinstance(register, Register)
    assert [(i.task, i.component) for i in register.instances] == [(1, "word"), (2, "split"), (3, "sink")]
    world.tick(1000)
    assert isinstance(world.to_master[-1], Heartbeat)
    count = len(world.to_master)
    world.tick(100)
    assert len(world.to_master) == count, "once a second"
    world.disconnect(2)
    assert [i.task for i in world.to_master[-1].instances] == [1, 3], "a change is told at once"


def test_partition_pauses_spouts_after_the_lease_until_the_master_replies(
    world: StreamManagerHarness,
) -> None:
    world.break_link(1, 2)
    world.break_link(1, 3)
    for _ in range(31):
        world.now_ms += 1000
        world.tell(1, Tick(world.now_ms))
    paused = world.instances[1].paused
    assert paused is not None
    assert paused.paused
    assert [(c.kind, c.peer) for c in paused.causes] == [(CauseKind.LINK, 0)]
    world.tell(1, MasterMessage(HeartbeatReply(1)))
    world.tick(100)
    assert world.instances[1].paused == Pause(False, ())


def test_moved_task_receives_queued_frames_and_failed_roots(world: StreamManagerHarness) -> None:
    world.disconnect(6)
    world.break_link(1, 2)
    root = world.open_root(1, [1, 2])
    roots = column([root])
    world.send(1, [frame(1, 6, b"moves"), frame(1, 4, b"tracked", roots=roots, keys=column([1])), frame(1, 4, b"not")])
    places = {1: {**PLACES[1], 6: "split"}, 2: {5: "word"}, 3: PLACES[3]}
    plan = make_plan(places, number=2, **MARKS)
    world.plan = plan
    core = world.cores[1]
    world.tell(1, PlanLoaded(plan, 1))
    world.connect(6)
    world.settle()
    assert world.take(6) == frame(1, 6, b"moves")
    assert world.instances[1].verdicts == [(root, FailKind.MOVED)]
    assert core.forwarder.moved_tuples == 1
    assert core.forwarder.moved_frames == 2


def test_frames_of_a_peer_for_a_moved_task_are_failed(world: StreamManagerHarness) -> None:
    """The source also follows the newer plan, and its later frames would arrive first."""
    world.disconnect(6)
    root = world.open_root(1, [1])
    tracked = frame(1, 6, b"tracked", roots=column([root]), keys=column([1]))
    world.send(1, [frame(1, 6, b"older"), tracked])
    world.send(5, [frame(5, 6, b"near")])
    world.settle()
    world.plan = plan = make_plan({1: PLACES[1], 2: {4: "count", 5: "word"}, 3: {**PLACES[3], 6: "split"}}, 2, **MARKS)
    for container in (1, 3, 2):
        world.tell(container, PlanLoaded(plan, 1))
        if container == 3:
            world.connect(6)
            world.settle()  # the new grants are known
            world.send(1, [frame(1, 6, b"newer")])
    world.settle()
    assert [world.take(6) for _ in range(2)] == [frame(1, 6, b"newer"), frame(5, 6, b"near")]
    assert world.take(6) is None
    assert world.instances[1].verdicts == [(root, FailKind.MOVED)]
    assert (world.cores[2].forwarder.moved_frames, world.cores[2].forwarder.moved_tuples) == (2, 1)


def test_verdicts_for_a_moved_spout_are_dropped(world: StreamManagerHarness) -> None:
    root = world.open_root(1, [7])
    world.disconnect(1)
    world.send(2, acks=[Ack(1, column([root]), column([7]))])
    link = world.cores[1].connections.instance(1).link
    assert link.settlements
    world.plan = plan = make_plan({1: {2: "split", 3: "sink"}, 2: {1: "word", **PLACES[2]}, 3: PLACES[3]}, 2, **MARKS)
    world.tell(1, PlanLoaded(plan, 1))
    assert not link.settlements


def test_order_is_kept_per_source_and_destination(world: StreamManagerHarness) -> None:
    for number in range(50):
        world.send(1, [frame(1, 2, b"%d" % number), frame(1, 6, b"%d" % number)])
        if number % 7 == 0:
            world.settle()
    world.settle()
    for task in (2, 6):
        got = []
        while (taken := world.take(task)) is not None:
            got.append(int(taken.values))
            world.settle()
        assert got == list(range(50))


def test_counters_agree_between_containers(world: StreamManagerHarness) -> None:
    world.send(1, [frame(1, 2, count=10), frame(1, 6, count=20)])
    world.settle()
    counted = world.cores[1].totals()
    assert counted["__server/__tuples_from_workers/container_1_word_1"] == 30
    assert counted["__server/__tuples_to_workers/container_1_split_2"] == 10
    assert counted["__server/__tuples_to_stmgrs/stream_manager-2"] == 20
    assert world.cores[2].totals()["__server/__tuples_from_stmgrs/stream_manager-1"] == 20
    assert world.cores[1].gauges()["__peers_connected"] == 2
    assert np.isfinite(list(counted.values())).all()


def test_every_counter_is_registered(world: StreamManagerHarness) -> None:
    world.send(1, [frame(1, 6)])
    while world.pump(1):
        pass
    world.break_link(1, 2)
    for name in [*world.cores[1].totals(), *world.cores[1].gauges()]:
        assert split_name(name).metric is not None, name


def test_verdicts_of_a_dead_process_do_not_ack_roots_of_the_next(world: StreamManagerHarness) -> None:
    """Its verdicts wait, and the next process uses equal roots because the 16 visible incarnation bits agree."""
    root = world.open_root(1, [5])
    world.send(2, acks=[Ack(1, column([root]), column([5]))])
    world.disconnect(1)
    world.connect(1, incarnation=world.instances[1].incarnation + (1 << 16))
    assert world.open_root(1, [9]) == root
    world.settle()
    assert world.instances[1].verdicts == []
    world.send(2, acks=[Ack(1, column([root]), column([9]))])
    world.settle()
    assert world.instances[1].verdicts == [(root, None)]


def test_older_process_of_a_task_is_told_to_leave(world: StreamManagerHarness) -> None:
    core, current = world.cores[1], world.instances[2].connection
    older = InstanceHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 0, 77)
    effects = core.handle(ConnectionOpened(999, older))
    assert [type(effect) for effect in effects] == [SendMessage, EndConnection]
    assert isinstance(effects[0], SendMessage)
    assert isinstance(effects[0].message, Leave)
    assert core.connections.instances[2].connection == current

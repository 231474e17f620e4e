"""Stream manager core: messages, their order, connections, leases and rejected input."""

from __future__ import annotations

from typing import Any

import pytest

from heron_runtime.model.dataflow import Cause, CauseKind, FailKind
from heron_runtime.model.ids import PROTOCOL_VERSION, root_base
from heron_runtime.model.metrics import split_name
from heron_runtime.model.plan import StreamManagerInfo
from heron_runtime.model.settings import Keys
from heron_runtime.wire.control import (
    CauseChange,
    CauseSet,
    Credit,
    InstanceHello,
    Leave,
    Pause,
    PeerCredit,
    PeerHello,
    PlanUpdate,
    StreamManagerHello,
    TaskCredit,
    TaskWeights,
)
from heron_runtime.wire.data import Ack, Fail, Init, Packet
from heron_runtime.wire.master import Heartbeat, HeartbeatReply, Register
from stream_manager.core.ack_tracker import MAX_LIVE
from stream_manager.core.backpressure import BackpressureCauses
from stream_manager.core.events import (
    ConnectionEnded,
    ConnectionOpened,
    ControlReceived,
    DataStreamOpened,
    EndConnection,
    EpochRaised,
    LeaveMaster,
    MasterConnected,
    MasterMessage,
    PlanAccepted,
    PlanLoaded,
    SendMessage,
    SendToMaster,
    StopReplaced,
    Tick,
)
from stream_manager.core.links import Link
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


def test_rejected_hello_is_answered_before_its_connection_ends(world: StreamManagerHarness) -> None:
    core, current = world.cores[1], world.instances[2].connection
    for hello, what in (
        (InstanceHello(PROTOCOL_VERSION, "t-2", 1, 1, 1), None),
        (InstanceHello(99, TOPOLOGY_ID, 1, 1, 1), None),
        (PeerHello(PROTOCOL_VERSION, "t-2", 2, 102, 1), None),
        (InstanceHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 0, 77), Leave),  # an older process of the task
    ):
        first, second = core.handle(ConnectionOpened(77, hello))
        assert isinstance(first, SendMessage)
        assert isinstance(second, EndConnection)
        assert what is None or isinstance(first.message, what)
    assert core.connections.instances[2].connection == current


@pytest.mark.parametrize(("pid", "leaves"), [(1001, False), (7, True), (4242, True)])
def test_newer_hello_replaces_the_older_process(world: StreamManagerHarness, pid: int, leaves: bool) -> None:
    """A process that reconnects after an unnoticed break is not told to leave for its own sake."""
    core, old = world.cores[1], world.instances[2].connection
    assert old is not None
    effects = core.handle(ConnectionOpened(999, InstanceHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 1 + leaves, pid)))
    told = [x.connection for x in effects if isinstance(x, SendMessage) and isinstance(x.message, Leave)]
    assert told == ([old] if leaves else [])
    assert [x.connection for x in effects if isinstance(x, EndConnection)] == [old]
    assert core.handle(ConnectionEnded(old)) == [], "what comes of the old connection changes nothing"
    assert core.connections.instances[2].connection == 999


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
    """It may come from a plan, a heartbeat or a peer. Plans and messages of a lower epoch are rejected."""
    core = StreamManager(TOPOLOGY_ID, StreamManagerInfo(1, "h", 1, 101), {}, 0)

    def load(epoch: int, number: int) -> tuple[str, list[type]]:
        effects = core.handle(PlanLoaded(make_plan(number=number, epoch=epoch), epoch))
        return str(core.version), [type(effect) for effect in effects]

    assert load(2, 5) == ("2.5", [EpochRaised, PlanAccepted])
    assert load(1, 9) == load(2, 4) == ("2.5", [])
    assert core.handle(MasterMessage(PlanUpdate(make_plan(number=5, epoch=2), 3))) == [EpochRaised(3)]
    assert core.handle(MasterMessage(HeartbeatReply(4))) == [EpochRaised(4)]
    assert core.handle(MasterMessage(HeartbeatReply(4))) == []
    assert EpochRaised(5) in core.handle(ConnectionOpened(1, PeerHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 102, 5)))
    assert load(2, 6) == ("2.5", []), "a plan of a deposed master is refused once a newer epoch was heard"
    for lower in (Leave("go", 4), Leave("go"), HeartbeatReply(4), PlanUpdate(make_plan(number=9, epoch=4), 4)):
        assert [type(effect) for effect in core.handle(MasterMessage(lower))] == [LeaveMaster]
    assert load(5, 1)[0] == "5.1"
    assert [type(effect) for effect in core.handle(MasterMessage(Leave("go", 5)))] == [StopReplaced]


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


def test_partition_pauses_spouts_after_the_lease_until_the_master_replies(world: StreamManagerHarness) -> None:
    alone = StreamManagerHarness(make_plan({1: PLACES[1]}))
    alone.start()
    world.break_link(1, 2)
    world.break_link(1, 3)
    for _ in range(31):
        alone.tick(1000)
        world.tick(1000)
    paused = world.instances[1].paused
    assert paused is not None
    assert paused.paused
    assert [(c.kind, c.peer) for c in paused.causes] == [(CauseKind.LINK, 0)]
    assert not alone.cores[1].instances.has_paused_spouts(), "a single stream manager has no partition"
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


@pytest.mark.parametrize(("container", "called"), [(1, (2, 3)), (2, (3,)), (3, ())])
def test_stream_manager_of_the_lower_container_opens_the_connection(container: int, called: tuple[int, ...]) -> None:
    plan = make_plan()
    accepted = StreamManagerHarness(plan).cores[container].handle(PlanLoaded(plan, 1))
    assert [effect.call for effect in accepted if isinstance(effect, PlanAccepted)] == [called]


def test_peer_that_is_not_in_the_plan_has_no_credit(world: StreamManagerHarness) -> None:
    """The peer is newer than the planned one and must wait for its plan before it may send."""
    world.tell(1, PlanLoaded(make_plan(number=2, incarnations={2: 50}), 1))
    peer = world.cores[1].connections.peers[2]
    assert peer.connection is not None
    assert not peer.accepted
    world.act(1, world.cores[1].packet(peer.connection, Packet(1, frames=[frame(5, 2)])))
    assert world.ended[-1] == "container 2: frames for task 2 without credit"


@pytest.mark.parametrize("to", [1, 3])
def test_frames_waiting_for_a_moved_task_follow_it(world: StreamManagerHarness, to: int) -> None:
    core = world.cores[3]
    world.break_link(2, 3)
    world.send(7, [frame(7, 6, bytes(100))] * 2)
    places = {1: dict(PLACES[1]), 2: {4: "count", 5: "word"}, 3: dict(PLACES[3])}
    places[to][6] = "split"
    world.tell(3, PlanLoaded(make_plan(places, number=2), 1))
    link = core.connections.peers[to].link if to == 1 else core.connections.instances[6].link
    assert len(link.destinations[6].frames) == 2
    assert core.forwarder.moved_frames == 0


def test_credit_for_a_stalled_queue_makes_the_link_the_cause() -> None:
    """Frames that wait for credit are charged to the remote task; once sendable, they are charged to the link."""
    plan = make_plan(topology__backpressure__high__watermark__bytes=2_000)
    world = StreamManagerHarness(plan)
    core, number = world.cores[1], world.connection(1, 2)
    world.tell(1, PlanLoaded(plan, 1))
    for event in (ConnectionOpened(number, world.cores[2].peer_hello()), DataStreamOpened(number)):
        world.tell(1, event)
    world.connect(1)
    world.send(1, [frame(1, 6, bytes(900))] * 3)
    link = Cause(CauseKind.LINK, "", 0, 1, 2)
    assert link not in core.causes.own
    world.tell(1, ControlReceived(number, PeerCredit((TaskCredit(6, 10_000),))))
    assert link in core.causes.own
    world.tell(1, PlanLoaded(make_plan({1: PLACES[1], 3: PLACES[3]}, number=2), 1))
    assert link not in core.causes.own, "there is no such link any more"


def test_end_is_a_violation_only_if_malformed(world: StreamManagerHarness) -> None:
    core = world.cores[1]
    world.disconnect(2)
    world.break_link(1, 2)
    assert core.violations == 0
    number = world.instances[1].connection
    assert number is not None
    core.handle(ConnectionEnded(number, True))
    assert core.violations == 1


def test_largest_frame_is_remembered(world: StreamManagerHarness) -> None:
    """The memory bound of the queues depends on it."""
    for size in (500, 1500, 20):
        world.send(1, [frame(1, 2, bytes(size))])
        world.settle()
    assert world.cores[1].forwarder.largest_frame == frame(1, 2, bytes(1500)).weight()


@pytest.mark.parametrize("weights", [(333,), (333, 20), (333, 20, 4_000), (333, 333)])
def test_peers_learn_each_new_tuple_weight_of_a_local_task(
    world: StreamManagerHarness, weights: tuple[int, ...]
) -> None:
    """A lower weight is sent as well, and each value only once."""
    number = world.instances[2].connection
    assert number is not None
    known = 0
    for weight in weights:
        effects = world.cores[1].handle(
            ControlReceived(number, Credit(world.instances[2].granted, tuple_weight=weight))
        )
        heard = {
            world.numbers[effect.connection][1]: {told.task: told.tuple_weight for told in effect.message.tasks}
            for effect in effects
            if isinstance(effect, SendMessage) and isinstance(effect.message, PeerCredit)
        }
        assert heard == ({} if weight == known else {2: {2: weight}, 3: {2: weight}})
        known = weight


def test_waiting_bytes_count_only_sendable_frames() -> None:
    link = Link(container=2)
    assert link.waiting_bytes() == 0
    link.push(frame(1, 6, bytes(100)), 164, None)
    assert link.waiting_bytes() == 0, "nobody is there"
    link.open()
    assert link.waiting_bytes() == 0, "there is no credit"
    link.grant(6, 1000)
    assert link.waiting_bytes() == 164


def started(places: dict[int, dict[int, str]] = PLACES) -> StreamManagerHarness:
    world = StreamManagerHarness(make_plan(places))
    world.start()
    return world


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

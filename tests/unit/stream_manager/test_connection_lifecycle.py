"""Start, replacement and end of connections: messages sent, and queued data that is kept."""

from __future__ import annotations

import pytest

from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.wire.control import Credit, InstanceHello, Leave, PeerCredit, TaskCredit
from heron_runtime.wire.data import Packet
from stream_manager.core.events import (
    ConnectionEnded,
    ConnectionOpened,
    ControlReceived,
    DataStreamOpened,
    PlanAccepted,
    PlanLoaded,
    SendMessage,
)
from stream_manager.core.links import Link
from tests.support.harness.stream_managers import PLACES, TOPOLOGY_ID, StreamManagerHarness, frame, make_plan


@pytest.fixture
def world() -> StreamManagerHarness:
    found = StreamManagerHarness(make_plan())
    found.start()
    return found


@pytest.mark.parametrize(("pid", "leaves"), [(1001, False), (7, True), (4242, True)])
def test_only_another_process_is_told_to_leave(world: StreamManagerHarness, pid: int, leaves: bool) -> None:
    """A process that reconnects after an unnoticed break is not told to leave for its own sake."""
    old = world.instances[2].connection
    hello = InstanceHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 1 + leaves, pid)
    effects = world.cores[1].handle(ConnectionOpened(999, hello))
    told = [x.connection for x in effects if isinstance(x, SendMessage) and isinstance(x.message, Leave)]
    assert told == ([old] if leaves else [])


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

"""Totals and gauges of a stream manager, compared with scripted traffic."""

from __future__ import annotations

import pytest

from heron_runtime.model.dataflow import SECOND_BYTES, Cause, CauseKind
from heron_runtime.wire.control import Credit
from heron_runtime.wire.data import Ack, Fail
from stream_manager.core.events import ControlReceived, PlanLoaded
from stream_manager.core.plan import PlanRoutes
from tests.support.harness.stream_managers import PLACES, StreamManagerHarness, column, failed, frame, make_plan

HERE, THERE, PEER = "container_1_word_1", "container_1_split_2", "stream_manager-2"


def of(world: StreamManagerHarness, container: int, way: str, name: str) -> dict[str, float]:
    """Return the counts of one neighbour and direction, without the common parts of the names."""
    totals = world.cores[container].totals()
    return {
        what: totals[f"__server/__{what}_{way}/{name}"]
        for what in ("tuples", "ack_tuples", "fail_tuples", "bytes", "packets", "frames")
    }


def counts(
    packets: float, frames: float = 0, tuples: float = 0, size: float = 0, acks: float = 0, fails: float = 0
) -> dict[str, float]:
    return {
        "tuples": tuples, "ack_tuples": acks, "fail_tuples": fails, "bytes": size, "packets": packets,
        "frames": frames,
    }  # fmt: skip


def test_idle_stream_manager_has_zero_counts() -> None:
    core = StreamManagerHarness(make_plan()).cores[1]
    assert set(core.totals().values()) == {0.0}
    assert set(core.gauges().values()) == {0.0}
    assert core.is_idle()
    assert not core.is_linked(), "there is no plan"


def test_each_packet_is_counted_once_in_each_direction() -> None:
    world = StreamManagerHarness(make_plan())
    world.start()
    done, bad, lost = (world.open_root(1, [11]) for _ in range(3))
    near, far = frame(1, 2, bytes(100), count=10), frame(1, 6, bytes(300), count=20)
    world.send(1, [near, far])
    world.send(2, fails=[Fail(1, column([bad]), failed())])
    world.send(2, acks=[Ack(1, column([bad, bad]), column([11, 12]))])  # too late
    world.send(4, acks=[Ack(1, column([done]), column([11]))])  # at the peer
    world.settle()
    assert of(world, 1, "from_workers", HERE) == counts(4, 2, 30, near.size_bytes() + far.size_bytes())
    assert of(world, 1, "from_workers", THERE) == counts(2, acks=2, fails=1)
    assert of(world, 1, "to_workers", THERE) == counts(1, 1, 10, near.size_bytes())
    assert of(world, 1, "to_stmgrs", PEER) == counts(1, 1, 20, far.size_bytes())
    assert of(world, 2, "from_stmgrs", "stream_manager-1") == counts(1, 1, 20, far.size_bytes())
    assert of(world, 2, "to_stmgrs", "stream_manager-1") == counts(1, acks=1)
    assert of(world, 1, "from_stmgrs", PEER) == counts(1, acks=1)
    assert of(world, 2, "from_workers", "container_2_count_4") == counts(1, acks=1)
    for _ in range(60):
        world.tick(1000)
    world.settle()
    totals = world.cores[1].totals()
    names = ("opened", "completed", "failed", "expired")
    assert [totals[f"__roots_{name}"] for name in names] == [3, 1, 2, 1], "what expires has failed"
    assert totals["__late_acks"] == 2
    assert [root for root, _ in world.instances[1].verdicts] == [bad, done, lost]
    assert totals["__protocol_violations"] == totals["__sequence_faults"] == totals["__dropped_frames"] == 0


def test_gauges_show_connections_and_queues() -> None:
    world = StreamManagerHarness(make_plan())
    world.start()
    core, split = world.cores[1], world.instances[2]
    assert split.connection is not None
    world.tell(1, ControlReceived(split.connection, Credit(split.granted, SECOND_BYTES // 4)))
    world.disconnect(2)
    world.break_link(1, 2)
    made = [frame(1, 2, bytes(50), count=3), frame(1, 2, bytes(70), count=5), frame(1, 6, bytes(90), count=2)]
    world.send(1, made)
    world.open_root(1, [1])
    world.settle()
    gauges = core.gauges()
    assert (gauges["__tracked_roots"], gauges["__plan_number"]) == (1, 1)
    assert (gauges["__peers_connected"], gauges["__instances_connected"]) == (1, 2)
    assert gauges[f"__connection_buffer_by_instanceid/{THERE}"] == made[0].size_bytes() + made[1].size_bytes()
    assert gauges[f"__connection_buffer_by_peer/{PEER}"] == made[2].size_bytes()
    assert gauges[f"__queue_seconds_by_instanceid/{THERE}"] == 8 / 4
    assert gauges[f"__connection_buffer_by_instanceid/{HERE}"] == 0
    assert not core.is_idle(), "a root is open"
    assert not core.is_linked()
    world.link(1, 2)
    world.settle()
    assert core.is_linked()
    assert core.gauges()["__peers_connected"] == 2


def test_sequence_faults_are_counted_apart_from_other_violations() -> None:
    world = StreamManagerHarness(make_plan())
    world.start()
    for task, sequence in ((2, 5), (3, 1)):
        world.instances[task].sequence = sequence - 1
        world.send(task, acks=[Ack(1, column([0]), column([1]))])
    totals = world.cores[1].totals()
    assert (totals["__sequence_faults"], totals["__protocol_violations"]) == (1, 2)


def task_cause(component: str, task: int, container: int = 1) -> Cause:
    return Cause(CauseKind.TASK, component, task, container)


def link_cause(peer: int) -> Cause:
    return Cause(CauseKind.LINK, "", 0, 1, peer)


def test_routes_locate_tasks_and_their_readers() -> None:
    routes = PlanRoutes(make_plan(), 1)
    assert (routes.local_tasks, routes.local_spouts, routes.peers) == ((1, 2, 3), (1,), (2, 3))
    assert [routes.readers(task) for task in (1, 5, 2, 7, 3, 4, 99)] == [(2, 6), (2, 6), (4, 8), (3,), (), (), ()]
    assert [routes.where[task] for task in (1, 4, 8)] == [1, 2, 3]
    assert [routes.instance_name(task) for task in (2, 8, 77)] == [THERE, "container_3_count_8", "task_77"]


@pytest.mark.parametrize(
    ("spout", "cause", "reaches"),
    [
        ("word", task_cause("split", 2), True),
        ("word", task_cause("count", 4), True),
        ("word", task_cause("sink", 3), False),
        ("other", task_cause("sink", 3), True),
        ("other", task_cause("count", 4), False),
        ("nobody", task_cause("count", 4), False),
        ("word", link_cause(2), True),  # split and count
        ("word", link_cause(3), True),  # count
        ("other", link_cause(1), True),  # sink
        ("other", link_cause(2), False),
        ("other", link_cause(9), False),
    ],
)
def test_spout_reaches_its_downstream_causes(spout: str, cause: Cause, reaches: bool) -> None:
    assert PlanRoutes(make_plan(), 1).reaches(spout, cause) is reaches


def test_totals_of_a_peer_do_not_fall_when_it_leaves_and_returns() -> None:
    world = StreamManagerHarness(make_plan())
    world.start()
    world.send(1, [frame(1, 6, bytes(300), count=20)])
    world.settle()
    world.send(1, [frame(1, 6, bytes(300), count=5)])  # sent, and lost with the link
    core = world.cores[1]
    core.connections.peer(2).link.next_packet()
    before = core.totals()
    core.handle(PlanLoaded(make_plan({1: PLACES[1], 3: PLACES[3]}, number=2), 1))
    core.handle(PlanLoaded(make_plan(number=3), 1))
    after = core.totals()
    about_peer = {name: total for name, total in before.items() if name.endswith(f"/{PEER}")}
    assert about_peer[f"__server/__tuples_to_stmgrs/{PEER}"] == 25
    assert all(after[name] >= total for name, total in about_peer.items())
    assert after[f"__server/__tuples_to_stmgrs_lost/{PEER}"] > 0

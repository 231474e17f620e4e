"""Two real stream managers across generations: links are replaced, queues dropped, and broken links reported."""

from __future__ import annotations

import asyncio

import pytest

from heron_runtime.model.checkpoints import CheckpointCommand, TaskReport
from heron_runtime.model.plan import Generation, GenerationMember, GenerationPhase, stream_manager_of, task_participant
from heron_runtime.wire.master import ParticipantReport
from tests.support.stream_manager_client import TestInstance
from tests.support.stream_manager_pair import StreamManagerPair, frame
from tests.support.waiting import wait_until_async

STALE = "__stale_generation/word/default"


def restoring(number: int) -> Generation:
    return Generation(number, GenerationPhase.RESTORING)


def running(cluster: StreamManagerPair, number: int) -> Generation:
    """Return the generation as the master announces it after all reports."""
    members = [GenerationMember(stream_manager_of(c), m.core.info.incarnation) for c, m in cluster.managers.items()]
    return Generation(
        number,
        GenerationPhase.RUNNING,
        members=(*members, *(GenerationMember(task_participant(task), 1) for task in range(1, 5))),
    )


async def in_generation(cluster: StreamManagerPair, task: int, number: int, window: int = 1 << 22) -> TestInstance:
    """Return an instance that has restored: its link carries frames of that generation, and its report names it."""
    instance = await cluster.instance(task, window=window, generation=number)
    await instance.control.write(TaskReport(number, restored=True))
    wanted = ParticipantReport(task_participant(task), 1, TaskReport(number, restored=True))
    container = instance.container
    await wait_until_async(lambda: wanted in cluster.master.beats[container].reports, "the report")
    return instance


async def test_new_generation_has_new_links(cluster: StreamManagerPair) -> None:
    await cluster.next_plan(restoring(1))
    await cluster.restored(1)
    spout, bolt = await in_generation(cluster, 1, 1), await in_generation(cluster, 4, 1, window=1000)
    await cluster.next_plan(running(cluster, 1))
    cluster.master.wish = CheckpointCommand(1, under=1)
    await wait_until_async(lambda: spout.wish == bolt.wish == cluster.master.wish, "the wish")
    await spout.send([frame(1, 4, b"first")])
    assert (await bolt.take()).values == b"first"
    for number in range(40):  # more than the bolt has granted credit for
        await spout.send([frame(1, 4, b"%100d" % number)])
    there = cluster.managers[2].core
    await wait_until_async(lambda: there.connections.instances[4].link.weight > 1000, "what waits for the bolt")
    old_link = cluster.managers[1].core.connections.peers[2].connection

    await cluster.next_plan(restoring(2))
    await cluster.restored(2)
    assert cluster.managers[1].core.connections.peers[2].connection != old_link
    assert there.totals()[STALE] > 0
    assert there.connections.instances[4].link.weight == 0
    # An instance of the older generation gets the plan, and its frames are dropped.
    await wait_until_async(lambda: spout.plan and spout.plan.generation.number == 2, "the plan")
    assert not spout.closed
    before = cluster.managers[1].core.totals().get(STALE, 0)
    await spout.send([frame(1, 4, b"late")])
    await wait_until_async(lambda: cluster.managers[1].core.totals().get(STALE, 0) == before + 1, "the late frame")
    await spout.close()
    await bolt.close()
    spout, bolt = await in_generation(cluster, 1, 2), await in_generation(cluster, 4, 2)
    assert spout.wish == cluster.master.wish, "told again after each hello"
    await cluster.next_plan(running(cluster, 2))
    await spout.send([frame(1, 4, b"second")])
    assert [(await bolt.take()).values] == [b"second"]
    assert not bolt.frames


async def test_links_are_retried_until_the_later_peer_has_the_plan(cluster: StreamManagerPair) -> None:
    for number, (early, late) in enumerate([(1, 2), (2, 1), (1, 2)], start=1):
        await cluster.next_plan(restoring(number), early)
        await wait_until_async(lambda: cluster.managers[early].core.generation.plan_generation == number, "the plan")  # noqa: B023
        await wait_until_async(lambda: not cluster.managers[late].core.is_linked(), "the end of the older link")  # noqa: B023
        assert cluster.managers[late].core.generation.plan_generation == number - 1
        await cluster.next_plan(restoring(number), late)
        await cluster.restored(number)
        assert not any(manager.core.generation.loss_reason for manager in cluster.managers.values())


async def test_broken_link_is_reported_and_not_replaced_within_its_generation(cluster: StreamManagerPair) -> None:
    await cluster.next_plan(restoring(1))
    await cluster.restored(1)
    spout = await in_generation(cluster, 1, 1)
    await cluster.next_plan(running(cluster, 1))
    first = cluster.managers[1]
    number = first.core.connections.peers[2].connection
    assert number is not None
    first.driver.connections[number].end("cut by the test")
    await wait_until_async(lambda: all(cluster.report(c).lost for c in (1, 2)), "the report of both")
    assert [cluster.report(c).restored for c in (1, 2)] == [False, False]
    # A late instance of the generation is refused; one that only listens is served.
    late = TestInstance(cluster.launch, 1, 2, generation=1)
    with pytest.raises(AssertionError):
        await late.connect()
    late.control.cancel()
    await cluster.instance(2)
    assert not any(manager.core.is_linked() for manager in cluster.managers.values())
    await cluster.next_plan(restoring(2))
    await cluster.restored(2)
    # The loss of an instance's link is reported as well.
    await spout.close()
    bolt = await in_generation(cluster, 4, 2)
    await bolt.close()
    await wait_until_async(lambda: "task 4" in cluster.report(2).lost, "the report")


async def test_restarted_stream_manager_joins_the_next_generation(cluster: StreamManagerPair) -> None:
    await cluster.next_plan(restoring(1))
    await cluster.restored(1)
    await cluster.next_plan(running(cluster, 1))
    await wait_until_async(lambda: all(m.core.version.number == 3 for m in cluster.managers.values()), "the plan")
    await cluster.managers.pop(1).stop()
    again = await cluster.start_manager(1)
    assert again.core.generation.plan_generation == 1
    await wait_until_async(lambda: cluster.report(1).lost and cluster.report(2).lost, "both reports")
    assert not again.core.is_linked()
    listens = await cluster.instance(1)
    assert listens.plan is not None
    await listens.send([frame(1, 2)])
    await wait_until_async(lambda: again.core.totals().get(STALE), "a frame that nobody carries")
    await cluster.next_plan(restoring(2))
    await cluster.restored(2)
    spout, bolt = await asyncio.gather(in_generation(cluster, 1, 2), in_generation(cluster, 4, 2))
    await spout.send([frame(1, 4, b"again")])
    assert (await bolt.take()).values == b"again"

"""Two real stream managers over real sockets, with stub instances and a stub master."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.model.plan import PlanVersion
from heron_runtime.net.frames import Tag
from heron_runtime.net.handshake import LinkRefused
from heron_runtime.net.identity import draw_key, identity_of, parse_identity
from heron_runtime.net.link import EOF
from heron_runtime.net.rpc import METRICS_SERVICE, PEER_SERVICE, make_channel, make_server
from heron_runtime.wire.control import InstanceHello, PeerHello
from heron_runtime.wire.data import Ack
from heron_runtime.wire.metrics import MetricsAck, ProcessMetrics, Reports
from stream_manager.shell.process import StreamManagerProcess
from tests.support.stream_manager_client import TestInstance, column, make_launch
from tests.support.stream_manager_pair import MARKS, TOPOLOGY_ID, StreamManagerPair, frame
from tests.support.waiting import wait_until_async


async def test_frames_go_in_both_directions_and_trees_complete(cluster: StreamManagerPair) -> None:
    spouts = {1: await cluster.instance(1), 3: await cluster.instance(3)}
    bolts = {2: await cluster.instance(2), 4: await cluster.instance(4)}
    wanted: dict[int, set[int]] = {1: set(), 3: set()}
    for task, spout in spouts.items():
        for number in range(100):
            keys = {2: 1000 + number, 4: 2000 + number}
            root, init = spout.open_root(list(keys.values()))
            wanted[task].add(root)
            frames = [
                frame(task, bolt, b"%d" % number, roots=column([root]), keys=column([key]))
                for bolt, key in keys.items()
            ]
            await spout.send(frames, inits=[init])
    for bolt in bolts.values():
        got: dict[int, list[int]] = {1: [], 3: []}
        for _ in range(200):
            taken = await bolt.take()
            got[taken.source_task].append(int(taken.values))
            await bolt.send(acks=[Ack(taken.source_task, taken.roots, taken.keys)])
        assert got == {1: list(range(100)), 3: list(range(100))}
    for task, spout in spouts.items():
        await wait_until_async(partial(lambda verdicts: len(verdicts) == 100, spout.verdicts), "verdicts")
        assert spout.verdicts == dict.fromkeys(wanted[task])


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tuple trees fail after a second; applied before ``cluster``, which creates the plan."""
    monkeypatch.setitem(MARKS, "topology.message.timeout.secs", 1)


async def test_acks_in_the_socket_are_read_before_roots_expire(one_second: None, cluster: StreamManagerPair) -> None:
    """The process is stopped shortly before an expiry, for longer than the timeout.

    Then its tick is late, and the ack is still in its socket, after more than one read of other data.
    """
    spout, bolt = await cluster.instance(1), await cluster.instance(2)
    tracker = cluster.managers[1].core.trackers._trackers[1]
    root, init = spout.open_root([7])
    await spout.send([frame(1, 2, roots=column([root]), keys=column([7]))], inits=[init])
    await wait_until_async(lambda: tracker.live and tracker._buckets[-1], "the root's last moments")
    late = column(list(range(1, 8001)))  # of unknown roots
    sent = asyncio.ensure_future(bolt.send(acks=[Ack(1, late, late), Ack(1, column([root]), column([7]))]))
    await asyncio.sleep(0)  # the kernel has it
    assert not spout.verdicts, "not read yet, nor expired"
    threading.Event().wait(2.5)  # blocks the loop, which also runs the stream manager
    await sent
    await wait_until_async(lambda: spout.verdicts, "the verdict")
    assert spout.verdicts == {root: None}, "acked"


async def test_broken_link_is_replaced_and_queued_frames_are_sent(cluster: StreamManagerPair) -> None:
    spout, bolt = await cluster.instance(1), await cluster.instance(4)
    await spout.send([frame(1, 4, b"before")])
    assert (await bolt.take()).values == b"before"
    first = cluster.managers[1]
    number = first.core.connections.peers[2].connection
    assert number is not None
    first.driver.connections[number].end("cut by the test")
    assert not first.core.is_linked()
    await spout.send([frame(1, 4, b"after")])
    assert (await bolt.take()).values == b"after"
    assert first.core.connections.peers[2].connection != number


async def test_restarted_stream_manager_is_linked_with_the_next_plan(cluster: StreamManagerPair) -> None:
    bolt = await cluster.instance(4)
    spout = await cluster.instance(1)
    await cluster.managers.pop(1).stop()
    await wait_until_async(lambda: spout.closed, "the end of the stream")
    await cluster.start_manager(1)
    await cluster.plan(2)
    again = await cluster.instance(1)
    assert again.manager is not None
    assert spout.manager is not None
    assert again.manager.incarnation > spout.manager.incarnation
    await again.send([frame(1, 4, b"hello again")])
    assert (await bolt.take()).values == b"hello again"


async def test_stream_manager_restarted_without_master_and_store_uses_its_last_plan(cluster: StreamManagerPair) -> None:
    await cluster.master.stop()
    await cluster.managers.pop(1).stop()
    manager = cluster.managers[1] = StreamManagerProcess(cluster.launch, 1)
    await manager.start()
    assert manager.core.version == PlanVersion(1, 1)
    spout, bolt = await cluster.instance(1), await cluster.instance(2)
    await spout.send([frame(1, 2, b"local")])
    assert (await bolt.take()).values == b"local"


async def test_credit_runs_out_and_returns_and_backpressure_starts_and_stops(cluster: StreamManagerPair) -> None:
    spout, other = await cluster.instance(1), await cluster.instance(3)
    bolt = await cluster.instance(4, window=100_000)
    size, number = 50_000, 0
    full, link = Cause(CauseKind.TASK, "count", 4, 2), Cause(CauseKind.LINK, "", 0, 1, 2)
    # The link between the two may also fill for a while, possibly first, if sending is faster than the socket.
    while not (other.pause and full in other.pause.causes):
        assert number < 400, "pressure never started"
        await spout.send([frame(1, 4, b"%6d" % number + bytes(size))])
        number += 1
        await asyncio.sleep(0.001)
    assert other.pause.paused
    assert set(other.pause.causes) <= {full, link}
    await wait_until_async(lambda: spout.pause and spout.pause.paused, "the pause of the spout that sends")
    # A spout that registers under backpressure starts paused.
    late = await cluster.instance(3, incarnation=2)
    await wait_until_async(lambda: late.pause and late.pause.paused, "a paused start")
    # A sender that ignores the pause runs out of upload credit, and memory stays bounded.
    while spout.sent < spout.limit:
        await spout.send([frame(1, 4, b"%6d" % number + bytes(size))])
        number += 1
        assert number < 1000, "credit never ran out"
        await asyncio.sleep(0.001)
    for manager in cluster.managers.values():
        manager.core.check()
    for expected in range(number):
        assert int((await bolt.take()).values[:6]) == expected
    await wait_until_async(lambda: not spout.pause.paused and not late.pause.paused, "the end of the pressure")  # type: ignore[union-attr]
    await wait_until_async(lambda: spout.sent < spout.limit, "credit")
    await wait_until_async(lambda: cluster.master.beats[2].causes == (), "a heartbeat without causes")


async def test_malformed_or_unauthenticated_input_ends_only_its_own_stream(cluster: StreamManagerPair) -> None:
    manager = cluster.managers[1]
    spout, bolt = await cluster.instance(1), await cluster.instance(2)
    before = manager.core.violations
    # Two authenticated peers: one sends the hello of another, one opens its data stream without a hello.
    liar = await TestInstance(cluster.launch, 1, 1).open(Tag.CONTROL)
    await liar.write(InstanceHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 1, 1))
    with pytest.raises(LinkRefused, match="hello of task 2 on a stream of task 1"):
        await liar.read()
    hasty = await TestInstance(cluster.launch, 1, 2, incarnation=9).open(Tag.DATA)
    with pytest.raises(LinkRefused, match="a hello on a control stream is required first"):
        await hasty.read()
    garbled = await TestInstance(cluster.launch, 1, 2).open(Tag.CONTROL)
    garbled.say(Tag.CONTROL, b"\xff\xff\xff")
    assert await garbled.read() is EOF
    for stream in (liar, hasty, garbled):
        stream.cancel()
    assert not bolt.closed
    bad = await cluster.instance(2, incarnation=2)
    await wait_until_async(lambda: bolt.closed, "the replacement")
    # A packet of an instance whose columns are wrong.
    await bad.send(acks=[Ack(1, b"12345678", b"1234")])
    await wait_until_async(lambda: bad.closed, "the end of the stream")
    assert manager.core.violations == before + 1
    # A peer without the key, and one of another topology.
    address, identity = f"127.0.0.1:{manager.core.info.port}", identity_of(cluster.launch)
    async with make_channel(address, parse_identity(draw_key(), TOPOLOGY_ID)) as channel:
        stranger = PEER_SERVICE.call(channel, "Control")(metadata=identity.metadata())
        assert await stranger.code() is grpc.StatusCode.UNAVAILABLE
    async with make_channel(address, identity) as channel:
        lost = PEER_SERVICE.call(channel, "Control")(metadata=replace(identity, topology_id="other").metadata())
        assert await lost.code() is grpc.StatusCode.FAILED_PRECONDITION
        older = PEER_SERVICE.call(channel, "Control")(metadata=identity.metadata())
        await older.write(PeerHello(PROTOCOL_VERSION, TOPOLOGY_ID, 2, 1, 1))
        heard = [type(message).__name__ async for message in older]
        assert heard == ["PeerHello", "Leave"]
    good = await cluster.instance(2, incarnation=3)
    await spout.send([frame(1, 2, b"still here")])
    assert (await good.take()).values == b"still here"


async def test_reports_of_instances_go_to_the_metrics_manager_in_one_message(cluster: StreamManagerPair) -> None:
    heard: list[Reports] = []

    async def publish(reports: Reports, _: Any) -> MetricsAck:
        heard.append(reports)
        return MetricsAck()

    manager = cluster.managers[1]
    handler = METRICS_SERVICE.handler(Publish=publish)
    server, _ = make_server(identity_of(cluster.launch), cluster.launch.metrics_manager_socket(1), [handler])
    await server.start()
    spout, bolt = await cluster.instance(1), await cluster.instance(2)
    reports = {task: ProcessMetrics("c", f"container_1_c_{task}", 1, task, 1, 0.0, {"n": task}) for task in (1, 2)}
    await spout.control.write(reports[1])
    await bolt.control.write(reports[2])

    def of(task: int, received: list[Reports]) -> list[ProcessMetrics]:
        return [report for message in received for report in message.processes if report.task == task]

    await wait_until_async(lambda: of(1, heard) and of(2, heard), "both reports")
    assert all(message.processes[0].component == "__stmgr__" for message in heard), "its own goes with each"
    assert of(1, heard) == [reports[1]], "handed on once"
    assert of(2, heard) == [reports[2]]
    # The last report of an instance is accepted, although its stream manager is stopped at the same moment.
    stopping = asyncio.ensure_future(manager.stop())
    last = ProcessMetrics("c", "container_1_c_1", 1, 1, 1, 1.0, {"n": 9.0})
    await spout.control.write(last)
    for instance in (spout, bolt):
        await instance.data.done_writing()
    await stopping
    assert of(1, heard)[-1] == last
    del cluster.managers[1]
    await server.stop(0)


async def test_process_starts_sends_heartbeats_and_stops(tmp_path: Path) -> None:
    launch = make_launch(tmp_path / "h", TOPOLOGY_ID)
    launch.save(tmp_path / "launch.json")
    reading, writing = os.pipe()
    arguments = ["--launch", str(tmp_path / "launch.json"), "--container", "1", "--lifeline", str(reading)]
    for way in ("signal", "lifeline"):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stream_manager", *arguments, pass_fds=[reading], stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        text = b""
        while b"listening on" not in text:
            line = await asyncio.wait_for(process.stderr.readline(), 30)
            assert line, text.decode()
            text += line
        instance = await TestInstance(launch, 1, 1).connect()
        assert instance.manager is not None
        if way == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            os.close(writing)
        rest = await asyncio.wait_for(process.stderr.read(), 30)
        assert await process.wait() == (0 if way == "signal" else 120), rest.decode()
        await instance.close()
    os.close(reading)

"""Gateway and a scripted stream manager: credit, order of sending and reading, and links across generations."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heron_instance.core.outbox import Flush
from heron_instance.shell import gateway as gateway_module
from heron_instance.shell.gateway import Gateway, LinkSetup
from heron_instance.shell.inbox import Inbox, LeaveRequested, Linked, StreamManagerLinked, Unlinked
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.net.frames import Tag
from heron_runtime.net.link import EOF
from heron_runtime.wire.control import Credit, InstanceHello, Leave, StreamManagerHello
from heron_runtime.wire.data import Frame, Packet, Verdict
from heron_runtime.wire.metrics import ProcessMetrics

PATIENCE_SECONDS = 60.0
REPORT = ProcessMetrics("s", "container_1_s_1", 1, 1, 3, 0.0)


class Stream:
    """Gateway's end of a stream. While ``holds`` is unset, a write waits."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.holds = asyncio.Event()
        self.holds.set()

    async def read(self) -> Any:
        return await self.heard.get()

    async def write(self, message: Any) -> None:
        self.said.put_nowait(message)
        await self.holds.wait()

    async def done_writing(self) -> None:
        self.heard.put_nowait(EOF)

    def cancel(self) -> None:
        pass

    async def until(self, kind: type) -> Any:
        """Return the next message of this kind."""
        while not isinstance(message := await self.said.get(), kind):
            pass
        return message


class Links:
    """Pairs of streams. While ``gate`` is unset, connections wait."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[Stream] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_gate = 0  # number of requested connections
        self.control_streams = 0
        self.greeting: Any = StreamManagerHello(PROTOCOL_VERSION, "t-1", 1, 7)

    async def connect(self, path: str, secret: str, kind: Tag, *rest: Any) -> Stream:
        self.at_gate += 1
        await self.gate.wait()
        stream = Stream()
        if kind == Tag.CONTROL:
            self.control_streams += 1
            stream.heard.put_nowait(self.greeting)
        self.opened.put_nowait(stream)
        return stream

    async def pair(self, *control: Any) -> tuple[Stream, Stream, int]:
        """Return the next link and the generation of its hello; ``control`` follows before the data stream opens."""
        first = await self.opened.get()
        for message in control:
            first.heard.put_nowait(message)
        hello = await first.said.get()
        assert isinstance(hello, InstanceHello)
        return first, await self.opened.get(), hello.generation


def flush(frames: int, values: bytes) -> Flush:
    return Flush(frames=[Frame(1, 0, 2, 1, 1, 0, values) for _ in range(frames)])


Play = Callable[[Callable[[Gateway, Links, Inbox], Any]], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return a function that runs a script with a gateway."""
    launch = Launch("local", "me", "d", "t", "t-1", f"files://{tmp_path}/state", str(tmp_path), str(tmp_path))

    async def run(script: Callable[[Gateway, Links, Inbox], Any]) -> None:
        links, inbox = Links(), Inbox()
        monkeypatch.setattr(gateway_module, "connect", links.connect)
        monkeypatch.setattr(gateway_module, "CLOSE_SECONDS", 0.0)
        gateway = Gateway(LinkSetup(launch, 1, 1, 3, lambda name, n: None, "s3cret"), inbox)
        task = asyncio.get_running_loop().create_task(gateway.run(lambda: REPORT))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await script(gateway, links, inbox)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return lambda script: asyncio.run(run(script))


async def told(inbox: Inbox, *kinds: type) -> list[Any]:
    """Return the inbox items of these kinds once there is at least one."""
    while True:
        found = [item for item in inbox.take(0) if isinstance(item, kinds)]
        if found:
            return found
        await asyncio.sleep(0.01)


def test_each_hello_resets_the_credit(play: Play) -> None:
    async def script(gateway: Gateway, links: Links, _: Inbox) -> None:
        gateway.post([flush(1, bytes(100))])
        _, data, _ = await links.pair(Credit(1 << 30))
        assert len((await data.said.get()).frames) == 1
        data.heard.put_nowait(EOF)
        control, data, _ = await links.pair()
        gateway.post([flush(5, bytes(100))])
        control.heard.put_nowait(Credit(1))
        assert len((await data.said.get()).frames) == 1, "one frame oversteps a limit of one byte, and no more go"

    play(script)


def test_backlog_is_sent_before_verdicts_are_read(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(gateway: Gateway, links: Links, inbox: Inbox) -> None:
        sent_before: list[bool] = []
        put = inbox.put

        def look(item: Any) -> None:
            if isinstance(item, Packet):
                sent_before.append(gateway._outgoing.empty())
            put(item)

        monkeypatch.setattr(inbox, "put", look)
        gateway.post([flush(64, bytes(64 * 1024))])
        _, data, _ = await links.pair(Credit(1 << 30))
        data.holds.clear()
        data.heard.put_nowait(Packet(1, verdicts=[Verdict(1, b"")]))
        await data.said.get()
        for _ in range(20):  # time for the gateway to read
            await asyncio.sleep(0)
        data.holds.set()
        while not sent_before:
            await asyncio.sleep(0.01)
        assert sent_before == [True]

    play(script)


def test_link_belongs_to_the_joined_generation(play: Play) -> None:
    async def script(gateway: Gateway, links: Links, inbox: Inbox) -> None:
        _, _, first = await links.pair()
        assert first == 0
        await told(inbox, StreamManagerLinked)
        gateway.join(3)
        _, data, second = await links.pair()
        assert second == 3
        assert await told(inbox, Linked, Unlinked) == [Linked(3)]
        data.heard.put_nowait(EOF)
        assert await told(inbox, Linked, Unlinked) == [Unlinked(3)]
        _, _, third = await links.pair()
        assert third == 0, "it is not opened again"

    play(script)


def test_join_during_a_connect_adopts_that_link(play: Play) -> None:
    async def script(gateway: Gateway, links: Links, inbox: Inbox) -> None:
        links.gate.clear()
        while not links.at_gate:
            await asyncio.sleep(0)
        gateway.join(3)  # the loop runs this before it opens the gated connection
        links.gate.set()
        control, _, generation = await links.pair()
        assert generation == 3
        assert await told(inbox, Linked, Unlinked) == [Linked(3)]
        gateway.report_task(TaskReport(3, restored=True))
        assert await control.until(TaskReport) == TaskReport(3, restored=True), "and it stays"
        assert links.control_streams == 1
        assert not [item for item in inbox.take(0) if isinstance(item, Unlinked)]

    play(script)


def test_leaving_discards_waiting_data_without_notice(play: Play) -> None:
    async def script(gateway: Gateway, links: Links, inbox: Inbox) -> None:
        await links.pair()
        gateway.join(3)
        await links.pair()
        await told(inbox, Linked)
        gateway.post([flush(1, b"old")])  # no credit, so it waits
        gateway.report_task(TaskReport(3, restored=True))
        await asyncio.to_thread(gateway.leave_generation)
        assert not [item for item in inbox.take(0) if isinstance(item, Unlinked)]
        _, _, between = await links.pair()
        assert between == 0
        gateway.report_task(TaskReport(4))
        gateway.join(4)
        control, data, generation = await links.pair()
        assert generation == 4
        assert await control.until(TaskReport) == TaskReport(4)
        control.heard.put_nowait(Credit(1 << 20))
        gateway.post([flush(1, b"new")])
        assert [frame.values for frame in (await data.said.get()).frames] == [b"new"]

    play(script)


@pytest.mark.parametrize("waits", [True, False], ids=["meanwhile", "before"])
def test_leaving_a_generation_returns_if_the_gateway_must_leave(waits: bool, play: Play) -> None:
    """The executor thread then finds ``LeaveRequested`` in the inbox, and the process exits as replaced."""
    gateways: list[Gateway] = []
    leaving = threading.Thread(target=lambda: gateways[0].leave_generation())

    async def script(gateway: Gateway, links: Links, inbox: Inbox) -> None:
        gateways.append(gateway)
        links.gate.clear()
        links.greeting = Leave("another process has its place")
        while not links.at_gate:
            await asyncio.sleep(0)
        if waits:
            leaving.start()
        links.gate.set()
        assert await told(inbox, LeaveRequested)

    play(script)
    if not waits:
        leaving.start()
    leaving.join(PATIENCE_SECONDS)
    assert not leaving.is_alive()
    gateways[0].join(4)

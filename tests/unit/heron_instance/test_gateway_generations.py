"""Gateway links across generations: what is opened, discarded and reported at a change."""

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
from heron_runtime.wire.data import Frame
from heron_runtime.wire.metrics import ProcessMetrics

PATIENCE_SECONDS = 20.0
REPORT = ProcessMetrics("s", "container_1_s_1", 1, 1, 0, 0.0)


class Stream:
    """Gateway's end of a stream."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.said: asyncio.Queue[Any] = asyncio.Queue()

    async def read(self) -> Any:
        return await self.heard.get()

    async def write(self, message: Any) -> None:
        self.said.put_nowait(message)

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

    async def pair(self) -> tuple[Stream, Stream, int]:
        """Return the next link and the generation of its hello."""
        control = await self.opened.get()
        hello = await control.said.get()
        assert isinstance(hello, InstanceHello)
        return control, await self.opened.get(), hello.generation


def play(folder: Path, patch: pytest.MonkeyPatch, script: Callable[[Gateway, Links, Inbox], Any]) -> None:
    launch = Launch("local", "me", "d", "t", "t-1", f"files://{folder}/state", str(folder), str(folder))

    async def run() -> None:
        links, inbox = Links(), Inbox()
        patch.setattr(gateway_module, "connect", links.connect)
        patch.setattr(gateway_module, "CLOSE_SECONDS", 0.0)
        gateway = Gateway(LinkSetup(launch, 1, 1, 3, lambda name, n: None, "s3cret"), inbox)
        task = asyncio.get_running_loop().create_task(gateway.run(lambda: REPORT))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await script(gateway, links, inbox)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


async def told(inbox: Inbox, *kinds: type) -> list[Any]:
    """Return the inbox items of these kinds once there is at least one."""
    while True:
        found = [item for item in inbox.take(0) if isinstance(item, kinds)]
        if found:
            return found
        await asyncio.sleep(0.01)


def test_link_belongs_to_the_joined_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    play(tmp_path, monkeypatch, script)


def test_join_during_a_connect_adopts_that_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    play(tmp_path, monkeypatch, script)


def test_leaving_discards_waiting_data_without_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(gateway: Gateway, links: Links, inbox: Inbox) -> None:
        await links.pair()
        gateway.join(3)
        await links.pair()
        await told(inbox, Linked)
        gateway.post([Flush(frames=[Frame(1, 0, 2, 1, 1, 0, b"old")])])  # no credit, so it waits
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
        gateway.post([Flush(frames=[Frame(1, 0, 2, 1, 1, 0, b"new")])])
        packet = await data.said.get()
        assert [frame.values for frame in packet.frames] == [b"new"]

    play(tmp_path, monkeypatch, script)


@pytest.mark.parametrize("waits", [True, False], ids=["meanwhile", "before"])
def test_leaving_a_generation_returns_if_the_gateway_must_leave(
    waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    play(tmp_path, monkeypatch, script)
    if not waits:
        leaving.start()
    leaving.join(PATIENCE_SECONDS)
    assert not leaving.is_alive()
    gateways[0].join(4)

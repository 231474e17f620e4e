"""Gateway and a scripted stream manager: credit restarts at each hello, and the backlog leaves before reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heron_instance.core.outbox import Flush
from heron_instance.shell import gateway as gateway_module
from heron_instance.shell.gateway import Gateway, LinkSetup
from heron_instance.shell.inbox import Inbox
from heron_runtime.launch import Launch
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.net.frames import Tag
from heron_runtime.net.link import EOF
from heron_runtime.wire.control import Credit, StreamManagerHello
from heron_runtime.wire.data import Frame, Packet, Verdict
from heron_runtime.wire.metrics import ProcessMetrics

REPORT = ProcessMetrics("word", "container_1_word_1", 1, 1, 3, 0.0)
PATIENCE_SECONDS = 60.0


class Stream:
    """Gateway's end of a stream whose other end the test holds. A write lasts until the test accepts it."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.holds = asyncio.Event()  # when set, writes return at once
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


class Links:
    """Source of stream pairs, one for each connection of the gateway."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[tuple[Tag, Stream]] = asyncio.Queue()

    async def connect(self, path: str, secret: str, kind: Tag, *rest: Any) -> Stream:
        stream = Stream()
        if kind == Tag.CONTROL:
            stream.heard.put_nowait(StreamManagerHello(PROTOCOL_VERSION, "t-1", 1, 7))
        self.opened.put_nowait((kind, stream))
        return stream

    async def pair(self, *control: Any) -> tuple[Stream, Stream]:
        """Return the next connection; ``control`` follows the hello before the data stream opens."""
        _, first = await self.opened.get()
        for message in control:
            first.heard.put_nowait(message)
        _, second = await self.opened.get()
        return first, second


def flush(frames: int, size: int) -> Flush:
    return Flush(frames=[Frame(1, 0, 2, 1, 1, 0, bytes(size)) for _ in range(frames)])


def play(folder: Path, patch: pytest.MonkeyPatch, script: Callable[[Gateway, Links, list[bool]], Any]) -> None:
    """Run the script with a gateway; the list records for each packet read whether the backlog was empty."""
    launch = Launch("local", "me", "d", "t", "t-1", f"files://{folder}/state", str(folder), str(folder))

    async def run() -> None:
        links, inbox, sent_before = Links(), Inbox(), list[bool]()
        patch.setattr(gateway_module, "connect", links.connect)
        patch.setattr(gateway_module, "CLOSE_SECONDS", 0.0)
        gateway = Gateway(LinkSetup(launch, 1, 1, 3, lambda name, n: None, "s3cret"), inbox)
        put = inbox.put

        def look(item: Any) -> None:
            if isinstance(item, Packet):
                sent_before.append(gateway._outgoing.empty())
            put(item)

        patch.setattr(inbox, "put", look)
        task = asyncio.get_running_loop().create_task(gateway.run(lambda: REPORT))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await script(gateway, links, sent_before)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_each_hello_resets_the_credit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(gateway: Gateway, links: Links, _: list[bool]) -> None:
        gateway.post([flush(1, 100)])
        _, data = await links.pair(Credit(1 << 30))
        assert len((await data.said.get()).frames) == 1
        data.heard.put_nowait(EOF)
        control, data = await links.pair()
        gateway.post([flush(5, 100)])
        control.heard.put_nowait(Credit(1))
        assert len((await data.said.get()).frames) == 1, "one frame oversteps a limit of one byte, and no more go"

    play(tmp_path, monkeypatch, script)


def test_backlog_is_sent_before_verdicts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(gateway: Gateway, links: Links, sent_before: list[bool]) -> None:
        gateway.post([flush(64, 64 * 1024)])
        _, data = await links.pair(Credit(1 << 30))
        data.holds.clear()
        data.heard.put_nowait(Packet(1, verdicts=[Verdict(1, b"")]))
        await data.said.get()
        for _ in range(20):  # time for the gateway to read
            await asyncio.sleep(0)
        data.holds.set()
        while not sent_before:
            await asyncio.sleep(0.01)
        assert sent_before == [True]

    play(tmp_path, monkeypatch, script)

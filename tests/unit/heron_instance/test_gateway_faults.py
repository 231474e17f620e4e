"""The gateway against a stream manager that sends malformed frames, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

from heron_instance.shell import gateway as gateway_module
from heron_instance.shell.gateway import Gateway, LinkSetup
from heron_instance.shell.inbox import Inbox, InboxItem, StreamManagerLinked
from heron_runtime.launch import Launch
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.net.frames import Tag
from heron_runtime.net.link import LinkLost, LinkStream, accept
from heron_runtime.process import run_loop
from heron_runtime.wire.control import StreamManagerHello
from heron_runtime.wire.data import Packet, Verdict
from heron_runtime.wire.metrics import ProcessMetrics
from tests.support.waiting import wait_until

GARBAGE = b"\xff\xff\xff\xff"
REPORT = ProcessMetrics("word", "container_1_word_1", 1, 1, 3, 0.0)
HELLO = StreamManagerHello(PROTOCOL_VERSION, "t-1", 1, 7)


class GarblingStreamManager:
    """Stream manager that greets every connection and garbles one stream of the first, or stays silent."""

    def __init__(self, path: str, garbled: Tag | None) -> None:
        self._path = path
        self._garbled = garbled
        self._told = False
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._tasks = set[asyncio.Task[None]]()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await self._loop.create_unix_server(lambda: LinkStream(self._connected), self._path)
        self._ready.set()
        await self._end.wait()
        server.close()
        await asyncio.gather(*self._tasks)

    def _connected(self, link: LinkStream) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._talk(link)))

    async def _talk(self, link: LinkStream) -> None:
        if self._garbled is None and not self._told:
            self._told = True
            await self._end.wait()
        else:
            with contextlib.suppress(LinkLost):  # the gateway closes both streams of a link
                await self._greet(link)
        await link.finish()

    async def _greet(self, link: LinkStream) -> None:
        stream = (await accept(link, lambda task: "s3cret", "t-1")).stream
        if stream == Tag.CONTROL:
            await link.read()
            await link.write(HELLO)
        if stream == self._garbled and not self._told:
            self._told = True
            link.say(stream, GARBAGE)
        elif stream == Tag.DATA:
            await link.write(Packet(1, verdicts=[Verdict(1, b"")]))
        await self._end.wait()


@pytest.mark.parametrize("garbled", [Tag.CONTROL, Tag.DATA, None])
def test_malformed_or_missing_hello_ends_the_link_but_not_the_process(
    tmp_path: Path, garbled: Tag | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if garbled is None:
        monkeypatch.setattr(gateway_module, "HELLO_SECONDS", 0.2)
    launch = Launch("local", "me", "d", "t", "t-1", f"files://{tmp_path}/state", str(tmp_path), str(tmp_path))
    stream_manager = GarblingStreamManager(launch.stream_manager_socket(1), garbled)
    stream_manager.start()
    inbox, found = Inbox(), list[InboxItem]()
    gateway = Gateway(LinkSetup(launch, 1, 1, 3, lambda name, n: None, "s3cret"), inbox)
    thread = threading.Thread(target=lambda: run_loop(gateway.run(lambda: REPORT)))
    thread.start()
    try:

        def linked_again() -> bool:
            found.extend(inbox.take(0.1))
            assert thread.is_alive()  # the instance would end with it
            hellos = sum(isinstance(item, StreamManagerLinked) for item in found)
            return hellos >= (1 if garbled is None else 2) and any(isinstance(item, Packet) for item in found)

        wait_until(linked_again, "a second link, and a packet on it")
    finally:
        gateway.close()
        thread.join(10)
        stream_manager.stop()

"""The gateway against a stream manager that says what cannot be read: a real gRPC server with raw messages."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from instance_cluster import until

from heron_instance.shell.gateway import Gateway, GatewaySetup
from heron_instance.shell.inbox import Inbox, Item, StreamManagerSaidHello
from heron_runtime.launch import Launch
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.net.loop import run_loop
from heron_runtime.net.services import INSTANCE_SERVICE
from heron_runtime.wire.control import StreamManagerHello
from heron_runtime.wire.data import Packet, Verdict

GARBAGE = b"\xff\xff\xff\xff"
HELLO = StreamManagerHello(PROTOCOL_VERSION, "t-1", 1, 7)


class GarblingStreamManager:
    """Greets every connection; on the first one it says something unreadable on the stream of this name."""

    def __init__(self, target: str, garbled: str) -> None:
        self._target = target
        self._garbled = garbled
        self._told = False
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = grpc.aio.server()
        handlers = {
            name: grpc.stream_stream_rpc_method_handler(handler)  # no codec: bytes
            for name, handler in (("Control", self._control), ("Data", self._data))
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(INSTANCE_SERVICE.name, handlers),))
        server.add_insecure_port(self._target)
        await server.start()
        self._ready.set()
        await self._end.wait()
        await server.stop(0)

    async def _control(self, _: Any, context: Any) -> None:
        await context.read()
        await context.write(INSTANCE_SERVICE.method("Control").encode_reply(HELLO))
        if self._garbled == "Control":
            await self._garble(context)
        await self._end.wait()

    async def _data(self, _: Any, context: Any) -> None:
        if self._garbled == "Data":
            await self._garble(context)
        await context.write(INSTANCE_SERVICE.method("Data").encode_reply(Packet(1, verdicts=[Verdict(1, b"")])))
        await self._end.wait()

    async def _garble(self, context: Any) -> None:
        if not self._told:
            self._told = True
            await context.write(GARBAGE)
            await self._end.wait()


@pytest.mark.parametrize("garbled", ["Control", "Data"])
def test_what_cannot_be_read_costs_the_link_and_not_the_process(tmp_path: Path, garbled: str) -> None:
    launch = Launch("local", "me", "d", "t", "t-1", f"files://{tmp_path}/state", str(tmp_path), str(tmp_path))
    launch.secret_file.write_text("s3cret")
    stream_manager = GarblingStreamManager(launch.stream_manager_socket(1), garbled)
    stream_manager.start()
    inbox, found = Inbox(), list[Item]()
    gateway = Gateway(GatewaySetup(launch, 1, 1, 3, lambda name, n: None), inbox)
    thread = threading.Thread(target=lambda: run_loop(gateway.run()))
    thread.start()
    try:

        def linked_again() -> bool:
            found.extend(inbox.take(0.1))
            assert thread.is_alive()  # its end would be that of the instance
            return sum(isinstance(item, StreamManagerSaidHello) for item in found) >= 2 and any(
                isinstance(item, Packet) for item in found
            )

        until(linked_again, "a second link, and a packet on it")
    finally:
        gateway.close()
        thread.join(10)
        stream_manager.stop()

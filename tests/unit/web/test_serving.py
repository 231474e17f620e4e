"""HTTP server: a signal at the moment its address is printed, and unread connections."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from heron_control.web.serving import ConnectionLimits, Server, bind, config_of, url_of


async def nothing(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Application that only starts and stops."""
    assert scope["type"] == "lifespan"
    for said in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{said}.complete"})


class Hasty(io.StringIO):
    """Output whose reader ends the server as soon as the address is written."""

    def write(self, text: str) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return super().write(text)


def test_signal_at_the_first_output_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    closed: list[bool] = []
    read = Hasty()
    monkeypatch.setattr(sys, "stdout", read)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    with bind("127.0.0.1", 0, "test") as listener:
        url = url_of("127.0.0.1", listener)
        server = Server(config_of(nothing, access_log=False, stop_seconds=1), lambda: closed.append(True))
        server.serve_on(listener, url)
    assert read.getvalue() == url + "\n"
    assert closed == [True]
    assert signal.getsignal(signal.SIGTERM) is before


def test_client_that_does_not_read_loses_its_connection() -> None:
    """Every connection inherits from its listener how long an answer may stay unread."""
    with (
        bind("127.0.0.1", 0, "test", unread_seconds=1.0) as listener,
        socket.create_connection(listener.getsockname()[:2]),  # it never reads
        listener.accept()[0] as served,
        pytest.raises(TimeoutError),
    ):
        send_for_ever(served)


def send_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x" * 65536)


@contextlib.asynccontextmanager
async def serving(app: Any, limits: ConnectionLimits) -> AsyncIterator[tuple[str, int]]:
    """Serve an application on this loop, and return its address."""
    config = config_of(app, access_log=False, stop_seconds=1, limits=limits)
    with bind("127.0.0.1", 0, "test") as listener:
        server = Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[:2]
        finally:
            server.should_exit = True
            await running


async def answering(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer a request with 64 MiB, as fast as the client reads."""
    if scope["type"] == "lifespan":
        return await nothing(scope, receive, send)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1024):
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def connect(address: tuple[str, int]) -> socket.socket:
    """Return a connection with a small buffer."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await asyncio.get_running_loop().sock_connect(connection, address)
    return connection


async def status(connection: socket.socket) -> bytes:
    """Send a request and return the first bytes of the answer, "" if the connection is closed before it."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):
        await loop.sock_sendall(connection, REQUEST)
        return await loop.sock_recv(connection, 12)
    return b""


async def test_an_address_has_a_limited_number_of_connections() -> None:
    async with serving(answering, ConnectionLimits(per_address=2)) as address:
        first, second, refused = [await connect(address) for _ in range(3)]
        with first, second, refused:
            assert await asyncio.get_running_loop().sock_recv(refused, 12) == b"HTTP/1.1 503"
            assert await status(first) == b"HTTP/1.1 200"
            assert await status(second) == b"HTTP/1.1 200"
            first.close()
            while True:  # until the server has noticed
                with await connect(address) as another:
                    if await status(another) == b"HTTP/1.1 200":
                        break


async def test_a_client_that_reads_drops_of_an_answer_loses_its_connection() -> None:
    loop = asyncio.get_running_loop()
    async with serving(answering, ConnectionLimits(unread_seconds=0.5)) as address:
        with await connect(address) as connection:
            await loop.sock_sendall(connection, REQUEST)
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while data := await loop.sock_recv(connection, 64):
                    received += len(data)
                    await asyncio.sleep(0.01)  # so the kernel sees progress all the time
            assert received < 1 << 20

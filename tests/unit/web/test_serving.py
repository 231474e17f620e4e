"""A server that is asked to end in the moment in which its address is known."""

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
    """An application that only starts and stops."""
    assert scope["type"] == "lifespan"
    for said in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{said}.complete"})


class Hasty(io.StringIO):
    """Whoever reads the address ends the server at once."""

    def write(self, text: str) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return super().write(text)


def test_a_signal_that_comes_with_the_address_ends_it_as_any_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_client_that_reads_nothing_loses_its_connection() -> None:
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


async def test_an_address_has_a_limited_number_of_connections() -> None:
    async with serving(answering, ConnectionLimits(per_address=2)) as address:
        kept = [await asyncio.open_connection(*address) for _ in range(2)]
        for _, writer in kept:  # each is known to the server once it answers
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert [await reader.readline() for reader, _ in kept] == [b"HTTP/1.1 200 OK\r\n"] * 2
        reader, _ = await asyncio.open_connection(*address)
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        kept[0][1].transport.abort()
        while True:  # until the server has noticed
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            with contextlib.suppress(ConnectionError):  # it was closed before the request
                if (await reader.readline()).startswith(b"HTTP/1.1 200 "):
                    break
        for connection in (kept[1][1], writer):
            connection.transport.abort()


async def test_a_client_that_reads_drops_of_an_answer_loses_its_connection() -> None:
    async with serving(answering, ConnectionLimits(unread_seconds=0.5)) as address:
        reader, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while data := await reader.read(1):
                received += len(data)
                await asyncio.sleep(0.01)  # a byte now and then, so the kernel always sees progress
        assert received < 1 << 20
        writer.close()

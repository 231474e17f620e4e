"""HTTP server: a signal at the moment its address is printed, and unread connections."""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
import sys
from typing import Any

import pytest

from heron_control.web.serving import Server, bind, config_of, url_of


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

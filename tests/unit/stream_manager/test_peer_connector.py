"""Peer connector: an unreachable peer is logged and retried, whatever gRPC raises.

An error that ends the connector would end the stream manager.
"""

from __future__ import annotations

import contextlib
from typing import Any

import grpc.aio
import pytest

from heron_runtime.model.plan import StreamManagerInfo
from heron_runtime.wire.control import PeerHello
from stream_manager.shell import grpc_links as peer_links
from stream_manager.shell.grpc_links import PeerConnector, PeerTarget


class Broken:
    """Stand-in for a stream and for its service, core, identity and channel."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.core = self

    def call(self, *_: Any) -> Any:
        return lambda **_: self

    async def write(self, _: Any) -> None:
        raise self._error

    def peer_hello(self) -> PeerHello:
        return PeerHello(1, "t-1", 1, 5, 0)

    def metadata(self, *_: Any) -> tuple[()]:
        return ()


@pytest.mark.parametrize(
    "error",
    [grpc.aio.InternalError("a batch was refused"), grpc.aio.UsageError("the call is over"), TimeoutError("late")],
    ids=lambda error: type(error).__name__,
)
async def test_unreachable_peer_is_logged(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    around: Any = Broken(error)
    monkeypatch.setattr(peer_links, "PEER_SERVICE", around)
    monkeypatch.setattr(peer_links, "make_channel", lambda *_: contextlib.nullcontext())
    connector = PeerConnector(around, around, 2)
    assert not await connector._connect(PeerTarget(StreamManagerInfo(2, "127.0.0.1", 1, 7), 0))
    assert "container 2: cannot be reached" in caplog.text

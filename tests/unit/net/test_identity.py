"""Mutual authentication of gRPC connections with the topology's key, which is never sent."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509

from heron_runtime.net.identity import NAME, NO_END, Identity, draw_key, parse_identity
from heron_runtime.net.rpc import CHANNEL_OPTIONS, CONTAINER_SERVICE, make_channel, make_server
from heron_runtime.wire.container import ContainerStatus, ContainerStatusRequest

PATIENCE_SECONDS = 20.0


@pytest.fixture(scope="module")
def identity() -> Identity:
    return parse_identity(draw_key(), "t-1")


class Serving:
    """Server of the topology that counts its calls."""

    def __init__(self, identity: Identity) -> None:
        self.taken = 0
        handler = CONTAINER_SERVICE.handler(Status=self._status)
        self.server, self.port = make_server(identity, "127.0.0.1:0", [handler])

    async def _status(self, _: ContainerStatusRequest, __: Any) -> ContainerStatus:
        self.taken += 1
        return ContainerStatus(1, "here", 1, ())


@asynccontextmanager
async def serving(identity: Identity) -> AsyncIterator[Serving]:
    made = Serving(identity)
    await made.server.start()
    try:
        yield made
    finally:
        await made.server.stop(0)


async def ask(channel: grpc.aio.Channel, identity: Identity) -> str:
    """Return the host of the answer, or the name of the error code."""
    async with channel:
        try:
            call = CONTAINER_SERVICE.call(channel, "Status")
            reply = await call(ContainerStatusRequest(), metadata=identity.metadata(), timeout=PATIENCE_SECONDS)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return str(reply.host)


def strangers(target: str, identity: Identity) -> Iterator[grpc.aio.Channel]:
    """Yield callers with another key, without a key (the server's certificate is public), and without encryption."""
    yield make_channel(target, parse_identity(draw_key(), "t-1"))
    other = parse_identity(draw_key(), "t-1")
    half = grpc.ssl_channel_credentials(identity.certificate, other.key, other.certificate)
    yield grpc.aio.secure_channel(target, half, options=CHANNEL_OPTIONS)
    nobody = grpc.ssl_channel_credentials(identity.certificate)
    yield grpc.aio.secure_channel(target, nobody, options=CHANNEL_OPTIONS)
    yield grpc.aio.insecure_channel(target)


async def test_callers_without_the_key_are_not_served(identity: Identity) -> None:
    async with serving(identity) as server:
        target = f"127.0.0.1:{server.port}"
        for channel in strangers(target, identity):
            assert await ask(channel, identity) == "UNAVAILABLE"
        assert server.taken == 0
        assert await ask(make_channel(target, identity), identity) == "here"


async def test_listener_at_a_former_address_learns_nothing(identity: Identity) -> None:
    """A process that binds the port of a dead one receives no key and cannot answer in its place."""
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heard.extend(await reader.read(65536))
        finally:
            writer.close()

    thief = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = thief.sockets[0].getsockname()[1]
    assert await ask(make_channel(f"127.0.0.1:{port}", identity), identity) == "UNAVAILABLE"
    thief.close()
    assert heard, "it was called"
    for said in (identity.key, identity.certificate, b"t-1", b"Status"):
        assert said not in heard
    other = parse_identity(draw_key(), "t-1")
    async with serving(other) as impostor:
        target = f"127.0.0.1:{impostor.port}"
        assert await ask(make_channel(target, identity), identity) == "UNAVAILABLE"
        assert impostor.taken == 0


async def test_recorded_connection_cannot_be_replayed(identity: Identity) -> None:
    async with serving(identity) as server:
        said = bytearray()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            onward = await asyncio.open_connection("127.0.0.1", server.port)

            async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, kept: bytearray | None) -> None:
                while data := await source.read(65536):
                    if kept is not None:
                        kept.extend(data)
                    sink.write(data)
                sink.close()

            try:
                await asyncio.gather(
                    pump(reader, onward[1], said), pump(onward[0], writer, None), return_exceptions=True
                )
            finally:
                onward[1].close()
                writer.close()

        between = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = between.sockets[0].getsockname()[1]
        assert await ask(make_channel(f"127.0.0.1:{port}", identity), identity) == "here"
        between.close()
        assert server.taken == 1
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(said)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await reader.read(65536):
                pass  # until the server closes the connection
        writer.close()
        assert server.taken == 1, "a call that was heard was played again"


async def test_key_of_another_submission_is_reported(identity: Identity) -> None:
    async with serving(identity) as server:
        earlier = Identity("t-0", identity.key, identity.certificate)
        target = f"127.0.0.1:{server.port}"
        assert await ask(make_channel(target, earlier), earlier) == "FAILED_PRECONDITION"
        assert server.taken == 0


def test_certificate_is_valid_for_any_clock() -> None:
    now = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    made = x509.load_pem_x509_certificate(parse_identity(draw_key(now), "t").certificate)
    hour = dt.timedelta(hours=1)
    assert made.not_valid_before_utc < now - hour
    assert made.not_valid_after_utc == NO_END
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAME]


def test_repr_hides_the_key_and_a_file_without_one_is_rejected(identity: Identity) -> None:
    assert "PRIVATE" not in repr(identity)
    assert draw_key() != draw_key()
    for contents in (b"", b"-----BEGIN CERTIFICATE-----", b"-----BEGIN PRIVATE KEY-----"):
        with pytest.raises(ValueError, match="holds no key and certificate"):
            parse_identity(contents, "t")

"""Links over real sockets on the production event loop: handshakes, all kinds of ends, and a slow reader."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from heron_runtime.net import link as module
from heron_runtime.net.frames import HEADER, MAX_MESSAGE_BYTES, SCRATCH_BYTES, FrameTooLarge, Tag, header
from heron_runtime.net.handshake import CALLER, LinkRefused, Opening, decode_challenge, encode, prove
from heron_runtime.net.link import EOF, READ_AHEAD_BYTES, LinkLost, LinkStream, accept, connect
from heron_runtime.process import run_loop
from heron_runtime.wire.control import Credit
from heron_runtime.wire.data import Frame, Packet
from heron_runtime.wire.errors import MalformedMessage

SECRET, TOPOLOGY = "the topology's secret", "t-1"
PATIENCE_SECONDS = 60.0


class Served:
    """Server that records the outcome of each handshake: the stream, or the exception."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.results: asyncio.Queue[LinkStream | Exception] = asyncio.Queue()
        self.streams: list[LinkStream] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def call(self, stream: Tag = Tag.DATA, secret: str = SECRET, topology: str = TOPOLOGY) -> LinkStream:
        """Open a stream of task 7."""
        link = await connect(self.path, secret, stream, topology, 7, 3)
        self.streams.append(link)
        return link

    async def pair(self, stream: Tag = Tag.DATA) -> tuple[LinkStream, LinkStream]:
        """Return both ends of a new stream."""
        ours = await self.call(stream)
        theirs = await self.result()
        assert isinstance(theirs, LinkStream)
        return ours, theirs

    async def raw(self) -> Raw:
        """Return a connection that sends arbitrary bytes."""
        return Raw(*await asyncio.open_unix_connection(self.path))

    async def result(self) -> LinkStream | Exception:
        """Return the outcome of the next handshake."""
        return await asyncio.wait_for(self.results.get(), PATIENCE_SECONDS)

    def connected(self, link: LinkStream) -> None:
        self.streams.append(link)
        self._tasks.append(asyncio.ensure_future(self._accept(link)))

    async def end(self) -> None:
        for stream in self.streams:
            stream.cancel()
        await asyncio.gather(*self._tasks)
        await asyncio.sleep(0)

    async def _accept(self, link: LinkStream) -> None:
        try:
            await accept(link, lambda task: SECRET, TOPOLOGY)
            await self.results.put(link)
        except Exception as error:
            await self.results.put(error)
            await link.finish()


class Raw:
    """Socket that reads and writes frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.heard = b""

    def say(self, tag: int, body: bytes) -> None:
        self.writer.write(header(tag, body) + body)

    async def hear(self) -> tuple[int, bytes]:
        start = await asyncio.wait_for(self.reader.readexactly(HEADER.size), PATIENCE_SECONDS)
        length, tag = HEADER.unpack(start)
        body = await self.reader.readexactly(length)
        self.heard += start + body
        return tag, body

    async def closed(self) -> bool:
        """Return True if the other end has closed; drop the remaining data."""
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(self.reader.read(), PATIENCE_SECONDS)
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
        return True


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    served = Served(str(folder / "s"))
    server = await asyncio.get_running_loop().create_unix_server(lambda: LinkStream(served.connected), served.path)
    try:
        yield served
    finally:
        server.close()
        await served.end()


def on_uvloop(test: Callable[[Served], Awaitable[None]]) -> Callable[[Path], None]:
    """Return the test, run with a server on the production event loop."""

    def run(tmp_path: Path) -> None:
        async def main() -> None:
            async with serving(tmp_path) as served:
                await test(served)

        run_loop(main())

    run.__name__ = getattr(test, "__name__", "test")
    run.__doc__ = test.__doc__
    return run


def an_opening(stream: int = Tag.DATA, task: int = 7, topology: str = TOPOLOGY) -> bytes:
    return encode(Opening(module.LINK_VERSION, stream, topology, task, 3, os.urandom(32)))


def a_packet(sequence: int, size: int) -> Packet:
    return Packet(sequence, frames=[Frame(1, 0, 2, 1, 1, 0, bytes([sequence % 256]) * size)])


# Handshake.


@on_uvloop
async def test_both_streams_carry_messages_in_both_directions(served: Served) -> None:
    messages: dict[Tag, Any] = {Tag.CONTROL: Credit(5), Tag.DATA: a_packet(1, 3_000_000)}
    for stream, message in messages.items():
        ours, theirs = await served.pair(stream)
        for one, other in ((ours, theirs), (theirs, ours)):
            written = asyncio.ensure_future(one.write(message))
            assert await other.read() == message
            await written
        await ours.done_writing()
        assert await theirs.read() is EOF
        await theirs.write(message)  # half closed: the other direction stays open
        assert await ours.read() == message
        await theirs.done_writing()
        assert await ours.read() is EOF


@on_uvloop
async def test_each_end_refuses_a_peer_without_the_secret(served: Served) -> None:
    with pytest.raises(LinkRefused, match="does not know this task's key"):
        await served.call(secret="guess")
    assert isinstance(await served.result(), LinkLost)
    # A caller that does not verify the server.
    stranger = await served.raw()
    opening = an_opening()
    stranger.say(Tag.OPENING, opening)
    _, body = await stranger.hear()
    stranger.say(Tag.PROOF, prove("guess", CALLER, opening, decode_challenge(body).nonce))
    assert await stranger.hear() == (Tag.REFUSED, b"wrong key, or the proof of another connection")
    assert isinstance(await served.result(), LinkRefused)
    assert await stranger.closed()
    assert SECRET.encode() not in stranger.heard
    assert SECRET.encode() not in opening
    with pytest.raises(LinkRefused, match="this is topology t-1"):
        await served.call(topology="t-2")


@on_uvloop
async def test_replayed_or_reflected_proof_is_refused(served: Served) -> None:
    honest = await served.raw()
    opening = an_opening()
    honest.say(Tag.OPENING, opening)
    _, body = await honest.hear()
    challenge = decode_challenge(body)
    proof = prove(SECRET, CALLER, opening, challenge.nonce)
    honest.say(Tag.PROOF, proof)
    assert await honest.hear() == (Tag.ACCEPTED, b"")
    assert isinstance(await served.result(), LinkStream)
    for _ in range(2):
        thief = await served.raw()
        thief.say(Tag.OPENING, opening)
        _, body = await thief.hear()
        again = proof if _ == 0 else decode_challenge(body).proof
        thief.say(Tag.PROOF, again)
        assert (await thief.hear())[0] == Tag.REFUSED
        assert isinstance(await served.result(), LinkRefused)
        assert await thief.closed()
    # The proof of one task does not open the stream of another.
    other = await served.raw()
    other.say(Tag.OPENING, an_opening(task=8))
    _, body = await other.hear()
    other.say(Tag.PROOF, prove(SECRET, CALLER, opening, decode_challenge(body).nonce))
    assert (await other.hear())[0] == Tag.REFUSED
    assert isinstance(await served.result(), LinkRefused)
    honest.writer.close()
    other.writer.close()


@on_uvloop
async def test_unauthenticated_peer_may_send_only_small_expected_frames(served: Served) -> None:
    sent: list[tuple[bytes, str]] = [
        (b"GET / HTTP/1.1\r\n\r\n", "bytes, where 4096 are the most"),
        (HEADER.pack(5000, Tag.OPENING), "a message of 5000 bytes, where 4096 are the most"),
        (header(Tag.OPENING, b"\xff\xff") + b"\xff\xff", "not the opening of a link"),
        (header(Tag.DATA, b"") + b"", "a frame of kind 1?2?, where 16 was expected"),
    ]
    for data, complaint in sent:
        stranger = await served.raw()
        stranger.writer.write(data)
        result = await served.result()
        assert isinstance(result, MalformedMessage)
        with pytest.raises(MalformedMessage, match=complaint):
            raise result
        assert await stranger.closed()
    assert all(await served.pair()), "and the server goes on"


def test_silent_or_stalled_peer_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.05)

    @on_uvloop
    async def run(served: Served) -> None:
        silent = await served.raw()
        assert isinstance(await served.result(), TimeoutError)
        assert await silent.closed()
        half_way = await served.raw()
        half_way.say(Tag.OPENING, an_opening())
        assert isinstance(await served.result(), TimeoutError)
        assert await half_way.closed()

    run(tmp_path)


@on_uvloop
async def test_eof_during_the_handshake_is_a_lost_link(served: Served) -> None:
    half_open = await served.raw()
    half_open.say(Tag.OPENING, an_opening())
    await half_open.hear()
    half_open.writer.write_eof()
    assert isinstance(await served.result(), LinkLost)
    assert await half_open.closed()


def test_connect_to_a_silent_server_times_out(tmp_path: Path) -> None:
    path = str(tmp_path / "s")

    async def main() -> None:
        with pytest.raises(FileNotFoundError):
            await connect(path, SECRET, Tag.DATA, TOPOLOGY, 7, 3)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await connect(path, SECRET, Tag.DATA, TOPOLOGY, 7, 3)
        await asyncio.sleep(0)

    run_loop(main())


# After the handshake.


@on_uvloop
async def test_malformed_frame_raises_after_the_frames_before_it(served: Served) -> None:
    for data, complaint in (
        (header(Tag.DATA, b"\xff") + b"\xff", "not a packet"),
        (header(Tag.CONTROL, b"") + b"", "a frame of kind 1, where 2 was expected"),
        (HEADER.pack(MAX_MESSAGE_BYTES + 1, Tag.DATA), f"where {MAX_MESSAGE_BYTES} are the most"),
    ):
        ours, theirs = await served.pair()
        await ours.write(a_packet(1, 10))
        ours._transport.write(data)
        assert (await theirs.read()).sequence == 1
        with pytest.raises(MalformedMessage, match=complaint):
            await theirs.read()


@on_uvloop
async def test_end_within_a_message_is_a_lost_link(served: Served) -> None:
    for cut, complaint in ((3, "in the middle of a message"), (50, "in the middle of a message: 55 of 100 bytes")):
        ours, theirs = await served.pair()
        ours._transport.write((header(Tag.DATA, bytes(100)) + bytes(100))[:cut])
        await ours.done_writing()
        with pytest.raises(LinkLost, match=complaint):
            await theirs.read()
    ours, theirs = await served.pair()
    ours.cancel()
    with pytest.raises(LinkLost, match="closed"):
        await ours.write(a_packet(1, 1))
    assert await theirs.read() is EOF  # all its messages were complete
    # A writer that waits for room also learns of it.
    ours, theirs = await served.pair()
    await ours.write(a_packet(1, 4_000_000))  # more than the read-ahead limit
    writing = asyncio.ensure_future(ours.write(a_packet(2, 4_000_000)))
    await asyncio.sleep(0.01)
    assert not writing.done()
    theirs.cancel()
    with pytest.raises(LinkLost, match=r"the other end is gone|connection lost"):
        await asyncio.wait_for(writing, PATIENCE_SECONDS)


def test_oversized_message_is_rejected_by_the_sender_and_the_stream_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heron_runtime.net.frames.MAX_MESSAGE_BYTES", 1000)

    @on_uvloop
    async def run(served: Served) -> None:
        ours, theirs = await served.pair()
        with pytest.raises(FrameTooLarge, match="where 1000 are the most"):
            await ours.write(a_packet(1, 1000))
        await ours.write(a_packet(2, 10))
        assert (await theirs.read()).sequence == 2

    run(tmp_path)


@on_uvloop
async def test_slow_reader_bounds_memory_at_both_ends_and_loses_nothing(served: Served) -> None:
    ours, theirs = await served.pair()
    size, count = 100_000, 200
    sent = 0

    async def send() -> None:
        nonlocal sent
        for number in range(count):
            await ours.write(a_packet(number, size))
            sent += 1

    sending = asyncio.ensure_future(send())
    before = -1
    while sent != before:  # until the sender stalls
        before = sent
        await asyncio.sleep(0.2)
    message = size + 100
    assert not sending.done()
    assert ours._transport.get_write_buffer_size() <= message
    assert READ_AHEAD_BYTES < theirs._waiting_bytes <= READ_AHEAD_BYTES + SCRATCH_BYTES + message
    in_kernel = 1_000_000  # maximum of two sockets
    assert sent * size <= READ_AHEAD_BYTES + SCRATCH_BYTES + 2 * message + in_kernel
    for number in range(count):
        assert (await theirs.read()).sequence == number
        assert theirs._waiting_bytes <= READ_AHEAD_BYTES + SCRATCH_BYTES + message
    await asyncio.wait_for(sending, PATIENCE_SECONDS)
    assert theirs._waiting_bytes == 0


@on_uvloop
async def test_finished_stream_lets_the_other_end_read_all_data(served: Served) -> None:
    ours, theirs = await served.pair(Tag.CONTROL)
    await theirs.write(Credit(1))
    finishing = asyncio.ensure_future(theirs.finish())
    for _ in range(100):  # messages to a finished stream do no harm
        await ours.write(Credit(2))
    assert await ours.read() == Credit(1)
    assert await ours.read() is EOF
    ours.cancel()
    await asyncio.wait_for(finishing, PATIENCE_SECONDS)

"""Link between an instance and the stream manager of its container: framed messages over a Unix socket.

Theory of operation. A link consists of two streams, control and data. Each has a connection of its own, so that control
messages never wait for packets. A ``LinkStream`` has one reader and one writer. The memory of a stream is bounded,
regardless of the other end:

* Messages to send: one message. The transport's buffer has a high water mark of 0, so ``write`` returns when the kernel
  has taken the message, and data that is queued meanwhile is sent with the next packet.
* Messages received and not yet read: ``READ_AHEAD_BYTES``, one scratch buffer and one message. Beyond that, the stream
  does not read from the socket, and ``write`` of the other end waits.
* Data in the kernel: the buffer of the socket (``net.core.wmem_default``, 208 KiB on most machines).

An invalid message raises MalformedMessage at either end, after the messages before it were read. A connection that ends
in the middle of a message, or without end of file, raises LinkLost. Either affects this link only. Pings are not
needed: the kernel closes the links of a process that dies, and `heron_container` watches silent processes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from heron_runtime.net.frames import MAX_HANDSHAKE_BYTES, MAX_MESSAGE_BYTES, Frame, FrameDecoder, Tag, header
from heron_runtime.net.handshake import (
    CALLER,
    LINK_VERSION,
    NONCE_BYTES,
    SERVER,
    Challenge,
    LinkRefused,
    Opening,
    decode_challenge,
    decode_opening,
    encode,
    is_proof,
    prove,
)
from heron_runtime.wire.data_codec import decode_packet, encode_packet
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.message_codecs import INSTANCE_CONTROL

READ_AHEAD_BYTES = 1024 * 1024
HANDSHAKE_SECONDS = 10.0
FAREWELL_SECONDS = 1.0

log = logging.getLogger(__name__)

_CODECS: dict[int, tuple[Callable[[Any], bytes], Callable[[Any], Any]]] = {
    Tag.CONTROL: (INSTANCE_CONTROL.encode, INSTANCE_CONTROL.decode),
    Tag.DATA: (encode_packet, decode_packet),
}


class LinkLost(ConnectionError):
    """The other end is gone, or this end has closed the stream."""


class _End:
    """End of the stream: the result of `read` after the last message."""


EOF = _End()


class LinkStream(asyncio.BufferedProtocol):
    """One stream of a link, for one reader and one writer.

    A caller gets it from ``connect``. A server gets it as the argument of ``connected``.
    """

    def __init__(self, connected: Callable[[LinkStream], None] | None = None) -> None:
        self._connected = connected
        self._decoder = FrameDecoder(MAX_HANDSHAKE_BYTES)
        self._frames: deque[Frame] = deque()
        self._waiting_bytes = 0
        self._reading = True
        self._discarding = False
        self._end: Exception | _End | None = None  # result of `read` after the frames
        self._lost: LinkLost | None = None
        self._something: asyncio.Future[None] | None = None  # the reader waits for it
        self._room: asyncio.Future[None] | None = None  # the writer waits for it
        self._paused = False
        self._transport: asyncio.Transport
        self._tag = 0
        self._encode: Callable[[Any], bytes]
        self._decode: Callable[[Any], Any]

    # Called by the owner of the stream.

    async def read(self) -> Any:
        """Return the next message, or EOF after the other end has finished writing.

        Raises:
            MalformedMessage: The message is invalid.
            LinkLost: The other end is gone.
            LinkRefused: The other end refuses the link.
        """
        while not self._frames:
            if self._end is not None:
                if isinstance(self._end, _End):
                    return self._end
                raise self._end
            await self._wait_for_frames()
        tag, body = self._take()
        if tag != self._tag:
            raise _unexpected(tag, body, self._tag)
        return self._decode(body)

    async def write(self, message: Any) -> None:
        """Send a message, and wait until the kernel has taken it.

        Raises:
            LinkLost: The stream is closed.
            FrameTooLarge: The message exceeds the limit. Nothing was sent.
        """
        self._send(self._tag, self._encode(message))
        if self._paused:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def done_writing(self) -> None:
        """Close the stream for writing. Reading continues. Raises LinkLost."""
        self._check_open()
        self._transport.write_eof()

    def cancel(self) -> None:
        """Close the stream at once in both directions. Idempotent."""
        self._transport.abort()

    async def finish(self) -> None:
        """Close the stream after sending everything that was written.

        Received messages are discarded until the other end closes the stream, for at most a second, so that it can read
        everything.
        """
        self._discarding = True
        self._frames.clear()
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.done_writing()
                self._resume_reading()
                while self._end is None:
                    await self._wait_for_frames()
        except OSError:
            pass  # the other end is gone, or does not close the stream in time
        finally:
            self.cancel()

    # For the handshake.

    async def expect(self, tag: Tag) -> bytes:
        """Return the body of the next frame, which must have this tag.

        Raises:
            MalformedMessage: The frame is invalid or has another tag.
            LinkLost: The other end is gone.
            LinkRefused: The other end refuses the link.
        """
        while not self._frames:
            if isinstance(self._end, Exception):
                raise self._end
            if self._end is not None:
                raise LinkLost("closed in the middle of the handshake")
            await self._wait_for_frames()
        received, body = self._take()
        if received != tag:
            raise _unexpected(received, body, tag)
        return bytes(body)

    def say(self, tag: Tag, body: bytes = b"") -> None:
        """Send a small frame. Raises LinkLost."""
        self._send(tag, body)

    def speak(self, stream: int) -> None:
        """End the handshake: from now on, send and receive messages of this stream."""
        self._tag = stream
        self._encode, self._decode = _CODECS[stream]
        self._decoder.max_bytes = MAX_MESSAGE_BYTES

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the transport of a new connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        if self._connected is not None:
            self._connected(self)

    def get_buffer(self, _: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._decoder.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Decode the bytes that were read, and pause reading if too much waits."""
        frames = self._decoder.received(nbytes)
        if self._decoder.fault is not None and self._end is None:
            self._end = self._decoder.fault
        if frames and not self._discarding:
            self._frames.extend(frames)
            self._waiting_bytes += sum([len(body) for _, body in frames])
        if self._reading and (self._waiting_bytes > READ_AHEAD_BYTES or self._end is not None):
            self._reading = False
            self._transport.pause_reading()
        self._tell_reader()

    def eof_received(self) -> bool:
        """Record that the other end has finished writing. Return True to keep the stream open for writing."""
        torn = self._decoder.torn()
        if self._end is None:
            self._end = LinkLost(f"connection lost {torn}") if torn else EOF
        self._tell_reader()
        return True

    def pause_writing(self) -> None:
        """Make `write` wait, since the kernel has not taken all data."""
        self._paused = True

    def resume_writing(self) -> None:
        """Resume `write`, since the kernel has taken all data."""
        self._paused = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all waiting calls, since the socket is closed at either end."""
        self._lost = LinkLost("the stream is closed" if exc is None else f"connection lost: {exc}")
        if self._end is None:
            self._end = self._lost
        self._tell_reader()
        if self._room is not None and not self._room.done():
            self._room.set_exception(self._lost)

    # Internal.

    def _take(self) -> Frame:
        frame = self._frames.popleft()
        self._waiting_bytes -= len(frame[1])
        if not self._reading and self._waiting_bytes <= READ_AHEAD_BYTES // 2 and self._end is None:
            self._resume_reading()
        return frame

    def _resume_reading(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    async def _wait_for_frames(self) -> None:
        self._something = asyncio.get_running_loop().create_future()
        await self._something

    def _tell_reader(self) -> None:
        if self._something is not None and not self._something.done():
            self._something.set_result(None)

    def _check_open(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._transport.is_closing():
            raise LinkLost("the stream is closed")

    def _send(self, tag: int, body: bytes) -> None:
        self._check_open()
        self._transport.writelines((header(tag, body), body))
        self._check_open()  # a write that fails at once closes the socket


def _unexpected(tag: int, body: bytes | bytearray, wanted: int) -> Exception:
    if tag == Tag.REFUSED:
        return LinkRefused(body.decode(errors="replace"))
    return MalformedMessage(f"a frame of kind {tag}, where {wanted} was expected")


async def connect(path: str, key: str, stream: Tag, topology_id: str, task: int, incarnation: int) -> LinkStream:
    """Open a stream to the stream manager that listens at ``path``.

    The caller must set a timeout.

    Args:
        path: Path of the Unix socket.
        key: Key of the task.
        stream: Stream to open, ``CONTROL`` or ``DATA``.
        topology_id: Id of the topology.
        task: Id of the task.
        incarnation: Incarnation of this process.

    Raises:
        OSError: The stream manager does not listen or closes the connection (LinkLost).
        LinkRefused: One end refuses the other.
        MalformedMessage: An answer is invalid.
    """
    _, link = await asyncio.get_running_loop().create_unix_connection(LinkStream, path)
    try:
        opening = encode(Opening(LINK_VERSION, stream, topology_id, task, incarnation, os.urandom(NONCE_BYTES)))
        link.say(Tag.OPENING, opening)
        challenge = decode_challenge(await link.expect(Tag.CHALLENGE))
        if not is_proof(challenge.proof, key, SERVER, opening, challenge.nonce):
            raise LinkRefused(f"the process at {path} does not know this task's key")
        link.speak(stream)
        link.say(Tag.PROOF, prove(key, CALLER, opening, challenge.nonce))
        await link.expect(Tag.ACCEPTED)
    except BaseException:
        link.cancel()
        raise
    return link


async def accept(link: LinkStream, key_of: Callable[[int], str], topology_id: str) -> Opening:
    """Perform the server's side of the handshake on a new connection.

    Args:
        link: The new connection.
        key_of: Returns the key of a task. It may raise LinkRefused.
        topology_id: Id of the topology.

    Returns:
        The opening, which identifies the caller and the stream.

    Raises:
        LinkRefused: The caller was refused, and the reason was sent to it.
        MalformedMessage: A message is invalid.
        LinkLost: The caller is gone.
        TimeoutError: The handshake took more than 10 s.
    """
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        body = await link.expect(Tag.OPENING)
        try:
            opening = decode_opening(body)
            if opening.topology_id != topology_id:
                raise LinkRefused(f"this is topology {topology_id}")
            key, nonce = key_of(opening.task), os.urandom(NONCE_BYTES)
            link.say(Tag.CHALLENGE, encode(Challenge(nonce, prove(key, SERVER, body, nonce))))
            if not is_proof(await link.expect(Tag.PROOF), key, CALLER, body, nonce):
                raise LinkRefused("wrong key, or the proof of another connection")
        except LinkRefused as refusal:
            refuse(link, str(refusal))
            raise
        link.speak(opening.stream)
        link.say(Tag.ACCEPTED)
    return opening


def refuse(link: LinkStream, reason: str) -> None:
    """Send the reason of a refusal to the caller, if it is still connected."""
    try:
        link.say(Tag.REFUSED, reason.encode())
    except LinkLost:
        pass

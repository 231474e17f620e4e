"""Frames of a link: four bytes of length (little-endian), one byte for the kind, and the body.

The decoder accepts bytes in pieces of any size and returns whole frames. It owns no socket: the reader asks it for
`space` and reports how much of it was `received`. Small frames are read many at a time into a scratch buffer, which all
decoders of a thread share. The rest of a frame that exceeds it is read directly into the frame's own buffer.
"""

from __future__ import annotations

import mmap
import struct
import threading
from enum import IntEnum

from heron_runtime.wire.errors import MalformedMessage

HEADER = struct.Struct("<IB")
MAX_MESSAGE_BYTES = 80 * 1024 * 1024  # topology.tuple.max.bytes (64 MiB) and room for columns
MAX_HANDSHAKE_BYTES = 4096  # limit of a frame before the other end is authenticated
SCRATCH_BYTES = 256 * 1024

Frame = tuple[int, bytes | bytearray]


class Tag(IntEnum):
    """Kind of a frame. The first two also name the two streams of a link."""

    CONTROL = 1
    DATA = 2
    OPENING = 16
    CHALLENGE = 17
    PROOF = 18
    ACCEPTED = 19
    REFUSED = 20


class FrameTooLarge(MalformedMessage):
    """The declared length of a frame exceeds the limit."""


_OF_THREAD = threading.local()


def header(tag: int, body: bytes) -> bytes:
    """Return the header of `body`. Raises FrameTooLarge."""
    if len(body) > MAX_MESSAGE_BYTES:
        raise FrameTooLarge(_too_large(len(body), MAX_MESSAGE_BYTES))
    return HEADER.pack(len(body), tag)


class FrameDecoder:
    """Decoder from received bytes to frames.

    ``max_bytes`` may be changed between two frames. Once ``fault`` is set, further bytes are ignored.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.fault: MalformedMessage | None = None
        self._scratch = _scratch()
        self._start = b""  # received part of an incomplete header
        self._tag = 0
        self._body = bytearray()  # body of an incomplete frame
        self._rest = memoryview(self._body)  # the part of the body that is not received yet

    def space(self) -> memoryview:
        """Return the buffer for the next bytes.

        Read into it and call ``received`` before ``space`` of another decoder of this thread is called.
        """
        if self._rest:
            return self._rest
        start = self._start
        if start:
            self._scratch[: len(start)] = start
        return self._scratch[len(start) :]

    def received(self, count: int) -> list[Frame]:
        """Process `count` bytes that were read into ``space``, and return the frames that they complete."""
        if self.fault is not None:
            return []
        if self._rest:
            self._rest = self._rest[count:]
            return [] if self._rest else [(self._tag, self._body)]
        frames: list[Frame] = []
        scratch, at, end = self._scratch, 0, len(self._start) + count
        while end - at >= HEADER.size:
            length, tag = HEADER.unpack_from(scratch, at)
            if length > self.max_bytes:
                self.fault, self._start = FrameTooLarge(_too_large(length, self.max_bytes)), b""
                return frames
            at += HEADER.size
            if length > end - at:
                self._begin(tag, length, scratch[at:end])
                return frames
            frames.append((tag, bytes(scratch[at : at + length])))
            at += length
        self._start = bytes(scratch[at:end])
        return frames

    def torn(self) -> str:
        """Describe the missing bytes of an incomplete frame; "" between two frames."""
        if self._rest:
            return f"in the middle of a message: {len(self._rest)} of {len(self._body)} bytes are missing"
        return "in the middle of a message" if self._start else ""

    def _begin(self, tag: int, length: int, part: memoryview) -> None:
        self._start, self._tag, self._body = b"", tag, bytearray(length)
        self._body[: len(part)] = part
        self._rest = memoryview(self._body)[len(part) :]


def _too_large(length: int, limit: int) -> str:
    return f"a message of {length} bytes, where {limit} are the most"


def _scratch() -> memoryview:
    """Return the scratch buffer of this thread. Pages that were never written do not use memory."""
    if not hasattr(_OF_THREAD, "scratch"):
        _OF_THREAD.scratch = memoryview(mmap.mmap(-1, SCRATCH_BYTES))
    scratch: memoryview = _OF_THREAD.scratch
    return scratch

"""Frame decoder: independent of how bytes are cut, with distinct faults for malformed input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from heron_runtime.net import frames as module
from heron_runtime.net.frames import HEADER, Frame, FrameDecoder, FrameTooLarge, Tag, header
from heron_runtime.wire.errors import MalformedMessage

SCRATCH_BYTES = 64  # small, so that some frames exceed it, as large ones do
LIMIT = 2 * SCRATCH_BYTES
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # the examples below need no shrinking

tags = st.integers(0, 255)
sizes = st.integers(0, 40) | st.sampled_from([SCRATCH_BYTES - 5, SCRATCH_BYTES, SCRATCH_BYTES + 1, LIMIT])
some_frames = st.lists(st.builds(lambda tag, size: (tag, bytes([size % 251]) * size), tags, sizes), max_size=6)
cuts = st.lists(st.integers(1, 9) | st.integers(1, LIMIT), max_size=30)


@pytest.fixture(autouse=True, scope="module")
def small_scratch() -> Iterator[None]:
    module._OF_THREAD.scratch = memoryview(bytearray(SCRATCH_BYTES))
    yield
    del module._OF_THREAD.scratch


def wire(frames: Iterable[Frame]) -> bytes:
    return b"".join(header(tag, bytes(body)) + bytes(body) for tag, body in frames)


def pieces(data: bytes, lengths: list[int]) -> Iterator[bytes]:
    at = 0
    for length in lengths:
        yield data[at : at + length]
        at += length
    yield data[at:]


def feed(decoder: FrameDecoder, parts: Iterable[bytes]) -> list[Frame]:
    """Feed the bytes as an event loop does, never more at once than there is space for."""
    found: list[Frame] = []
    for part in parts:
        while part and decoder.fault is None:
            space = decoder.space()
            taken = part[: len(space)]
            space[: len(taken)] = taken
            found += decoder.received(len(taken))
            part = part[len(taken) :]
    return found


@given(some_frames, cuts)
@settings(phases=PHASES)
@example([(1, b"x" * SCRATCH_BYTES), (2, b"")], [4, 1, 7])
def test_frames_are_independent_of_how_bytes_are_cut(frames: list[Frame], lengths: list[int]) -> None:
    decoder = FrameDecoder(LIMIT)
    assert feed(decoder, pieces(wire(frames), lengths)) == frames
    assert decoder.fault is None
    assert decoder.torn() == ""


@given(st.lists(st.tuples(some_frames, cuts), min_size=2, max_size=3))
@settings(phases=PHASES)
def test_decoders_of_one_thread_share_only_their_scratch(
    streams: list[tuple[list[Frame], list[int]]],
) -> None:
    decoders = [FrameDecoder(LIMIT) for _ in streams]
    parts = [list(pieces(wire(frames), lengths)) for frames, lengths in streams]
    found: list[list[Frame]] = [[] for _ in streams]
    for turn in range(max(map(len, parts))):
        for decoder, of_stream, out in zip(decoders, parts, found, strict=True):
            out += feed(decoder, of_stream[turn : turn + 1])
    assert found == [frames for frames, _ in streams]


@given(st.binary(max_size=200), cuts)
@settings(phases=PHASES)
def test_arbitrary_bytes_are_frames_or_a_fault_for_any_cuts(data: bytes, lengths: list[int]) -> None:
    whole, cut = FrameDecoder(64), FrameDecoder(64)
    assert feed(whole, [data]) == feed(cut, pieces(data, lengths))
    assert type(whole.fault) is type(cut.fault)
    assert whole.torn() == cut.torn()


@given(some_frames, st.integers(LIMIT + 1, LIMIT + 20) | st.integers(LIMIT + 1, 2**32 - 1), tags, cuts)
@settings(phases=PHASES)
def test_oversized_frame_is_a_fault_at_its_header(
    frames: list[Frame], length: int, tag: int, lengths: list[int]
) -> None:
    decoder = FrameDecoder(LIMIT)
    assert feed(decoder, pieces(wire(frames) + HEADER.pack(length, tag) + b"more", lengths)) == frames
    assert isinstance(decoder.fault, FrameTooLarge)
    assert isinstance(decoder.fault, MalformedMessage)
    assert str(length) in str(decoder.fault)
    assert str(LIMIT) in str(decoder.fault)
    assert decoder.received(4) == [], "after a fault nothing comes out"


@given(some_frames, st.integers(0, 40), tags, st.data())
@settings(phases=PHASES)
def test_truncated_frame_is_torn(frames: list[Frame], size: int, tag: int, data: st.DataObject) -> None:
    last = wire([(tag, bytes(size))])
    kept = data.draw(st.integers(1, len(last) - 1))
    decoder = FrameDecoder(LIMIT)
    assert feed(decoder, [wire(frames), last[:kept]]) == frames
    assert decoder.fault is None
    assert decoder.torn()


def test_limit_may_change_between_frames() -> None:
    decoder = FrameDecoder(10)
    assert feed(decoder, [wire([(Tag.PROOF, bytes(10))])]) == [(Tag.PROOF, bytes(10))]
    decoder.max_bytes = 20
    assert feed(decoder, [wire([(Tag.DATA, bytes(20))])]) == [(Tag.DATA, bytes(20))]


def test_oversized_frame_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 5)
    assert header(1, b"12345")
    with pytest.raises(FrameTooLarge, match="6 bytes, where 5"):
        header(1, b"123456")

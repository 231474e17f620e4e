"""Packets on the wire: round trip, and rejection of inconsistent columns."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.dataflow import FailKind
from heron_runtime.wire.data import FRAME_OVERHEAD_BYTES, Ack, Fail, Frame, Init, Packet, Reason, Verdict
from heron_runtime.wire.data_codec import decode_packet, encode_packet
from heron_runtime.wire.errors import MalformedMessage

tasks = st.integers(1, 65_535)


def column(width: int, rows: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=width * rows, max_size=width * rows)


reasons = st.builds(Reason, st.sampled_from(FailKind), st.text(), tasks, st.text(), st.text())


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    count = draw(st.integers(1, 4))
    shape = draw(st.sampled_from(["untracked", "one each", "many"]))
    offsets, rows = b"", 0
    if shape == "one each":
        rows = count
    elif shape == "many":
        rows = draw(st.integers(0, 6))
        offsets = draw(column(4, count + 1))
    return Frame(
        draw(tasks), draw(st.integers(0, 99)), draw(tasks), count, draw(st.integers(0, 2**40)), draw(st.integers(0, 3)),
        draw(st.binary(max_size=40)), offsets, draw(column(8, rows)), draw(column(8, rows)),
    )  # fmt: skip


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    rows = draw(st.integers(1, 4))
    return Packet(
        sequence=draw(st.integers(0, 2**63)),
        inits=draw(st.lists(st.builds(Init, tasks, st.integers(0, 2**64 - 1), column(8, rows)), max_size=2)),
        acks=draw(st.lists(st.builds(Ack, tasks, column(8, rows), column(8, rows)), max_size=2)),
        fails=draw(st.lists(st.builds(Fail, tasks, column(8, rows), reasons), max_size=2)),
        verdicts=draw(st.lists(st.builds(Verdict, tasks, column(8, rows), st.none() | reasons), max_size=2)),
        frames=draw(st.lists(frames(), max_size=3)),
    )


@given(packets())
def test_packets_survive(packet: Packet) -> None:
    assert decode_packet(encode_packet(packet)) == packet


def a_frame(**changes: object) -> Frame:
    frame = Frame(1, 0, 2, 2, 1, 0, b"values", b"", b"r" * 16, b"k" * 16)
    return msgspec.structs.replace(frame, **changes)


@pytest.mark.parametrize(
    "frame",
    [
        a_frame(roots=b"r" * 8),
        a_frame(roots=b"r" * 8, keys=b"k" * 8),
        a_frame(roots=b"r" * 15, keys=b"k" * 15),
        a_frame(offsets=b"o" * 8),
    ],
)
def test_frame_with_inconsistent_columns_is_rejected(frame: Frame) -> None:
    with pytest.raises(MalformedMessage, match="root columns"):
        decode_packet(encode_packet(Packet(frames=[frame])))


@pytest.mark.parametrize(
    "packet",
    [
        Packet(inits=[Init(1, 2, b"123")]),
        Packet(inits=[Init(1, 2, b"")]),
        Packet(acks=[Ack(1, b"r" * 16, b"x" * 8)]),
        Packet(verdicts=[Verdict(1, b"r" * 7)]),
        Packet(fails=[Fail(1, b"r" * 9, Reason(FailKind.FAILED))]),
    ],
)
def test_broken_columns_are_rejected(packet: Packet) -> None:
    with pytest.raises(MalformedMessage):
        decode_packet(encode_packet(packet))


def test_garbage_is_rejected() -> None:
    with pytest.raises(MalformedMessage, match="not a packet"):
        decode_packet(b"\x12\xff\xff")


def test_frame_size_includes_its_columns() -> None:
    assert a_frame().size_bytes() == 6 + 16 + 16 + FRAME_OVERHEAD_BYTES

"""Encoding of barriers as frames, and rejection of frames that are not barriers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.barriers import Barrier, InvalidBarrier, barrier_frame, read_barrier
from heron_runtime.wire.data import Packet
from heron_runtime.wire.data_codec import decode_packet, encode_packet

numbers = st.integers(0, (1 << 64) - 1)
BARRIER = Barrier(3, 17, 1, 12)


@given(st.builds(Barrier, numbers, numbers, st.integers(-(1 << 63), (1 << 63) - 1), numbers))
def test_barrier_survives_a_frame_round_trip(barrier: Barrier) -> None:
    assert read_barrier(barrier_frame(2, 5, 7, barrier)) == barrier


def test_barrier_frame_has_no_tuples_and_survives_the_packet_codec() -> None:
    frame = barrier_frame(2, 5, 7, BARRIER)
    assert (frame.source_task, frame.destination_task, frame.routing_version, frame.count) == (2, 5, 7, 0)
    assert decode_packet(encode_packet(Packet(1, frames=[frame]))).frames == [frame]


@pytest.mark.parametrize("size", [0, 31, 33])
def test_read_barrier_rejects_other_sizes(size: int) -> None:
    frame = msgspec.structs.replace(barrier_frame(2, 5, 7, BARRIER), values=b"x" * size)
    with pytest.raises(InvalidBarrier, match=f"{size} bytes for 0 tuples from task 2"):
        read_barrier(frame)


def test_read_barrier_rejects_frames_with_tuples() -> None:
    with pytest.raises(InvalidBarrier, match="32 bytes for 1 tuples"):
        read_barrier(msgspec.structs.replace(barrier_frame(2, 5, 7, BARRIER), count=1))

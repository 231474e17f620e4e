"""First root sequence numbers of processes whose visible incarnation bits are equal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.ids import SEQUENCE_MASK, first_sequence, root_base


@given(st.integers(0, 1 << 62), st.integers(1, 1000))
def test_similar_incarnations_start_a_million_numbers_apart(incarnation: int, apart: int) -> None:
    other = incarnation + apart * (1 << 16)
    assert root_base(1, incarnation) == root_base(1, other)
    distance = (first_sequence(other) - first_sequence(incarnation)) & SEQUENCE_MASK
    assert min(distance, SEQUENCE_MASK + 1 - distance) > 1_000_000

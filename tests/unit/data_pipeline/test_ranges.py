"""Ranges of micro-batches: together they cover each split exactly once, also with repeats."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.core.ranges import between, end_of, latest, range_in, text_of
from heronry.connect.polling import Range

SPLITS = ("a", "b é", "c")
growth = st.lists(st.fixed_dictionaries({split: st.integers(0, 3) for split in SPLITS}), max_size=8)


def found(offset: dict[str, str], ends: dict[str, int]) -> dict[str, Range | None]:
    """Return ranges as readers do: positions of two parts, the first split beginning at 5."""
    asked: dict[str, Range | None] = {}
    for split, end in ends.items():
        begin = end_of(offset, split) or [5 if split == "a" else 0, "made"]
        asked[split] = Range(split, begin, [end, "made"]) if end > begin[0] else None
    return asked


@given(growth)
def test_micro_batches_are_contiguous(grown: list[dict[str, int]]) -> None:
    offset: dict[str, str] = {}
    ends = {"a": 5, "b é": 0, "c": 0}
    read: dict[str, list[int]] = {split: [] for split in SPLITS}
    for more in grown:
        ends = {split: end + more[split] for split, end in ends.items()}
        following = json.loads(json.dumps(latest(offset, found(offset, ends))))  # by way of Spark's checkpoint
        batch = between(offset, following)
        assert batch == between(offset, following)
        assert {wanted.split for wanted in batch} == {split for split, count in more.items() if count}
        for wanted in map(range_in, map(text_of, batch)):
            read[wanted.split] += range(wanted.begin[0], wanted.end[0])
        assert between(following, following) == []
        assert latest(following, found(following, ends)) == following, "nothing is new"
        offset = following
    assert read == {split: list(range(5 if split == "a" else 0, end)) for split, end in ends.items()}

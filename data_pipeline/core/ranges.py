"""Stream positions in the splits of servers, as offsets that Spark's checkpoint keeps. Pure.

An offset holds, for each split, the last range that was found in it, as JSON text, since Spark does not store lists. A
micro-batch is the data between two consecutive offsets: of each split, from the end in the first offset to the end in
the second. Micro-batches are therefore contiguous, and a repeated one is identical.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heronry.connect.polling import Range

Offset = Mapping[str, str]  # split → [begin, end]


def latest(begun: Offset, ranges: Mapping[str, Range | None]) -> dict[str, str]:
    """Return the offset after ``begun``, given the ranges found after it; equal to ``begun`` if there are none."""
    new = {split: json.dumps([wanted.begin, wanted.end]) for split, wanted in ranges.items() if wanted is not None}
    return {**begun, **new}


def end_of(offset: Offset, split: str) -> Any:
    """Return the position up to which a split was read; None if it was not read."""
    return json.loads(offset[split])[1] if split in offset else None


def between(begun: Offset, ended: Offset) -> list[Range]:
    """Return the ranges between two consecutive offsets, ordered by split."""
    ranges = []
    for split, text in sorted(ended.items()):
        if begun.get(split) != text:
            begin, end = json.loads(text)
            ranges.append(Range(split, end_of(begun, split) if split in begun else begin, end))
    return ranges


def text_of(wanted: Range) -> str:
    """Return a range as text, for a row of a stream."""
    return json.dumps(wanted)


def range_in(text: str) -> Range:
    """Return the range from the result of ``text_of``."""
    return Range(*json.loads(text))

"""How far the splits of servers have been streamed, as offsets that Spark's checkpoint keeps. Pure.

Theory of operation. An offset has of each split the last range that was found in it, as JSON, since Spark keeps no
lists. What lies between two offsets that follow each other is a micro-batch: of each split from where the first one
ends to where the second one does. So micro-batches are laid end to end, and one that comes again is the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heronry.connect.polling import Range

Offset = Mapping[str, str]  # split → [begin, end]


def latest(begun: Offset, found: Mapping[str, Range | None]) -> dict[str, str]:
    """The offset behind one, when these are the ranges behind it; the same if there are none."""
    new = {split: json.dumps([wanted.begin, wanted.end]) for split, wanted in found.items() if wanted is not None}
    return {**begun, **new}


def end_of(offset: Offset, split: str) -> Any:
    """Where a split was read to; None: nothing was."""
    return json.loads(offset[split])[1] if split in offset else None


def between(begun: Offset, ended: Offset) -> list[Range]:
    """What lies between two offsets that follow each other, by split."""
    found = []
    for split, text in sorted(ended.items()):
        if begun.get(split) != text:
            begin, end = json.loads(text)
            found.append(Range(split, end_of(begun, split) if split in begun else begin, end))
    return found


def text_of(wanted: Range) -> str:
    """A range as a row of a stream has it."""
    return json.dumps(wanted)


def range_in(text: str) -> Range:
    """What ``text_of`` made."""
    return Range(*json.loads(text))

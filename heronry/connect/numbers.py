"""Finite source of integers in splits, for tests and load generation, and as a minimal example of a source.

The split ``first-last`` is a range of integers, and its position is the next integer. A split that was read to the end
remains listed, so its position is kept and it is not read again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.settings import problems, require, whole
from heronry.connect.tracked import FOLDER, TrackedSource

NUMBERS_A_CALL = 256
COUNT = whole("user.sequence.count", "how many numbers it emits, from 0 up", least=0, required=True)
SPLITS = whole("user.sequence.splits", "into how many splits they are divided", 1)


class Sequence(TrackedSource):
    """Source that emits each integer from 0 below ``user.sequence.count`` once.

    ``user.sequence.splits`` (default 1) is the number of splits that can be read in parallel. Fields: ``number``.
    """

    outputs = ("number",)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from problems((COUNT, SPLITS, FOLDER), config)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Check the configuration, and restore the positions. Raises BadConfig."""
        require(self, config)
        self._splits = ranges(COUNT.of(config), SPLITS.of(config))
        self._owned: list[str] | None = None
        self._turn = 0
        self.begin_tracking(config, context)

    def splits(self) -> list[tuple[str, int]]:
        """Return the splits with their numbers. They never change."""
        return [(name, number) for number, name in enumerate(self._splits)]

    def next_tuple(self) -> None:
        """Emit up to NUMBERS_A_CALL integers of the next split that has any left."""
        self.settle()
        if self._owned is None:
            self._owned = self.owned_splits()
        if not self.has_room():
            return
        for step in range(len(self._owned)):
            split = self._owned[(self._turn + step) % len(self._owned)]
            first, end = self._splits[split]
            position = self.position_of(split, first)
            if position < end:
                behind = min(position + NUMBERS_A_CALL, end)
                self.emit_page(split, [(number,) for number in range(position, behind)], behind)
                self._turn += step + 1
                return

    def at_end(self) -> bool:
        """Return True once every integer of the task's splits is emitted, and acknowledged if that is tracked."""
        is_read = all(self.position_of(split, -1) == self._splits[split][1] for split in self.owned_splits())
        return is_read and self.is_settled()


def ranges(count: int, splits: int) -> dict[str, tuple[int, int]]:
    """Return the first and the exclusive last integer of each split, by split name.

    No split is empty, and their sizes differ by at most one.
    """
    bounds = [count * number // splits for number in range(splits + 1)]
    return {f"{a}-{b - 1}": (a, b) for a, b in itertools.pairwise(bounds) if a < b}

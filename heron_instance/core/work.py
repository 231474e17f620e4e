"""The batch a bolt has in hand, and how far it is.

Tuples are made as they are asked for, and the iterator over the rows knows how many are left: no counter of ours runs
along with user code.
"""

from __future__ import annotations

from collections import deque
from operator import length_hint
from typing import Any

from heron_instance.core.input_batch import InputBatch
from heronry.api.tuples import Tuple


class Work:
    """``rows`` are the values of the batch; ``tuples`` gives out the next ones."""

    def __init__(self, batch: InputBatch, rows: list[tuple[Any, ...]]) -> None:
        self.batch = batch
        self.rows = rows
        self.count = len(rows)
        self.acked = 0  # a bolt without acks of its own: the tuples before this one are settled
        self._left = iter(rows)
        self.tuples = map(Tuple, self._left, range(self.count), [batch] * self.count)

    def position(self) -> int:
        """The index of the next tuple."""
        return self.count - length_hint(self._left)

    def skip_all(self) -> None:
        """The batch is processed as a whole."""
        deque(self._left, 0)

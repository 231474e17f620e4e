"""Groupings by a key: fields grouping, and partial key grouping for keys so frequent that one task cannot take them.

Both go by the key group (``heron_runtime/model/keys.py``) and the plan's table, so every task that emits sends a key
the same way. Partial key grouping has two tasks for each key group and takes, row by row, the one to which this task
has sent less (Nasir et al., ICDE 2015: the power of both choices). What each emitter balances by itself is balanced in
sum, so nobody has to ask anybody. A reader then holds a part of a key's tuples, and the parts have to be put together
by a bolt behind it that reads with fields grouping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

import mmh3
import numpy as np

from heron_instance.core.groupings import EVERYTHING, Grouping, Part, Row, by_slot
from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.keys import HASH_SEED, group_of, group_of_many

KEY_TYPES = frozenset({str, bytes, int, float, bool, type(None)})  # need no closer look
_NO_SIGN = repeat(False)
_SEEDS = repeat(HASH_SEED)
_MIX = 0x9E3779B1  # spreads neighbouring groups: an odd number near 2**32 by the golden ratio


def groups_of_keys(keys: list[Any], *, single: bool) -> Any:
    """The key group of each key, as an array; keys of several fields (not ``single``) are tuples of them."""
    count = len(keys)
    if single:
        # mmh3 must not see a str without UTF-8 (keys.py), hence the test for ASCII.
        if set(map(type, keys)) == {str} and "".join(keys).isascii():
            hashes = np.fromiter(map(mmh3.hash, keys, _SEEDS, _NO_SIGN), np.uint32, count)
            return hashes & (KEY_GROUPS - 1)
        return np.fromiter(map(group_of, keys), np.uint16, count)
    return np.fromiter(map(group_of_many, keys), np.uint16, count)


class Fields(Grouping):
    """Equal keys to the same task: key, key group, task, by the plan's table."""

    def __init__(self, tasks: tuple[int, ...], table: Sequence[int], positions: tuple[int, ...]) -> None:
        super().__init__(tasks)
        slot_of = {task: slot for slot, task in enumerate(tasks)}
        self._slots = np.array([slot_of[task] for task in table], dtype=np.uint16)
        self._positions = positions
        self._key: Callable[[Row], Any] = itemgetter(*positions)
        self._single = len(positions) == 1

    def check(self, row: Row) -> None:
        """Raises UnsupportedKey, which names no place yet, when the row's key cannot be hashed."""
        for position in self._positions:
            if type(row[position]) not in KEY_TYPES:
                group_of(row[position])

    def split(self, rows: list[Row]) -> list[Part]:
        """Hash, look up, sort stably by task."""
        if len(self.tasks) == 1:
            return [Part(self.tasks, rows, EVERYTHING)]
        return by_slot(self._slots[self.groups(rows)], rows, self.tasks)

    def groups(self, rows: list[Row]) -> Any:
        """The key group of each row."""
        return groups_of_keys(list(map(self._key, rows)), single=self._single)


class PartialKey(Fields):
    """Equal keys to one of two tasks, whichever has got less from here so far."""

    def __init__(self, tasks: tuple[int, ...], table: Sequence[int], positions: tuple[int, ...]) -> None:
        super().__init__(tasks, table, positions)
        width = len(tasks)
        mixed = np.arange(len(self._slots), dtype=np.uint64) * np.uint64(_MIX) % np.uint64(1 << 32)
        distance = 1 + (mixed >> np.uint64(16)).astype(np.int64) % max(1, width - 1)  # so never the first choice again
        self._others = ((self._slots + distance) % width).astype(np.uint16)
        self._sent = [0] * width

    def split(self, rows: list[Row]) -> list[Part]:
        """Two choices for each row, then as fields grouping does."""
        if len(self.tasks) == 1:
            return [Part(self.tasks, rows, EVERYTHING)]
        groups, sent, slots = self.groups(rows), self._sent, []
        for one, other in zip(self._slots[groups].tolist(), self._others[groups].tolist(), strict=True):
            slot = other if sent[other] < sent[one] else one
            sent[slot] += 1
            slots.append(slot)
        return by_slot(np.array(slots, np.uint16), rows, self.tasks)

"""What a checkpoint takes of the state by key, at the moment at which it is taken.

Theory of operation. The executor stands while a checkpoint is taken. To look up each entry that has changed, or whose
group is due in full, to sort them by key group and to encode them takes microseconds each; to copy the whole mapping
takes a few nanoseconds an entry. So where no value can be changed in place (``may_wait``) the checkpoint takes a copy
of the mapping, and a thread that writes the part does the rest while records are processed again: what an entry is set
to meanwhile is another value. Otherwise all of it is done while the executor stands, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from heron_instance.core.key_groupings import groups_of_keys

Row = tuple[Any, ...]  # (key, value), (key, value, when it ends), or (key,): deleted


@dataclass(frozen=True, slots=True)
class GroupRows:
    """What a checkpoint holds of one key group: all entries (``full``), or those that changed and were deleted."""

    group: int
    full: bool
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Taken:
    """Entries by index: ``values``, ``keys`` of those that are not their own index, ``ends`` of those that have one.

    ``full``: who is in the groups of ``due``, a set of groups, which are held in full; ``changed``: who else counts;
    ``single``: keys have one field. Iterating gives the blocks, in order of groups.
    """

    values: dict[Any, Any]
    keys: dict[Any, Any]
    ends: dict[Any, float]
    due: int
    full: set[Any]
    changed: list[set[Any]]
    single: bool
    may_wait: bool

    def __iter__(self) -> Iterator[GroupRows]:
        """Where there is no block of a group that is due in full, the group is empty."""
        values, keys, ends = self.values, self.keys, self.ends
        for group, indexes in self._by_group([*self.full, *set().union(*self.changed).difference(self.full)]):
            rows: list[Row] = [(i, values[i]) if i in values else (i,) for i in indexes]
            if ends:
                rows = [(*row, ends[row[0]]) if row[0] in ends else row for row in rows]
            if keys:
                rows = [(keys.get(row[0], row[0]), *row[1:]) for row in rows]
            if self.due >> group & 1:
                rows = [row for row in rows if len(row) > 1]
                if rows:
                    yield GroupRows(group, True, rows)
            else:
                yield GroupRows(group, False, rows)

    def _by_group(self, indexes: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        if not indexes:
            return
        keys = [self.keys.get(index, index) for index in indexes] if self.keys else indexes
        groups = groups_of_keys(keys, single=self.single)
        order = np.argsort(groups, kind="stable")
        found, starts = np.unique(groups[order], return_index=True)
        places = order.tolist()
        ends = [*starts.tolist()[1:], len(places)]
        for group, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
            yield group, [indexes[place] for place in places[start:end]]

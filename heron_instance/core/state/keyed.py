"""State by key: the mapping a component sees as ``self.keyed``, and what of it a checkpoint takes.

Theory of operation. A key belongs to a key group, the one by which fields grouping sends its tuples, and the task owns
the groups that the plan's table gives it; so the entry is where the tuples of its key come. On the way of a tuple an
entry is one look into one dictionary: the group is computed when a key is new, and for the keys of a checkpoint all at
once. Keys that have changed are remembered. Reading a value that could be changed in place counts as a change (``peek``
does not); so references must not outlive the call of user code that read them. A checkpoint takes the changes since the
last complete one that this task has heard of: what was taken for one that did not complete is taken again with the
next. Key groups are those of Carbone et al., "State Management in Apache Flink", VLDB 2017, section 3.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from heron_instance.core.key_groupings import groups_of_keys
from heron_instance.core.state.key_index import OWN_INDEX, index_of, index_of_many
from heron_runtime.model.checkpoints import FULL_EVERY, full_groups
from heron_runtime.model.keys import group_of, group_of_many

UNCHANGEABLE = frozenset(
    {str, bytes, int, float, bool, type(None), complex, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta}
)
_ABSENT = object()
Row = tuple[Any, ...]  # (key, value), or (key,): deleted


class NotOwned(LookupError):
    """A key of a group that another task owns."""


@dataclass(frozen=True, slots=True)
class GroupRows:
    """What a checkpoint holds of one key group: all entries (``full``), or those that changed and were deleted."""

    group: int
    full: bool
    rows: list[Row]


class KeyedState(MutableMapping[Any, Any]):
    """The entries of one task. ``groups``: the set of key groups it owns; ``fields``: of which its key consists.

    A key of several fields is given as a tuple. Raises NotOwned for the key of a group not owned, UnsupportedKey for
    what cannot be a key, KeyError as mappings do.
    """

    def __init__(self, groups: int, fields: int = 1, where: str = "this task") -> None:
        self.groups = groups
        self._group_of: Callable[[Any], int] = group_of if fields == 1 else group_of_many
        self._fields = fields
        self._where = where
        self._values: dict[Any, Any] = {}  # by index, as everything here
        self._keys: dict[Any, Any] = {}  # of those that are not their own index
        self._members: list[set[Any]] = [set() for _ in range(FULL_EVERY)]  # by the turn in which they are written
        self._changed: set[Any] = set()
        self._taken: dict[int, set[Any]] = {}  # by checkpoint, until one that is as new or newer is complete
        self._before: dict[Any, Any] | None = None  # for ``undo``

    # What users call.

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """The value, or the default. It counts as a change unless the value cannot be changed in place."""
        index = key if type(key) in OWN_INDEX else self._index(key)
        value = self._values.get(index, _ABSENT)
        if value is _ABSENT:
            self._check_owned(key)
            return default
        if type(value) not in UNCHANGEABLE:
            self._remember(index)
            self._changed.add(index)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        index = key if type(key) in OWN_INDEX else self._index(key)
        if self._before is not None:
            self._remember(index)
        if index not in self._values:
            self._members[self._check_owned(key) % FULL_EVERY].add(index)
            if index is not key:
                self._keys[index] = key
        self._values[index] = value
        self._changed.add(index)

    def __delitem__(self, key: Any) -> None:
        index = key if type(key) in OWN_INDEX else self._index(key)
        if index not in self._values:
            self._check_owned(key)
            raise KeyError(key)
        self._remember(index)
        self._drop(index, self._group_of(key))
        self._changed.add(index)

    def __contains__(self, key: object) -> bool:
        return self.peek(key, _ABSENT) is not _ABSENT

    def __iter__(self) -> Iterator[Any]:
        return iter([self._keys.get(index, index) for index in self._values])

    def __len__(self) -> int:
        return len(self._values)

    def peek(self, key: Any, default: Any = None) -> Any:
        """The value without counting as a change: only for looking at."""
        index = key if type(key) in OWN_INDEX else self._index(key)
        if index not in self._values:
            self._check_owned(key)
        return self._values.get(index, default)

    def _index(self, key: Any) -> Any:
        if self._fields == 1:
            return index_of(key)
        self._check_fields(key)
        return index_of_many(key)

    def _check_fields(self, key: Any) -> None:
        if type(key) is not tuple or len(key) != self._fields:
            raise TypeError(f"a key of {self._where} has {self._fields} fields: give a tuple of them, not {key!r:.80}")

    def _check_owned(self, key: Any) -> int:
        """The key's group."""
        if self._fields != 1:
            self._check_fields(key)
        group = self._group_of(key)
        if not self.groups >> group & 1:
            raise NotOwned(
                f"key {key!r:.80} belongs to another task than {self._where}: use the key of the tuple in hand, "
                "by which the fields grouping has sent it here"
            )
        return group

    def _drop(self, index: Any, group: int) -> None:
        del self._values[index]
        self._members[group % FULL_EVERY].discard(index)

    # A record that fails takes nothing with it.

    def begin(self) -> None:
        """From here on changes can be undone."""
        self._before = {}

    def keep(self) -> None:
        """What has changed since ``begin`` stays."""
        self._before = None

    def undo(self) -> None:
        """Everything is as it was at ``begin``."""
        before, self._before = self._before or {}, None
        for index, value in before.items():
            key = self._keys.get(index, index)
            if value is not _ABSENT:
                self[key] = value
            elif index in self._values:
                self._drop(index, self._group_of(key))

    def _remember(self, index: Any) -> None:
        if self._before is not None and index not in self._before:
            value = self._values.get(index, _ABSENT)
            self._before[index] = value if value is _ABSENT else copy.deepcopy(value)

    # Checkpoints.

    def take(self, checkpoint: int, turn: int) -> Iterator[GroupRows]:
        """What this checkpoint holds, in order of groups; values are those of this moment, not copies.

        Where there is no block of a group that is due in full, the group is empty.
        """
        if self._changed:
            self._taken[checkpoint] = self._changed
            self._changed = set()
        changed = set().union(*self._taken.values())
        full = self._members[turn % FULL_EVERY]
        due, values, keys = full_groups(turn), self._values, self._keys
        for group, indexes in self._by_group([*full, *(changed - full)]):
            rows: list[Row] = [(i, values[i]) if i in values else (i,) for i in indexes]
            if keys:
                rows = [(keys.get(row[0], row[0]), *row[1:]) for row in rows]
            if due >> group & 1:
                rows = [row for row in rows if len(row) == 2]
                if rows:
                    yield GroupRows(group, True, rows)
            else:
                yield GroupRows(group, False, rows)

    def _by_group(self, indexes: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        if not indexes:
            return
        keys = [self._keys.get(index, index) for index in indexes] if self._keys else indexes
        groups = groups_of_keys(keys, single=self._fields == 1)
        order = np.argsort(groups, kind="stable")
        found, starts = np.unique(groups[order], return_index=True)
        places = order.tolist()
        ends = [*starts.tolist()[1:], len(places)]
        for group, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
            yield group, [indexes[place] for place in places[start:end]]

    def completed(self, checkpoint: int) -> None:
        """This checkpoint is complete: what it has taken need not be taken again."""
        self._taken = {taken: keys for taken, keys in self._taken.items() if taken > checkpoint}
        if len(self._keys) > 2 * len(self._values) + 1024:  # keys of entries that have long been deleted
            needed = self._changed.union(self._values, *self._taken.values())
            self._keys = {index: key for index, key in self._keys.items() if index in needed}

    def load(self, blocks: Iterable[GroupRows]) -> None:
        """Apply blocks that checkpoints have taken, oldest first, beginning with an empty state. Nothing of it counts
        as a change."""
        for block in blocks:
            members = self._members[block.group % FULL_EVERY]
            for row in block.rows:
                key = row[0]
                index = key if type(key) in OWN_INDEX else self._index(key)
                if len(row) == 1:
                    self._values.pop(index, None)
                    members.discard(index)
                    continue
                self._values[index] = row[1]
                members.add(index)
                if index is not key:
                    self._keys[index] = key

    def check(self) -> None:
        """Assert every invariant."""
        assert sum(map(len, self._members)) == len(self._values)
        assert all(checkpoint > 0 for checkpoint in self._taken), "taken for no checkpoint"
        for index in self._values:
            key = self._keys.get(index, index)
            group = self._check_owned(key)
            assert index in self._members[group % FULL_EVERY], f"{key!r} is in group {group}"
            assert (index_of(key) if self._fields == 1 else index_of_many(key)) == index

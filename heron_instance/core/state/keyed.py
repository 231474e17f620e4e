"""State by key: the mapping a component sees as ``self.keyed``, and what of it a checkpoint takes.

Theory of operation. Entries live in their key groups, of which the task owns those that the plan's table gives it; a
key's group is that of the fields grouping, so the entry is where the tuples of its key come. Each group remembers which
keys have changed. Reading a value that could be changed in place counts as a change (``peek`` does not); so references
must not outlive the call of user code that read them. A checkpoint takes the changes since the last complete one that
this task has heard of: changes that were taken for a checkpoint which did not complete are taken again with the next.
Carbone et al., "State Management in Apache Flink", VLDB 2017, section 3, has key groups; deltas are of our own making.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from heron_instance.core.state.key_index import OWN_INDEX, index_of, index_of_many
from heron_runtime.model.checkpoints import full_groups, members
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


class _Group:
    """The entries of one key group, by index; ``keys`` has the keys that are not their own index."""

    __slots__ = ("changed", "keys", "taken", "values")

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.keys: dict[Any, Any] = {}
        self.changed: set[Any] = set()
        self.taken: dict[int, set[Any]] = {}  # by checkpoint, until one that is as new or newer is complete


class KeyedState(MutableMapping[Any, Any]):
    """The entries of one task. ``groups``: the set of key groups it owns; ``fields``: of which its key consists.

    A key of several fields is given as a tuple. Raises NotOwned for the key of a group not owned, UnsupportedKey for
    what cannot be a key, KeyError as mappings do.
    """

    def __init__(self, groups: int, fields: int = 1, where: str = "this task") -> None:
        self.groups = groups
        self._groups = {number: _Group() for number in members(groups)}
        self._group_of: Callable[[Any], int] = group_of if fields == 1 else group_of_many
        self._index_of: Callable[[Any], Any] = index_of if fields == 1 else index_of_many
        self._fields = fields
        self._where = where
        self._before: dict[tuple[int, Any], tuple[Any, Any]] | None = None  # for ``undo``

    # What users call.

    def __getitem__(self, key: Any) -> Any:
        group, index = self._find(key)
        value = group.values[index]
        if type(value) not in UNCHANGEABLE:
            self._will_change(group, index)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        group, index = self._find(key)
        self._will_change(group, index)
        group.values[index] = value
        if index is not key:
            group.keys.setdefault(index, key)

    def __delitem__(self, key: Any) -> None:
        group, index = self._find(key)
        if index not in group.values:
            raise KeyError(key)
        self._will_change(group, index)
        del group.values[index]

    def __contains__(self, key: object) -> bool:
        group, index = self._find(key)
        return index in group.values

    def __iter__(self) -> Iterator[Any]:
        for group in self._groups.values():
            for index in list(group.values):
                yield group.keys.get(index, index)

    def __len__(self) -> int:
        return sum(len(group.values) for group in self._groups.values())

    def peek(self, key: Any, default: Any = None) -> Any:
        """The value without counting as a change: only for looking at."""
        group, index = self._find(key)
        return group.values.get(index, default)

    def _find(self, key: Any) -> tuple[_Group, Any]:
        if self._fields != 1 and (type(key) is not tuple or len(key) != self._fields):
            raise TypeError(
                f"the key of {self._where} has {self._fields} fields: give them as a tuple, not {key!r:.80}"
            )
        group = self._groups.get(self._group_of(key))
        if group is None:
            raise NotOwned(
                f"key {key!r:.80} belongs to another task than {self._where}: use the key of the tuple in hand, "
                "by which the fields grouping has sent it here"
            )
        return group, key if type(key) in OWN_INDEX else self._index_of(key)

    def _will_change(self, group: _Group, index: Any) -> None:
        group.changed.add(index)
        if self._before is not None and (id(group), index) not in self._before:
            value = group.values.get(index, _ABSENT)
            self._before[id(group), index] = (group, value if value is _ABSENT else copy.deepcopy(value))

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
        for (_, index), (group, value) in before.items():
            if value is _ABSENT:
                group.values.pop(index, None)
            else:
                group.values[index] = value

    # Checkpoints.

    def take(self, checkpoint: int, turn: int) -> Iterator[GroupRows]:
        """What this checkpoint holds, group by group; values are those of this moment, not copies."""
        full = full_groups(turn)
        for number, group in self._groups.items():
            if group.changed:
                group.taken[checkpoint] = group.changed
                group.changed = set()
            if full >> number & 1:
                if group.values:  # where there is no block of a group due in full, it is empty
                    yield GroupRows(number, True, [(self._key(group, i), value) for i, value in group.values.items()])
            elif group.taken:
                indexes = set().union(*group.taken.values())
                yield GroupRows(number, False, [self._row(group, index) for index in indexes])

    def completed(self, checkpoint: int) -> None:
        """This checkpoint is complete: what it has taken need not be taken again."""
        for group in self._groups.values():
            if group.taken:
                group.taken = {taken: keys for taken, keys in group.taken.items() if taken > checkpoint}
            if len(group.keys) > 2 * len(group.values) + 64:  # keys of entries that have long been deleted
                alive = set(group.values).union(group.changed, *group.taken.values())
                group.keys = {index: key for index, key in group.keys.items() if index in alive}

    def load(self, blocks: Iterable[GroupRows]) -> None:
        """Apply blocks that checkpoints have taken, oldest first. Nothing of it counts as a change."""
        for block in blocks:
            group = self._groups[block.group]
            if block.full:
                group.values.clear()
                group.keys.clear()
            for row in block.rows:
                key = row[0]
                index = key if type(key) in OWN_INDEX else self._index_of(key)
                if len(row) == 1:
                    group.values.pop(index, None)
                    continue
                group.values[index] = row[1]
                if index is not key:
                    group.keys[index] = key

    def _row(self, group: _Group, index: Any) -> Row:
        key = self._key(group, index)
        value = group.values.get(index, _ABSENT)
        return (key,) if value is _ABSENT else (key, value)

    @staticmethod
    def _key(group: _Group, index: Any) -> Any:
        return group.keys.get(index, index)

    def check(self) -> None:
        """Assert every invariant."""
        assert set(self._groups) == set(members(self.groups))
        for number, group in self._groups.items():
            assert all(checkpoint > 0 for checkpoint in group.taken), "taken for no checkpoint"
            for index in group.values:
                key = self._key(group, index)
                assert self._group_of(key) == number, f"{key!r} is in group {number}"
                assert self._index_of(key) == index

"""State by key: the mapping a component sees as ``self.keyed``, and what of it a checkpoint takes.

Theory of operation. A key belongs to a key group, the one by which fields grouping sends its tuples, and the task owns
the groups that the plan's table gives it; so the entry is where the tuples of its key come. On the way of a tuple an
entry is one look into one dictionary: the group is computed when a key is new, and for the keys of a checkpoint all at
once. Keys that have changed are remembered. Reading a value that could be changed in place counts as a change (``peek``
does not); so references must not outlive the call of user code that read them. A checkpoint takes the changes since the
last complete one that this task has heard of: what was taken for one that did not complete is taken again with the
next. Entries may have a time to live (``expiry.py``). Key groups are those of Carbone et al., "State Management in
Apache Flink", VLDB 2017, section 3.
"""

from __future__ import annotations

import copy
import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from decimal import Decimal
from typing import Any

from heron_instance.core.state.expiry import Expiry
from heron_instance.core.state.key_index import OWN_INDEX, index_of, index_of_many
from heron_instance.core.state.references import KeptReference, References
from heron_instance.core.state.taken import GroupRows, Taken
from heron_runtime.model.checkpoints import FULL_EVERY, full_groups
from heron_runtime.model.keys import group_of, group_of_many

UNCHANGEABLE = frozenset(
    {str, bytes, int, float, bool, type(None), complex, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta}
)
_ABSENT = object()


class NotOwned(LookupError):
    """A key of a group that another task owns."""


class KeyedState(MutableMapping[Any, Any]):
    """The entries of one task. ``groups``: the set of key groups it owns; ``fields``: of which its key consists;
    ``wall`` gives seconds since 1970.

    A key of several fields is given as a tuple. Raises NotOwned for the key of a group not owned, UnsupportedKey for
    what cannot be a key, KeyError as mappings do.
    """

    def __init__(
        self, groups: int, fields: int = 1, where: str = "this task", wall: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.groups = groups
        self._group_of: Callable[[Any], int] = group_of if fields == 1 else group_of_many
        self._fields = fields
        self._where = where
        self._values: dict[Any, Any] = {}  # by index, as everything here
        self._keys: dict[Any, Any] = {}  # of those that are not their own index
        self._members: list[set[Any]] = [set() for _ in range(FULL_EVERY)]  # by the turn in which they are written
        self._changed: set[Any] = set()
        self._taken: dict[int, set[Any]] = {}  # by checkpoint, until one that is as new or newer is complete
        self._expiry = Expiry(wall)
        self._plain = True  # no value ever was one that can be changed in place
        self._references = References(UNCHANGEABLE)
        self._before: dict[Any, tuple[Any, float | None]] | None = None  # for ``undo``: value, when it ended

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
            self._changed.add(index)
            if self._before is not None:
                return self._own(index, value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        index = key if type(key) in OWN_INDEX else self._index(key)
        if self._before is not None:
            self._remember(index)
        if self._expiry.times:
            self._expiry.forget(index)
        if index not in self._values:
            self._members[self._check_owned(key) % FULL_EVERY].add(index)
            if index is not key:
                self._keys[index] = key
        self._values[index] = value
        self._changed.add(index)
        if type(value) not in UNCHANGEABLE and not _is_plain_tuple(value):
            self._plain = False

    def put(self, key: Any, value: Any, ttl: float | None = None) -> None:
        """Set the value; with ``ttl`` the entry is gone so many seconds of processing time later, unless it is set
        anew. Time stands still within a call of user code. Raises ValueError for a time that is not positive."""
        if ttl is None:
            self[key] = value
            return
        if not 0 < ttl < math.inf:
            raise ValueError(f"the time to live of an entry is a positive number of seconds, not {ttl!r}")
        self[key] = value
        self._expiry.set(key if type(key) in OWN_INDEX else self._index(key), self._expiry.now + ttl)

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
        if self._expiry.times:
            self._expiry.forget(index)

    # Time.

    def pass_time(self) -> None:
        """Between two calls of user code: entries whose time has come are gone."""
        for index in self._expiry.pass_time():
            self._drop(index, self._group_of(self._keys.get(index, index)))
            self._changed.add(index)

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
        for index, (value, at) in before.items():
            key = self._keys.get(index, index)
            if value is not _ABSENT:
                self[key] = value
                if at is not None:
                    self._expiry.set(index, at)
            elif index in self._values:
                self._drop(index, self._group_of(key))

    def _remember(self, index: Any) -> None:
        """What the entry is before it is replaced or deleted."""
        if self._before is not None and index not in self._before:
            self._before[index] = self._values.get(index, _ABSENT), self._expiry.times.get(index)

    def _own(self, index: Any, value: Any) -> Any:
        """A copy for this call, which may be changed in place. The value itself comes back untouched if the call is
        undone, and stays as it is in tuples that earlier calls have emitted."""
        if self._before is None or index in self._before:
            return value
        self._remember(index)
        mine = self._values[index] = copy.deepcopy(value)
        return mine

    # Checkpoints.

    def check_references(self) -> None:
        """Before each ``take``, and after ``load``, where mistakes are looked for. Raises KeptReference."""
        lost = self._references.lost(self._values, self._changed)
        if lost:
            key = self._keys.get(lost[0], lost[0])
            raise KeptReference(
                f"the value of key {key!r:.80} in self.keyed of {self._where} has changed although no call has read it "
                "since the last checkpoint, so the change would be lost: some code keeps a reference beyond the call "
                "that read it, or changes what peek() gave; read self.keyed[key] in the call that changes it"
                + (f" ({len(lost)} such keys)" if len(lost) > 1 else "")
            )

    def take(self, checkpoint: int, turn: int) -> Taken:
        """What this checkpoint holds: of this moment where it may wait, else to be read before anything changes."""
        if self._changed:
            self._taken[checkpoint] = self._changed  # from here on nobody changes this set
            self._changed = set()
        values, keys, ends, full = self._values, self._keys, self._expiry.times, self._members[turn % FULL_EVERY]
        if self._plain:
            values, keys, ends, full = values.copy(), keys.copy(), ends.copy(), full.copy()
        return Taken(
            values, keys, ends, full_groups(turn), full, list(self._taken.values()), self._fields == 1, self._plain
        )

    def completed(self, checkpoint: int) -> None:
        """This checkpoint is complete: what it has taken need not be taken again."""
        self._taken = {taken: keys for taken, keys in self._taken.items() if taken > checkpoint}
        if len(self._keys) > 2 * len(self._values) + 1024:  # keys of entries that have long been deleted
            needed = self._changed.union(self._values, *self._taken.values())
            self._keys = {index: key for index, key in self._keys.items() if index in needed}

    def load(self, blocks: Iterable[GroupRows]) -> None:
        """Apply blocks that checkpoints have taken, oldest first, beginning with an empty state. Nothing of it counts
        as a change. What has ended meanwhile is gone when time passes next."""
        for block in blocks:
            members = self._members[block.group % FULL_EVERY]
            for row in block.rows:
                key = row[0]
                index = key if type(key) in OWN_INDEX else self._index(key)
                if self._expiry.times:
                    self._expiry.forget(index)
                if len(row) == 1:
                    self._values.pop(index, None)
                    members.discard(index)
                    continue
                self._values[index] = row[1]
                members.add(index)
                if type(row[1]) not in UNCHANGEABLE and not _is_plain_tuple(row[1]):
                    self._plain = False
                if len(row) > 2:
                    self._expiry.set(index, row[2])
                if index is not key:
                    self._keys[index] = key

    def check(self) -> None:
        """Assert every invariant."""
        self._expiry.check()
        assert self._expiry.times.keys() <= self._values.keys(), "what is gone cannot end"
        assert sum(map(len, self._members)) == len(self._values)
        assert all(checkpoint > 0 for checkpoint in self._taken), "taken for no checkpoint"
        for index, value in self._values.items():
            assert not self._plain or type(value) in UNCHANGEABLE or _is_plain_tuple(value), "would change as it waits"
            key = self._keys.get(index, index)
            group = self._check_owned(key)
            assert index in self._members[group % FULL_EVERY], f"{key!r} is in group {group}"
            assert (index_of(key) if self._fields == 1 else index_of_many(key)) == index


def _is_plain_tuple(value: Any) -> bool:
    return type(value) is tuple and UNCHANGEABLE.issuperset(map(type, value))

"""Keyed state: the mapping that a component sees as ``self.keyed``, and its snapshots.

Theory of operation. A key belongs to the key group by which fields grouping sends its tuples, and a task owns the
groups that the plan's table assigns to it; so an entry is where the tuples of its key arrive. For a tuple an entry is
one look-up in one dictionary: the group is computed when a key is new, and for the keys of a checkpoint all at once.
Changed keys are recorded. Reading a value that could be changed in place counts as a change (``peek`` does not), so
references must not outlive the call of user code that read them. A checkpoint takes the changes since the last complete
one that this task has heard of: changes taken for a checkpoint that did not complete are taken again with the next. Key
groups are those of Carbone et al., "State Management in Apache Flink", VLDB 2017, section 3.

*Key index.* Keys that fields grouping sends to one task as the same key must find the same entry, and no other
(``heron_runtime/model/keys.py``). Python's equality agrees with that for most keys, numbers of all kinds included.
Where it does not (NaN, hooks, aware datetimes, and containers of these), the canonical encoding is the index.

*Time to live.* Moments are absolute (seconds since 1970), so that they mean the same after a restore and in another
task. A heap orders them: when time passes, entries that are due are taken from it, and no other is touched. An entry
whose moment has changed leaves a stale item in the heap, which is ignored when its turn comes. When stale items exceed
the entries, the heap is rebuilt, so it stays within a constant factor of them. Time passes only between calls of user
code (``pass_time``), and never backwards.

*Reference check.* A setting for finding mistakes (``topology.stateful.check.references``). A reference that outlives
its call, or the value of a ``peek``, can be changed without a checkpoint taking the change, and after a restore the
change is gone. The check keeps a digest of each such value from one checkpoint to the next: where it differs and the
key was not touched in between, a checkpoint would have lost the change. It pickles all values at each checkpoint.
"""

from __future__ import annotations

import copy
import datetime as dt
import hashlib
import heapq
import itertools
import math
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from decimal import Decimal
from typing import Any

from heron_instance.core.state.snapshot import KeyedSnapshot, KeyGroupRows
from heron_runtime.model.checkpoints import FULL_EVERY, full_groups
from heron_runtime.model.keys import PLAIN_KEY_TYPES, group_of, group_of_many, index_of

SPARE_ENTRIES = 1024  # stale items allowed in a small heap
IMMUTABLE_TYPES = frozenset(
    {str, bytes, int, float, bool, type(None), complex, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta}
)
_ABSENT = object()


def index_of_many(key: tuple[Any, ...]) -> Any:
    """Return the index of a key of several fields, given as a tuple."""
    if set(map(type, key)) <= PLAIN_KEY_TYPES:
        return key
    return tuple(map(index_of, key))


class ExpiryQueue:
    """Times to live of the entries of one task, by index.

    Args:
        wall: Returns seconds since 1970.

    Attributes:
        times: End of each entry that has one.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.times: dict[Any, float] = {}
        self.now = wall()
        self._wall = wall
        self._heap: list[tuple[float, int, Any]] = []
        self._numbers = itertools.count()  # tie breaker: indexes of different types have no order

    def set(self, index: Any, at: float) -> None:
        """Set the end of an entry."""
        self.times[index] = at
        heapq.heappush(self._heap, (at, next(self._numbers), index))
        self._tidy()

    def forget(self, index: Any) -> None:
        """Remove the end of an entry."""
        if self.times.pop(index, None) is not None:
            self._tidy()

    def pass_time(self) -> list[Any]:
        """Advance the time. Return the entries that have ended since the last call, and forget them."""
        now = self.now = max(self.now, self._wall())
        heap, times, due = self._heap, self.times, []
        while heap and heap[0][0] <= now:
            at, _, index = heapq.heappop(heap)
            if times.get(index) == at:
                del times[index]
                due.append(index)
        return due

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self.times) + SPARE_ENTRIES:
            self._heap = [(at, next(self._numbers), index) for index, at in self.times.items()]
            heapq.heapify(self._heap)

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._heap) <= 2 * len(self.times) + SPARE_ENTRIES
        assert set(self.times.items()) <= {(index, at) for at, _, index in self._heap}, "not in the heap"


class StaleReference(TypeError):
    """A value was changed by a reference that outlived the call of user code that read it."""


class ReferenceChecker:
    """Digests of the values of one task. ``unchangeable``: types of values that need none."""

    def __init__(self, unchangeable: Collection[object]) -> None:
        self._unchangeable = unchangeable
        self._digests: dict[Any, bytes] = {}

    def lost(self, values: Mapping[Any, Any], touched: Collection[Any]) -> list[Any]:
        """Return the keys whose values have changed since the last call, except those ``touched`` since then."""
        before = self._digests
        self._digests = {
            key: digest
            for key, value in values.items()
            if type(value) not in self._unchangeable and (digest := _digest(value)) is not None
        }
        return [key for key, now in self._digests.items() if key not in touched and before.get(key, now) != now]


def _digest(value: Any) -> bytes | None:
    """Return the digest of a value, or None if it cannot be pickled: the checkpoint reports that."""
    try:
        return hashlib.blake2b(pickle.dumps(value, 5), digest_size=16).digest()
    except Exception:  # any exception of a user's value
        return None


class NotOwned(LookupError):
    """Key of a group that another task owns."""


class KeyedState(MutableMapping[Any, Any]):
    """Keyed entries of one task.

    Args:
        groups: Bit set of the key groups that the task owns.
        fields: Number of fields of a key; a key of several fields is a tuple.
        where: Location for error messages.
        wall: Returns seconds since 1970.

    Raises:
        NotOwned: The key belongs to a group that is not owned.
        UnsupportedKey: The value cannot be a key.
        KeyError: As mappings do.
    """

    def __init__(
        self, groups: int, fields: int = 1, where: str = "this task", wall: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.groups = groups
        self._group_of: Callable[[Any], int] = group_of if fields == 1 else group_of_many
        self._fields = fields
        self._where = where
        self._values: dict[Any, Any] = {}  # by index, as everything here
        self._keys: dict[Any, Any] = {}  # of entries whose key is not its index
        self._members: list[set[Any]] = [set() for _ in range(FULL_EVERY)]  # by the turn of a full write
        self._changed: set[Any] = set()
        self._taken: dict[int, set[Any]] = {}  # by checkpoint, until it or a newer one is complete
        self._expiry = ExpiryQueue(wall)
        self._plain = True  # every value so far is immutable
        self._references = ReferenceChecker(IMMUTABLE_TYPES)
        self._before: dict[Any, tuple[Any, float | None]] | None = None  # for ``undo``: value and its end

    # Public methods.

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value, or the default. It counts as a change unless the type of the value is immutable."""
        index = key if type(key) in PLAIN_KEY_TYPES else self._index(key)
        value = self._values.get(index, _ABSENT)
        if value is _ABSENT:
            self._check_owned(key)
            return default
        if type(value) not in IMMUTABLE_TYPES:
            self._changed.add(index)
            if self._before is not None:
                return self._own(index, value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        index = key if type(key) in PLAIN_KEY_TYPES else self._index(key)
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
        if type(value) not in IMMUTABLE_TYPES and not _is_plain_tuple(value):
            self._plain = False

    def put(self, key: Any, value: Any, ttl: float | None = None) -> None:
        """Set the value.

        Args:
            key: Key of the entry.
            value: New value.
            ttl: Seconds of processing time until the entry ends, unless it is set again. Time does not pass within a
                call of user code.

        Raises:
            ValueError: ``ttl`` is not a positive number.
        """
        if ttl is None:
            self[key] = value
            return
        if not 0 < ttl < math.inf:
            raise ValueError(f"invalid ttl {ttl!r}: must be a positive number of seconds")
        self[key] = value
        self._expiry.set(key if type(key) in PLAIN_KEY_TYPES else self._index(key), self._expiry.now + ttl)

    def __delitem__(self, key: Any) -> None:
        index = key if type(key) in PLAIN_KEY_TYPES else self._index(key)
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
        """Return the value without counting it as a change, for reading only."""
        index = key if type(key) in PLAIN_KEY_TYPES else self._index(key)
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
            raise TypeError(f"{self._where}: a key must be a tuple of {self._fields} fields, not {key!r:.80}")

    def _check_owned(self, key: Any) -> int:
        """Return the group of the key. Raises NotOwned."""
        if self._fields != 1:
            self._check_fields(key)
        group = self._group_of(key)
        if not self.groups >> group & 1:
            raise NotOwned(
                f"{self._where}: key {key!r:.80} belongs to another task\nhint: use the key of the current tuple, by "
                "which fields grouping has sent it here"
            )
        return group

    def _drop(self, index: Any, group: int) -> None:
        del self._values[index]
        self._members[group % FULL_EVERY].discard(index)
        if self._expiry.times:
            self._expiry.forget(index)

    # Time.

    def pass_time(self) -> None:
        """Remove the entries that have ended. Called between two calls of user code."""
        for index in self._expiry.pass_time():
            self._drop(index, self._group_of(self._keys.get(index, index)))
            self._changed.add(index)

    # Undo of the changes of a failed record.

    def begin(self) -> None:
        """Begin to record changes for ``undo``."""
        self._before = {}

    def keep(self) -> None:
        """Keep the changes since ``begin``."""
        self._before = None

    def undo(self) -> None:
        """Undo the changes since ``begin``."""
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
        """Record an entry before it is replaced or deleted."""
        if self._before is not None and index not in self._before:
            self._before[index] = self._values.get(index, _ABSENT), self._expiry.times.get(index)

    def _own(self, index: Any, value: Any) -> Any:
        """Return a copy for this call, which may be changed in place.

        The value itself comes back untouched if the call is undone, and is not changed in tuples emitted by earlier
        calls.
        """
        if self._before is None or index in self._before:
            return value
        self._remember(index)
        own_copy = self._values[index] = copy.deepcopy(value)
        return own_copy

    # Checkpoints.

    def check_references(self) -> None:
        """Check for stale references, before each ``take`` and after ``load``. Raises StaleReference."""
        lost = self._references.lost(self._values, self._changed)
        if lost:
            key = self._keys.get(lost[0], lost[0])
            raise StaleReference(
                f"{self._where}: the value of key {key!r:.80} in self.keyed has changed although no call has read it "
                "since the last checkpoint, so the change would be lost"
                + (f" ({len(lost)} such keys)" if len(lost) > 1 else "")
                + "\nhint: read self.keyed[key] in the call that changes it; do not keep references or change the "
                "value of peek()"
            )

    def take(self, checkpoint: int, turn: int) -> KeyedSnapshot:
        """Return the content of a checkpoint: a copy, or a view to be read before anything changes."""
        if self._changed:
            self._taken[checkpoint] = self._changed  # this set does not change any more
            self._changed = set()
        values, keys, ends, full = self._values, self._keys, self._expiry.times, self._members[turn % FULL_EVERY]
        if self._plain:
            values, keys, ends, full = values.copy(), keys.copy(), ends.copy(), full.copy()
        return KeyedSnapshot(
            values, keys, ends, full_groups(turn), full, list(self._taken.values()), self._fields == 1, self._plain
        )

    def completed(self, checkpoint: int) -> None:
        """Forget the changes taken for checkpoints up to this complete one."""
        self._taken = {taken: keys for taken, keys in self._taken.items() if taken > checkpoint}
        if len(self._keys) > 2 * len(self._values) + 1024:  # keys of entries that have long been deleted
            needed = self._changed.union(self._values, *self._taken.values())
            self._keys = {index: key for index, key in self._keys.items() if index in needed}

    def load(self, blocks: Iterable[KeyGroupRows]) -> None:
        """Load blocks of checkpoints, oldest first, into an empty state.

        The entries do not count as changed. Entries that have ended meanwhile are removed when time passes next.
        """
        for block in blocks:
            members = self._members[block.group % FULL_EVERY]
            for row in block.rows:
                key = row[0]
                index = key if type(key) in PLAIN_KEY_TYPES else self._index(key)
                if self._expiry.times:
                    self._expiry.forget(index)
                if len(row) == 1:
                    self._values.pop(index, None)
                    members.discard(index)
                    continue
                self._values[index] = row[1]
                members.add(index)
                if type(row[1]) not in IMMUTABLE_TYPES and not _is_plain_tuple(row[1]):
                    self._plain = False
                if len(row) > 2:
                    self._expiry.set(index, row[2])
                if index is not key:
                    self._keys[index] = key

    def check(self) -> None:
        """Assert every invariant."""
        self._expiry.check()
        assert self._expiry.times.keys() <= self._values.keys(), "an end without an entry"
        assert sum(map(len, self._members)) == len(self._values)
        assert all(checkpoint > 0 for checkpoint in self._taken), "taken for no checkpoint"
        for index, value in self._values.items():
            assert not self._plain or type(value) in IMMUTABLE_TYPES or _is_plain_tuple(value), (
                "a mutable value in a plain state"
            )
            key = self._keys.get(index, index)
            group = self._check_owned(key)
            assert index in self._members[group % FULL_EVERY], f"{key!r} is in group {group}"
            assert (index_of(key) if self._fields == 1 else index_of_many(key)) == index


def _is_plain_tuple(value: Any) -> bool:
    return type(value) is tuple and IMMUTABLE_TYPES.issuperset(map(type, value))

"""State by key: the mapping a component sees as ``self.keyed``, and what of it a checkpoint takes.

Theory of operation. A key belongs to a key group, the one by which fields grouping sends its tuples, and the task owns
the groups that the plan's table gives it; so the entry is where the tuples of its key come. On the way of a tuple an
entry is one look into one dictionary: the group is computed when a key is new, and for the keys of a checkpoint all at
once. Keys that have changed are remembered. Reading a value that could be changed in place counts as a change (``peek``
does not); so references must not outlive the call of user code that read them. A checkpoint takes the changes since the
last complete one that this task has heard of: what was taken for one that did not complete is taken again with the
next. Entries may have a time to live (``expiry.py``). Key groups are those of Carbone et al., "State Management in
Apache Flink", VLDB 2017, section 3.

One entry per key: what a key is looked up by in the state of a task.

Keys that fields grouping sends to one task as the same key must find the same entry, and no others
(``heron_runtime/model/keys.py``). Python's own equality agrees with that for most keys, numbers of all kinds included;
where it does not (NaN, hooks, aware datetimes, and whatever contains one) the canonical encoding is the index.

Time to live: which entries of keyed state end, and when.

Theory of operation. Moments are absolute (seconds since 1970), so that they mean the same after a restore and in
another task. A heap has the soonest in front: when time passes, entries that are due are taken from it, and no other is
looked at; a look at an entry in between asks nothing. An entry whose moment has changed leaves its old place in the
heap, which counts for nothing when its turn comes; when such places are more than the entries the heap is made anew, so
it stays within a constant factor of them. Time passes between calls of user code only (``pass_time``), never backwards.

A setting for finding mistakes: values of keyed state that user code changes behind the back of a checkpoint.

Theory of operation. A value that can be changed in place counts as changed when its key is read or written; so a
reference that outlives its call, or the value of a ``peek``, can be changed without the checkpoint taking it, and after
a restore the change is gone. Here a digest of each such value is kept from one checkpoint to the next: where it differs
and nobody has touched the key in between, a checkpoint would have lost the change. That costs a pickle of all values at
each checkpoint, so it is off unless asked for (``topology.stateful.check.references``).
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
from fractions import Fraction
from typing import Any

from heron_instance.core.state.snapshot import GroupRows, Taken
from heron_runtime.model.checkpoints import FULL_EVERY, full_groups
from heron_runtime.model.keys import encode, group_of, group_of_many

#: A key of one of these types is its own index: Python's equality is the canonical one. (A float may be NaN.)
OWN_INDEX = frozenset({str, int, bytes, bool, type(None)})
SPARE = 1024  # places that count for nothing, in a small heap
UNCHANGEABLE = frozenset(
    {str, bytes, int, float, bool, type(None), complex, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta}
)
_ABSENT = object()


def index_of(key: Any) -> Any:
    """What a key of one field is looked up by: equal for two keys if and only if they are the same. Raises
    UnsupportedKey."""
    if type(key) in OWN_INDEX:
        return key
    encoded = encode(key)
    tag, rest = encoded[:1], encoded[1:]
    if tag == b"s":
        return rest.decode("utf-8", "surrogatepass")
    if tag == b"b":
        return rest
    if tag == b"N":
        return None
    if tag == b"n" and rest.lstrip(b"-")[:1] in _HEX_DIGITS and rest.lstrip(b"-") not in (b"nan", b"inf"):
        above, _, below = rest.decode().partition("/")
        return Fraction(int(above, 16), int(below, 16)) if below else int(above, 16)
    return (encoded,)


def index_of_many(key: tuple[Any, ...]) -> Any:
    """The same for a key of several fields, given as a tuple."""
    if set(map(type, key)) <= OWN_INDEX:
        return key
    return tuple(map(index_of, key))


_HEX_DIGITS = tuple(bytes([digit]) for digit in b"0123456789abcdef")


class Expiry:
    """Of the entries of one task, by index. ``wall`` gives seconds since 1970. ``times``: when entries end that do."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.times: dict[Any, float] = {}
        self.now = wall()
        self._wall = wall
        self._heap: list[tuple[float, int, Any]] = []
        self._numbers = itertools.count()  # equal moments: indexes of different types have no order

    def set(self, index: Any, at: float) -> None:
        """This entry ends then."""
        self.times[index] = at
        heapq.heappush(self._heap, (at, next(self._numbers), index))
        self._tidy()

    def forget(self, index: Any) -> None:
        """This entry does not end, or is no more."""
        if self.times.pop(index, None) is not None:
            self._tidy()

    def pass_time(self) -> list[Any]:
        """It is now; the entries that have ended since the last time, which are forgotten."""
        now = self.now = max(self.now, self._wall())
        heap, times, due = self._heap, self.times, []
        while heap and heap[0][0] <= now:
            at, _, index = heapq.heappop(heap)
            if times.get(index) == at:
                del times[index]
                due.append(index)
        return due

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self.times) + SPARE:
            self._heap = [(at, next(self._numbers), index) for index, at in self.times.items()]
            heapq.heapify(self._heap)

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._heap) <= 2 * len(self.times) + SPARE
        assert set(self.times.items()) <= {(index, at) for at, _, index in self._heap}, "not in the heap"


class KeptReference(TypeError):
    """A value was changed by a reference that had outlived the call of user code that read it."""


class References:
    """The digests of one task. ``unchangeable``: types of values that need none."""

    def __init__(self, unchangeable: Collection[object]) -> None:
        self._unchangeable = unchangeable
        self._digests: dict[Any, bytes] = {}

    def lost(self, values: Mapping[Any, Any], touched: Collection[Any]) -> list[Any]:
        """The keys whose values have changed since the last call of this, but for those ``touched`` since then."""
        before = self._digests
        self._digests = {
            key: digest
            for key, value in values.items()
            if type(value) not in self._unchangeable and (digest := _digest(value)) is not None
        }
        return [key for key, now in self._digests.items() if key not in touched and before.get(key, now) != now]


def _digest(value: Any) -> bytes | None:
    """None for what cannot be written: the checkpoint says so itself."""
    try:
        return hashlib.blake2b(pickle.dumps(value, 5), digest_size=16).digest()
    except Exception:  # whatever user code's own values raise
        return None


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

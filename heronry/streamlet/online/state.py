"""State of a reducer: accumulators by window (or bucket) and key. Pure.

Keys are held by their index (``index_of``), and a key that differs from its index is kept beside it for results.
``changed`` collects what was touched since it was last taken.

Buckets of a view (a reducer without windows) never close. With ``totals``, the sum over all buckets is kept beside
them, for running results. Changes are reported twice: for running results (``take_shown``), and for a checkpoint
(``take_changed``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from heron_runtime.model.keys import PLAIN_KEY_TYPES, index_of
from heronry.streamlet.compare import canonical
from heronry.streamlet.monoid import Monoid

Start = int | None  # None: without windows
_MISSING: Any = object()


class RowFailed(Exception):
    """Error for a row that cannot be added.

    ``__cause__`` is the reason.

    Attributes:
        place: Index of the row.
        late: Indices of the late rows before it.
    """

    def __init__(self, place: int, late: list[int]) -> None:
        super().__init__(f"row {place}")
        self.place, self.late = place, late


class ReducerEntry(NamedTuple):
    """Accumulator with its window and key."""

    start: Start
    key: Any
    acc: Any


class WindowReducerState:
    """State of a reducer with or without windows.

    ``length_ms`` and ``wait_ms`` are those of the window. Without windows nothing is ever closed.
    """

    def __init__(
        self,
        monoid: Monoid[Any, Any],
        length_ms: int | None,
        wait_ms: int = 0,
        totals: bool = False,
    ) -> None:
        self._add, self._zero = monoid.add, monoid.zero
        self._totals = totals
        self._length_ms = length_ms
        self._wait_ms = wait_ms
        self._accs: dict[Start, dict[Hashable, Any]] = {}
        self._keys: dict[Hashable, Any] = {}
        self._changed: dict[Start, set[Hashable]] = {}  # not yet taken as running results
        self._unsaved: dict[Start, set[Hashable]] = {}  # taken as running results, and not yet checkpointed
        self._dropped: list[tuple[Start, Any]] = []
        self.closed_ms: int | None = None  # windows that end at or before this are closed

    def add(self, start: Start, key: Any, acc: Any) -> bool:
        """Add an accumulator. Errors of the monoid are raised unchanged.

        Returns:
            False if its window is closed.

        Raises:
            UnsupportedKey: The key cannot be encoded.
        """
        if self.closed_ms is not None and start is not None and start + (self._length_ms or 0) <= self.closed_ms:
            return False
        name = key if key.__class__ in PLAIN_KEY_TYPES else self._named(key)
        accs = self._accs.get(start)
        if accs is None:
            accs = self._begin(start)
        before = accs.get(name, _MISSING)
        total = self._total(name, acc) if self._totals and start is not None else None
        accs[name] = acc if before is _MISSING else self._add(before, acc)
        self._changed[start].add(name)
        if total is not None:
            self._accs[None][name] = total
            self._changed[None].add(name)
        return True

    def _begin(self, start: Start) -> dict[Hashable, Any]:
        """Return the accumulators of a window or bucket, which is created if absent."""
        self._changed.setdefault(start, set())
        return self._accs.setdefault(start, {})

    def _total(self, name: Hashable, acc: Any) -> Any:
        """Return the key's sum over all buckets, including this one.

        The monoid's ``add`` may keep and change only its first argument.
        """
        sums = self._accs.get(None)
        if sums is None:
            sums = self._begin(None)
        before = sums.get(name, _MISSING)
        return self._add(self._zero() if before is _MISSING else before, acc)

    def add_rows(self, rows: list[Any], begin: int = 0) -> list[int]:
        """Add rows from index ``begin`` on: (key, accumulator) or (key, start, accumulator, …).

        Returns:
            Indices of the late rows.

        Raises:
            RowFailed: A row cannot be added. The rows before it are added.
        """
        if not rows:
            return []
        place = begin
        late: list[int] = []
        try:
            if len(rows[0]) > 2:
                for place in range(begin, len(rows)):
                    key, start, acc = rows[place][:3]
                    if not self.add(start, key, acc):
                        late.append(place)
                return late
            # The hot loop of a word count.
            accs = self._begin(None)
            get, touch, add = accs.get, self._changed[None].add, self._add
            for place, (key, acc) in enumerate(islice(rows, begin, None), begin):  # noqa: B007  # used if a row fails
                name = key if key.__class__ in PLAIN_KEY_TYPES else self._named(key)
                before = get(name, _MISSING)
                accs[name] = acc if before is _MISSING else add(before, acc)
                touch(name)
        except Exception as error:
            raise RowFailed(place, late) from error
        return []

    def _named(self, key: Any) -> Hashable:
        name: Hashable = index_of(key)
        if name is not key:
            self._keys.setdefault(name, key)
        return name

    def key_of(self, name: Hashable) -> Any:
        """Return the key of an index."""
        return self._keys.get(name, name)

    def close(self, watermark_ms: int) -> list[tuple[int, list[ReducerEntry]]]:
        """Close every window whose end and lateness the watermark has reached. Return their entries, in order."""
        if self._length_ms is None:
            return []
        closed_ms = watermark_ms - self._wait_ms
        if self.closed_ms is not None and closed_ms <= self.closed_ms:
            return []
        self.closed_ms = closed_ms
        return self.due()

    def due(self) -> list[tuple[int, list[ReducerEntry]]]:
        """Drop windows that are closed and still here. After a restore, another task may have closed them."""
        length_ms, closed_ms = self._length_ms, self.closed_ms
        if length_ms is None or closed_ms is None:
            return []
        return [(start, self.drop(start)) for start in sorted(self.starts()) if start + length_ms <= closed_ms]

    def drop(self, start: int) -> list[ReducerEntry]:
        """Drop a window or bucket. Return its entries, in order of keys."""
        accs = self._accs.pop(start)
        self._changed.pop(start, None)
        self._unsaved.pop(start, None)
        entries = [ReducerEntry(start, self.key_of(name), acc) for name, acc in accs.items()]
        self._dropped += [(start, entry.key) for entry in entries]
        self._forget(accs)
        return sorted(entries, key=by_key)

    def _forget(self, names: Iterable[Hashable]) -> None:
        """Drop keys that no open window holds. Otherwise a stream of ever new keys would fill the memory."""
        if self._keys:
            for name in names:
                if name in self._keys and not any(name in accs for accs in self._accs.values()):
                    del self._keys[name]

    def take_shown(self) -> list[ReducerEntry]:
        """Return the entries touched since the last call, outside of windows and buckets."""
        for start, names in self._changed.items():
            if names:
                self._unsaved.setdefault(start, set()).update(names)
        names = self._changed.get(None, set())
        accs = self._accs.get(None, {})
        entries = [ReducerEntry(None, self.key_of(name), accs[name]) for name in names]
        self._changed = {start: set() for start in self._accs}
        return entries

    def take_changed(self) -> tuple[list[tuple[Start, Any]], list[ReducerEntry]]:
        """Return the changes since the last call.

        Returns:
            Windows and keys that were dropped, and the entries to be stored after that.
        """
        self.take_shown()
        entries = []
        for start, names in self._unsaved.items():
            accs = self._accs[start]
            entries += [ReducerEntry(start, self.key_of(name), accs[name]) for name in names]
        dropped, self._dropped = self._dropped, []
        self._unsaved = {}
        return dropped, entries

    def entries(self, start: Start) -> list[ReducerEntry]:
        """Return all entries of one window or bucket."""
        return [ReducerEntry(start, self.key_of(name), acc) for name, acc in self._accs.get(start, {}).items()]

    def starts(self) -> list[int]:
        """Return the starts of the open windows or buckets, in the order in which they were created."""
        return [start for start in self._accs if start is not None]

    def restore(self, entries: Iterable[ReducerEntry], closed_ms: int | None) -> None:
        """Restore the entries of a checkpoint."""
        self.closed_ms = closed_ms
        for start, key, acc in entries:
            self._begin(start)[self._named(key)] = acc

    def __len__(self) -> int:
        return sum(map(len, self._accs.values()))

    def check(self) -> None:
        """Assert that everything marked as changed exists."""
        for start, names in [*self._changed.items(), *self._unsaved.items()]:
            assert names <= self._accs.get(start, {}).keys(), "what was let go of has changed"


def by_key(entry: ReducerEntry) -> bytes:
    """Return the sort key for the results of a window."""
    return canonical(entry.key)

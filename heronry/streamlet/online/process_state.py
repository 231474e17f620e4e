"""State of a ``process`` step: the memory of each key, and the records of future moments. See ``state.py`` for windows.

Pure, except for the handlers that it calls.

``due_ms`` of a key is a time before which the key has neither a moment nor a timer. A heap holds the same times in
order. A key is examined when its time has come, rather than each time a timer is moved. The checkpoint keeps, for each
key, the records of each moment under its time, and the packed memory under ``None``.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from heron_runtime.model.keys import index_of
from heronry.streamlet.online.state import ReducerEntry, RowFailed, Start
from heronry.streamlet.online.watermark import FOREVER
from heronry.streamlet.process import LENGTH_MS, Handlers, KeyMemory, KeyTimeline, MomentResult


class _Key:
    """State of one key.

    Attributes:
        lived: True if its memory may differ from what is kept of it.
        changed: Moments that differ from what is kept of them.
    """

    __slots__ = ("changed", "due_ms", "kept", "key", "lived", "memory", "moments")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.memory = KeyMemory()
        self.moments: dict[int, list[Any]] = {}
        self.changed: set[int] = set()
        self.due_ms: int | None = None
        self.lived = self.kept = False


class ProcessReducerState:
    """State of a ``process`` step. ``wait_ms`` is the allowed lateness. Closed entries each hold a ``MomentResult``."""

    def __init__(self, step: str, handlers: Handlers, wait_ms: int) -> None:
        self._step, self._handlers, self._wait_ms = step, handlers, wait_ms
        self._keys: dict[Hashable, _Key] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._pushed = 0  # orders keys that are due at the same time
        self._touched: dict[Hashable, None] = {}  # keys since the last checkpoint
        self._dropped: list[tuple[Start, Any]] = []
        self.closed_ms: int | None = None  # moments before this have been processed

    def add_rows(self, rows: list[Any], begin: int = 0) -> list[int]:
        """Add rows from index ``begin`` on: (key, ms, records, …).

        Returns:
            Indices of the late rows.

        Raises:
            RowFailed: A row cannot be added. The rows before it are added.
        """
        late, place = [], begin
        try:
            for place in range(begin, len(rows)):
                key, time_ms, records = rows[place][:3]
                if self.closed_ms is not None and time_ms + LENGTH_MS <= self.closed_ms:
                    late.append(place)
                else:
                    self._add(index_of(key), key, time_ms, records)
        except Exception as error:
            raise RowFailed(place, late) from error
        return late

    def _add(self, name: Hashable, key: Any, time_ms: int, records: list[Any]) -> None:
        one = self._keys.get(name)
        if one is None:
            one = self._keys[name] = _Key(key)
        if time_ms in one.moments:
            one.moments[time_ms].extend(records)
        else:
            one.moments[time_ms] = list(records)
            self._expect(name, one, time_ms)
        one.changed.add(time_ms)
        self._touched[name] = None

    def _expect(self, name: Hashable, one: _Key, time_ms: int) -> None:
        """Schedule the key to be examined at this time or earlier."""
        if one.due_ms is None or time_ms < one.due_ms:
            one.due_ms = time_ms
            self._pushed += 1
            heapq.heappush(self._heap, (time_ms, self._pushed, name))

    def close(self, watermark_ms: int) -> list[tuple[int, list[ReducerEntry]]]:
        """Process every moment that the watermark, less the lateness, has passed.

        Returns:
            All results as one pair, with the time of the first one. Empty if there are none.
        """
        closed_ms = watermark_ms if watermark_ms == FOREVER else watermark_ms - self._wait_ms
        if self.closed_ms is not None and closed_ms <= self.closed_ms:
            return []
        self.closed_ms = closed_ms
        return self.due()

    def due(self) -> list[tuple[int, list[ReducerEntry]]]:
        """Process the moments and timers before ``closed_ms`` that are still here."""
        entries: list[ReducerEntry] = []
        until_ms = self.closed_ms
        while until_ms is not None and self._heap and self._heap[0][0] < until_ms:
            due_ms, _, name = heapq.heappop(self._heap)
            one = self._keys.get(name)
            if one is not None and one.due_ms == due_ms:
                one.due_ms = None
                entries += self._lived(name, one, until_ms)
        return [(min(int(entry.start or 0) for entry in entries), entries)] if entries else []

    def _lived(self, name: Hashable, one: _Key, until_ms: int) -> list[ReducerEntry]:
        """Process the moments and timers of a key before this time, and return the results."""
        life = KeyTimeline(self._step, self._handlers, one.key, one.memory)
        outcomes: list[MomentResult] = []
        for time_ms in sorted(time_ms for time_ms in one.moments if time_ms < until_ms):
            outcomes += life.moment(time_ms, one.moments.pop(time_ms))
            one.changed.discard(time_ms)
            self._dropped.append((time_ms, one.key))
        outcomes += life.until(None if until_ms == FOREVER else until_ms)
        one.lived = True
        self._touched[name] = None
        if one.moments or one.memory.timers:
            self._expect(name, one, min((*one.moments, *one.memory.timers.values())))
        elif not one.memory:
            del self._keys[name]
            if one.kept:
                self._dropped.append((None, one.key))
        return [ReducerEntry(outcome.time_ms, one.key, outcome) for outcome in outcomes]

    def take_shown(self) -> list[ReducerEntry]:
        """Return nothing: a moment has no running results."""
        return []

    def take_changed(self) -> tuple[list[tuple[Start, Any]], list[ReducerEntry]]:
        """Return the changes since the last call.

        Returns:
            Moments and memories that were removed, and those to be stored after that.
        """
        entries = []
        for one in [self._keys[name] for name in self._touched if name in self._keys]:
            if one.lived:
                one.lived = False
                if one.memory:
                    one.kept = True
                    entries.append(ReducerEntry(None, one.key, one.memory))
                elif one.kept:
                    one.kept = False
                    self._dropped.append((None, one.key))
            if one.changed:
                entries += [ReducerEntry(time_ms, one.key, one.moments[time_ms]) for time_ms in sorted(one.changed)]
                one.changed = set()
        dropped, self._dropped, self._touched = self._dropped, [], {}
        return dropped, entries

    def entries(self, start: Start) -> list[ReducerEntry]:
        """Return the records of one moment, by key."""
        return [
            ReducerEntry(start, one.key, one.moments[start])
            for one in self._keys.values()
            if start is not None and start in one.moments
        ]

    def restore(self, entries: Iterable[ReducerEntry], closed_ms: int | None) -> None:
        """Restore the entries of a checkpoint."""
        self.closed_ms = closed_ms
        for start, key, acc in entries:
            name = index_of(key)
            if start is not None:
                self._add(name, key, start, acc)
                self._keys[name].changed.discard(start)
                continue  # a restored moment has not changed
            one = self._keys.setdefault(name, _Key(key))
            one.memory, one.kept = acc, True
            if acc.timers:
                self._expect(name, one, min(acc.timers.values()))
        self._touched = {}

    def __len__(self) -> int:
        return sum(len(one.moments) for one in self._keys.values())

    def check(self) -> None:
        """Assert that every moment and timer is scheduled to be examined."""
        expected = {(due_ms, name) for due_ms, _, name in self._heap}
        for name, one in self._keys.items():
            assert one.moments or one.memory, "an unknown key"
            assert one.changed <= one.moments.keys(), "what was lived has changed"
            times = [*one.moments, *one.memory.timers.values()]
            assert not times or (one.due_ms is not None and one.due_ms <= min(times)), "a moment comes unseen"
            assert one.due_ms is None or (one.due_ms, name) in expected, "a key is not looked at"


Packing = Callable[[Any], Any]


def kept_of(step: str) -> tuple[Packing, Packing]:
    """Return functions that convert moments and memories to plain data for keyed state, and back.

    The first one raises TypeError for a state that cannot be pickled.
    """

    def pack(memory: Any) -> Any:
        if not isinstance(memory, KeyMemory):
            return list(memory)
        try:
            return memory.packed()
        except Exception as error:
            raise TypeError(
                f"step {step!r}: a state cannot be kept, for pickle does not take it ({error!r}); let context.state be "
                "of plain values: numbers, texts, lists, dicts, dataclasses"
            ) from error

    return pack, lambda kept: KeyMemory(*pickle.loads(kept)) if isinstance(kept, bytes) else list(kept)

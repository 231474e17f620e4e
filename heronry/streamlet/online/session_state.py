"""State of a reducer of sessions: the open sessions of each key, in order of time. See ``state.py`` for windows. Pure.

A session is open until the watermark has passed its end. Its start may still become earlier, and two sessions may
merge. A checkpoint stores a session under its start, so the old start is *dropped* then. A row is late if the session
that it would be part of ended before everything closed so far. It may still join an open session.

``_due`` holds for each key a time before which none of its sessions ends, and a heap holds the same times in order. A
session that grows is examined when its old end has come, rather than each time it grows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from itertools import pairwise
from typing import Any

from heron_runtime.model.keys import index_of
from heronry.streamlet.combine import Session, ended, put, touching
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.online.state import ReducerEntry, RowFailed, Start, by_key
from heronry.streamlet.program import ReduceStep


class SessionReducerState:
    """State of a reducer of sessions.

    ``gap_ms`` and ``wait_ms`` are those of the window. The accumulator of an entry is (last, accumulator).
    """

    def __init__(self, monoid: Monoid[Any, Any], gap_ms: int, wait_ms: int) -> None:
        self._add = monoid.add
        self._gap_ms, self._wait_ms = gap_ms, wait_ms
        self._sessions: dict[Hashable, list[Session]] = {}
        self._keys: dict[Hashable, Any] = {}
        self._due: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._pushed = 0  # orders keys that are due at the same time
        self._changed: dict[Hashable, set[int]] = {}
        self._dropped: list[tuple[Start, Any]] = []
        self.closed_ms: int | None = None  # sessions that end at or before this are closed

    def add(self, start: int, key: Any, acc: tuple[int, Any]) -> bool:
        """Add a session. Errors of the monoid are raised unchanged.

        Returns:
            False if the session is closed.

        Raises:
            UnsupportedKey: The key cannot be encoded.
        """
        last, inner = acc
        name = index_of(key)
        sessions = self._sessions.get(name, [])
        if self.closed_ms is not None and last + self._gap_ms <= self.closed_ms:
            near = touching(sessions, start, last, self._gap_ms)
            if near.start == near.stop:
                return False
        made, joined = put(sessions, Session(start, last, inner), self._gap_ms, self._add)
        self._sessions[name] = sessions
        self._keys.setdefault(name, key)
        changed = self._changed.setdefault(name, set())
        for old in joined:
            if old.start != made.start:
                changed.discard(old.start)
                self._dropped.append((old.start, self._keys[name]))
        changed.add(made.start)
        self._expect(name)
        return True

    def add_rows(self, rows: list[Any], begin: int = 0) -> list[int]:
        """Add rows from index ``begin`` on: (key, start, (last, accumulator), …).

        Returns:
            Indices of the late rows.

        Raises:
            RowFailed: A row cannot be added. The rows before it are added.
        """
        late: list[int] = []
        for place in range(begin, len(rows)):
            key, start, acc = rows[place][:3]
            try:
                if not self.add(start, key, acc):
                    late.append(place)
            except Exception as error:
                raise RowFailed(place, late) from error
        return late

    def close(self, watermark_ms: int) -> list[tuple[int, list[ReducerEntry]]]:
        """Close every session whose end and lateness the watermark has passed.

        Returns:
            All of them as one pair, with the start of the first one. Empty if there are none.
        """
        closed_ms = watermark_ms - self._wait_ms
        if self.closed_ms is not None and closed_ms <= self.closed_ms:
            return []
        self.closed_ms = closed_ms
        return self.due()

    def due(self) -> list[tuple[int, list[ReducerEntry]]]:
        """Drop sessions that are closed and still here. Return their entries."""
        entries: list[ReducerEntry] = []
        while self.closed_ms is not None and self._heap and self._heap[0][0] <= self.closed_ms:
            end, _, name = heapq.heappop(self._heap)
            if self._due.get(name) == end:
                del self._due[name]
                entries += self._let_go(name, self.closed_ms)
        entries.sort(key=by_key)
        return [(min(int(entry.start or 0) for entry in entries), entries)] if entries else []

    def _let_go(self, name: Hashable, closed_ms: int) -> list[ReducerEntry]:
        """Drop the closed sessions of a key. Return their entries."""
        sessions, key = self._sessions[name], self._keys[name]
        number = ended(sessions, closed_ms - self._gap_ms)
        entries = [_entry(key, session) for session in sessions[:number]]
        self._dropped += [(entry.start, key) for entry in entries]
        self._changed.get(name, set()).difference_update(entry.start for entry in entries if entry.start is not None)
        del sessions[:number]
        if sessions:
            self._expect(name)
        else:
            del self._sessions[name], self._keys[name]
            self._changed.pop(name, None)
        return entries

    def _expect(self, name: Hashable) -> None:
        """Schedule the key to be examined when its first session ends, or earlier."""
        end = self._sessions[name][0].last + self._gap_ms
        if name not in self._due or end < self._due[name]:
            self._due[name] = end
            self._pushed += 1
            heapq.heappush(self._heap, (end, self._pushed, name))

    def take_shown(self) -> list[ReducerEntry]:
        """Return nothing: sessions have no running results."""
        return []

    def take_changed(self) -> tuple[list[tuple[Start, Any]], list[ReducerEntry]]:
        """Return the changes since the last call.

        Returns:
            Starts and keys that were removed, and the entries to be stored after that.
        """
        entries = [
            _entry(self._keys[name], session)
            for name, starts in self._changed.items()
            for session in self._sessions[name]
            if session.start in starts
        ]
        dropped, self._dropped, self._changed = self._dropped, [], {}
        return dropped, entries

    def entries(self, start: Start) -> list[ReducerEntry]:
        """Return the entries of all sessions with this start."""
        return [
            _entry(self._keys[name], session)
            for name, sessions in self._sessions.items()
            for session in sessions
            if session.start == start
        ]

    def restore(self, entries: Iterable[ReducerEntry], closed_ms: int | None) -> None:
        """Restore the entries of a checkpoint."""
        self.closed_ms = closed_ms
        for start, key, (last, acc) in entries:
            name = index_of(key)
            self._keys.setdefault(name, key)
            self._sessions.setdefault(name, []).append(Session(start or 0, last, acc))
        for name, sessions in self._sessions.items():
            sessions.sort(key=lambda session: session.start)
            self._expect(name)

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def check(self) -> None:
        """Assert the invariants.

        Sessions of a key are in order and farther apart than the gap, and each is scheduled to be examined when it
        ends.
        """
        assert self._sessions.keys() == self._keys.keys() == self._due.keys()
        for name, sessions in self._sessions.items():
            assert sessions, "a key without sessions"
            for before, after in pairwise(sessions):
                assert after.start - before.last > self._gap_ms, "two sessions should be one"
            assert self._due[name] <= sessions[0].last + self._gap_ms, "a session ends unseen"
            assert self._changed.get(name, set()) <= {session.start for session in sessions}
        assert {(end, name) for name, end in self._due.items()} <= {(end, name) for end, _, name in self._heap}


def _entry(key: Any, session: Session) -> ReducerEntry:
    return ReducerEntry(session.start, key, (session.last, session.acc))


Packing = Callable[[Any], Any]


def packing(step: ReduceStep) -> tuple[Packing, Packing]:
    """Return functions that convert accumulators of a reducer to plain data for keyed state, and back."""
    pack, unpack = step.monoid.pack, step.monoid.unpack
    if not step.merges:
        return pack, unpack
    return lambda acc: [acc[0], pack(acc[1])], lambda kept: (kept[0], unpack(kept[1]))

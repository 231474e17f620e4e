"""Changes of PostgreSQL tables, transaction by transaction, by logical decoding.

The one split is a replication slot, which the server's own plugin ``pgoutput`` decodes. A position is a place in the
log behind which nothing was read, how many changes of the next transaction were read all the same, and which server's
log it is. Transactions come whole and in the order of their commits; one that is larger than a piece comes in several.

Nothing is taken from the slot by reading. It is confirmed (so that the server may remove its log) only up to where
nobody will go back to: a position that a complete checkpoint has; ``ATLEAST_ONCE``, where all before it was acked;
``ATMOST_ONCE``, before anybody gets what lies before it. What a slot no longer has is an error, never silence.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from heronry.connect.acked import Row
from heronry.connect.pgoutput import DELETE, UPDATE, Change, Committed, Messages, Unknown, lsn_of, text_of
from heronry.connect.polling import PollingSource, Range, Reader
from heronry.connect.postgres import OPTIONS, dsn_problems
from heronry.connect.postgres_slot import PUBLICATION, SLOT, Slot
from heronry.connect.settings import ConnectError, seconds, whole

ROWS = whole("user.postgres.rows", "how many changes are handed over at a time", 1000)
POLL = seconds("user.postgres.poll.secs", "how long the source waits before it asks for new changes again", 0.5)
WINDOW_BYTES = 64 * 1024 * 1024  # of the log behind the position, for a question without an end: the answer is stored


class PostgresChanges(PollingSource):
    """Emits what was committed in the tables of ``user.postgres.publication`` since ``user.postgres.slot`` was made.
    Its fields are ``op``, ``table``, ``new``, ``old``, ``unchanged``, ``lsn``, ``xid``, ``time``, ``index``, and
    columns by their names: ``PostgresChanges.spec(optional_outputs=["op", "table", "new", "old"], config={…})``."""

    example = "PostgresChanges.spec(optional_outputs=['op', 'table', 'new', 'old'], …)"
    pause = POLL
    options = (*OPTIONS, SLOT, PUBLICATION, ROWS, POLL)
    confirms = True

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from super().config_problems(config)
        yield from dsn_problems(config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """Raises ConnectError, also for a slot that cannot be read."""
        return ChangeReader(config, fields, name)


class Position(NamedTuple):
    """What ended up to ``lsn`` was read, and ``number`` changes of the next transaction; ``server``: whose log."""

    lsn: str
    number: int
    server: str


class ChangeReader(Reader):
    """Positions are as ``Position``."""

    def __init__(self, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> None:
        self._fields, self._rows = fields, ROWS.of(config)
        self._poll_secs = float(POLL.of(config))
        self._slot = Slot(config, name)
        self._came: Iterator[tuple[Change | None, Position]] = iter(())
        self._at: Position | None = None  # what ``_came`` goes on from
        self._end: Position | None = None
        self._ask_at = float("-inf")
        self._written = 0  # where the log was written to, when it was last looked at

    def splits(self) -> list[str]:
        """The slot."""
        return [self._slot.name]

    def close(self) -> None:
        """Let go of the connection."""
        self._slot.close()

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """To where the log is written now. Raises ConnectError."""
        position = self._first() if begin is None else Position(*begin)
        self._slot.verify(lsn_of(position.lsn), position.server)
        end = Position(text_of(self._slot.flushed_end()), 0, self._slot.server)
        return Range(split, tuple(position), tuple(end)) if lsn_of(end.lsn) > lsn_of(position.lsn) else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """See ``Reader``. Without an end a question that has found all there was is not put again at once."""
        position = self._first() if begin is None else Position(*begin)
        upto = None if end is None else Position(*end)
        if (position, upto) != (self._at, self._end):
            self._at, self._end, self._came = position, upto, iter(())
        rows, reached = self._some()
        if reached is None and (upto is not None or time.monotonic() >= self._ask_at):
            self._ask_at = time.monotonic() + self._poll_secs
            self._ask(position, upto)
            rows, reached = self._some()
        if reached is None and begin is None:
            reached = position  # from now on it is known where the slot began
        if reached is None:
            return None
        self._at = reached
        return rows, tuple(reached)

    def confirm(self, split: str, position: Any) -> bool:
        """See ``Reader``. Raises ConnectError."""
        place = Position(*position)
        self._slot.verify_server(place.lsn, place.server)
        self._slot.confirm(lsn_of(place.lsn))
        return place.number == 0

    def _first(self) -> Position:
        """Where the slot begins. Raises ConnectError."""
        return Position(text_of(self._slot.confirmed()), 0, self._slot.server)

    def _some(self) -> tuple[list[Row], Position | None]:
        """A piece of what has been asked for, and the position behind it; None: there is nothing."""
        rows: list[Row] = []
        reached = None
        for change, reached in self._came:  # noqa: B007  # reason: the last one is the position behind all
            if change is not None:
                rows.append(self._values(change))
                if len(rows) >= self._rows:
                    break
        return rows, reached

    def _ask(self, position: Position, end: Position | None) -> None:
        """Have what comes behind a position in ``_came``. Raises ConnectError."""
        begin = lsn_of(position.lsn)
        self._slot.verify_server(position.lsn, position.server)
        known = lsn_of(end.lsn) if end is not None else self._end_now()
        limit = known or self._written
        window = WINDOW_BYTES if end is None else limit
        while begin < limit:
            upto = min(begin + window, limit)
            messages = self._slot.peek(begin, upto, self._rows)
            self._slot.verify(begin, position.server)
            self._came = self._changes(position, messages, known if upto == known else 0)
            first = next(self._came, None)
            if first is not None:
                self._came = itertools.chain([first], self._came)
                return
            if upto == limit:
                return
            window *= 2  # a transaction may be of any size

    def _end_now(self) -> int:
        """An end of a record up to which all is on disk; 0 if none is known, which a busy server makes so at first."""
        before = self._written
        end = self._slot.wal_end()
        self._written = end.insert
        return next((place for place in (end.insert, before) if 0 < place <= end.flush), 0)

    def _changes(
        self, position: Position, messages: Iterator[bytes], end: int
    ) -> Iterator[tuple[Change | None, Position]]:
        """Changes of transactions, and None behind the last one of each, with the position behind it; of those that
        ended before ``end``, where that is known, which is the last position then. Raises ConnectError."""
        meaning = Messages(self._slot.load)
        skipped = position.number
        for message in messages:
            try:
                found = meaning.take(message)
            except Unknown as error:
                raise ConnectError(f"{self._slot.told} has sent {error}") from None
            if isinstance(found, Committed):
                if end and found.end > end:
                    break
                if found.changes < skipped:
                    raise self._other(position)
                skipped, position = 0, Position(text_of(found.end), 0, position.server)
                yield None, position
                continue
            for change in found:
                if change.number >= skipped and not (end and change.lsn >= end):
                    position = position._replace(number=change.number + 1)
                    yield change, position
        if end and skipped:
            raise self._other(position)
        if end and lsn_of(position.lsn) < end:
            yield None, Position(text_of(end), 0, position.server)

    def _other(self, position: Position) -> ConnectError:
        return ConnectError(
            f"{self._slot.told} does not have the transaction behind {position.lsn}, of which {position.number} "
            "changes were read: was the publication altered? Let it be as it was"
        )

    def _values(self, change: Change) -> Row:
        own = {
            "op": change.op, "table": change.table, "new": change.new, "old": change.old,
            "unchanged": list(change.unchanged), "lsn": text_of(change.lsn), "xid": change.xid, "time": change.time,
            "index": change.number,
        }  # fmt: skip
        columns = (change.old if change.op == DELETE else change.new) or {}
        for name in self._fields:
            if name in change.unchanged and name not in own and change.op == UPDATE:
                raise ConnectError(
                    f"column {name!r} of {change.table} holds a large value that an update has left alone, so it is "
                    f"not in the log: ALTER TABLE {change.table} REPLICA IDENTITY FULL before the update, or read "
                    "'new', which is without it, and 'unchanged', which names it"
                )
        return [own[name] if name in own else columns.get(name) for name in self._fields]

"""Source of PostgreSQL table changes, transaction by transaction, by logical decoding.

The only split is a replication slot, decoded by the server's plugin ``pgoutput``. A position consists of an LSN after
which nothing was read, the number of changes of the next transaction that were read nevertheless, and the identity of
the server whose log it is. Transactions arrive complete and in commit order. A transaction that is larger than one page
of rows arrives in several pages.

Reading does not consume the slot. The source confirms a position, so that the server may remove its log, only when the
topology can no longer return to an earlier one: when a complete checkpoint holds it; with ``ATLEAST_ONCE``, when all
changes before it were acked; with ``ATMOST_ONCE``, before the changes before it are emitted. If the slot has lost
changes, the source fails with an error.
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

ROWS = whole("user.postgres.rows", "number of changes per batch", 1000)
POLL = seconds("user.postgres.poll.secs", "delay before the source asks for new changes again", 0.5)
WINDOW_BYTES = 64 * 1024 * 1024  # first window of log for an unbounded query; the server stores the result


class PostgresChanges(PollingSource):
    """Source of the changes committed in the tables of ``user.postgres.publication``.

    It starts where ``user.postgres.slot`` was created. Fields: ``op``, ``table``, ``new``, ``old``, ``unchanged``,
    ``lsn``, ``xid``, ``time``, ``index``, and columns by their names. Select fields with
    ``PostgresChanges.spec(optional_outputs=["op", "table", "new", "old"], config={…})``.
    """

    example = "PostgresChanges.spec(optional_outputs=['op', 'table', 'new', 'old'], …)"
    pause = POLL
    options = (*OPTIONS, SLOT, PUBLICATION, ROWS, POLL)
    confirms = True

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        yield from dsn_problems(config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """Return a reader of the slot. Raises ConnectError, also for a slot that cannot be read."""
        return ChangeReader(config, fields, name)


class Position(NamedTuple):
    """Position in the log of a server.

    Attributes:
        lsn: LSN up to which all transactions were read.
        number: Number of changes read of the next transaction.
        server: Identity of the server (system identifier and timeline).
    """

    lsn: str
    number: int
    server: str


class ChangeReader(Reader):
    """Reader of the changes of a slot. Its positions are instances of ``Position``, as tuples."""

    def __init__(self, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> None:
        self._fields, self._rows = fields, ROWS.of(config)
        self._poll_secs = float(POLL.of(config))
        self._slot = Slot(config, name)
        self._came: Iterator[tuple[Change | None, Position]] = iter(())
        self._at: Position | None = None  # position from which ``_came`` continues
        self._end: Position | None = None
        self._ask_at = float("-inf")
        self._written = 0  # insert LSN at the last check

    def splits(self) -> list[str]:
        """Return the name of the slot."""
        return [self._slot.name]

    def close(self) -> None:
        """Close the connection."""
        self._slot.close()

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """Return the range up to the present end of the log. Raises ConnectError."""
        position = self._first() if begin is None else Position(*begin)
        self._slot.verify(lsn_of(position.lsn), position.server)
        end = Position(text_of(self._slot.flushed_end()), 0, self._slot.server)
        return Range(split, tuple(position), tuple(end)) if lsn_of(end.lsn) > lsn_of(position.lsn) else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Return rows after a position, and the position after them. See ``Reader``.

        An unbounded read that finds no changes queries the server again only after the poll interval.
        """
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
            reached = position  # record where the slot began
        if reached is None:
            return None
        self._at = reached
        return rows, tuple(reached)

    def confirm(self, split: str, position: Any) -> bool:
        """Allow the server to remove the log before a position. See ``Reader``. Raises ConnectError."""
        place = Position(*position)
        self._slot.verify_server(place.lsn, place.server)
        self._slot.confirm(lsn_of(place.lsn))
        return place.number == 0

    def _first(self) -> Position:
        """Return the position at which the slot begins. Raises ConnectError."""
        return Position(text_of(self._slot.confirmed()), 0, self._slot.server)

    def _some(self) -> tuple[list[Row], Position | None]:
        """Return a page of decoded rows and the position after them; the position is None if nothing is left."""
        rows: list[Row] = []
        reached = None
        for change, reached in self._came:  # noqa: B007  # reason: the last one is the position after all rows
            if change is not None:
                rows.append(self._values(change))
                if len(rows) >= self._rows:
                    break
        return rows, reached

    def _ask(self, position: Position, end: Position | None) -> None:
        """Query the changes after a position and store them in ``_came``. Raises ConnectError."""
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
            window *= 2  # a transaction may have any size

    def _end_now(self) -> int:
        """Return a record's end that is flushed to disk, or 0 if none is known, as at first on a busy server."""
        before = self._written
        end = self._slot.wal_end()
        self._written = end.insert
        return next((place for place in (end.insert, before) if 0 < place <= end.flush), 0)

    def _changes(
        self, position: Position, messages: Iterator[bytes], end: int
    ) -> Iterator[tuple[Change | None, Position]]:
        """Yield the changes of transactions, and None after each transaction, each with the position after it.

        If ``end`` is not 0, only transactions that ended up to it are included, and the last position is ``end``.

        Raises:
            ConnectError: A message is unknown, or the transaction at the position is missing.
        """
        meaning = Messages(self._slot.load)
        skipped = position.number
        for message in messages:
            try:
                found = meaning.take(message)
            except Unknown as error:
                raise ConnectError(f"{self._slot.label} has sent {error}") from None
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
            f"{self._slot.label} does not have the transaction after {position.lsn}, of which {position.number} "
            "changes were read: restore the publication if it was altered"
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

"""Source of PostgreSQL table changes, transaction by transaction, by logical decoding.

The only split is a replication slot, decoded by the server's plugin ``pgoutput``. A position consists of an LSN after
which nothing was read, the number of changes of the next transaction that were read nevertheless, and the identity of
the server whose log it is. Transactions arrive complete and in commit order. A transaction that is larger than one page
of rows arrives in several pages.

Reading does not consume the slot. The source confirms a position, so that the server may remove its log, only when the
topology can no longer return to an earlier one: when a complete checkpoint holds it; with ``ATLEAST_ONCE``, when all
changes before it were acked; with ``ATMOST_ONCE``, before the changes before it are emitted. If the slot has lost
changes, the source fails with an error.

``Slot`` reads and confirms a replication slot. ``peek`` decodes the log from the confirmed position of the slot without
changing the slot, so it can be repeated after a restore. The server keeps the result outside of any transaction (``WITH
HOLD``) and returns it in pages. ``confirm`` allows the server to remove the log before a position.

Only ends of log records are confirmed, because a position within a commit record would hide that commit. Such ends are
the ends of commits, and ``pg_current_wal_insert_lsn`` once it is flushed to disk. The flush and send positions may be
in the middle of a record.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from heron_runtime.failures import one_line
from heronry.connect.acked import Row
from heronry.connect.pgoutput import (
    COMMIT,
    DELETE,
    RELATION,
    UPDATE,
    Change,
    Committed,
    Messages,
    Unknown,
    lsn_of,
    text_of,
)
from heronry.connect.polling import PollingSource, Range, Reader
from heronry.connect.postgres import CONNECT_SECS, OPTIONS, Server, dsn_problems
from heronry.connect.settings import ConnectError, seconds, text, whole

SLOT = text("user.postgres.slot", "the logical replication slot that is read", required=True)
PUBLICATION = text("user.postgres.publication", "publication that lists the tables to read", required=True)
PLUGIN = "pgoutput"
INTERVALS = (1186, 1187)  # OIDs of interval and interval[]; psycopg would convert a month to 30 days
OLDEST_VERSION = 130000  # first version that reports lost slots
PEEK = """
    WITH found AS MATERIALIZED (
        SELECT lsn, data, n FROM pg_logical_slot_peek_binary_changes(
            %(slot)s, %(upto)s, NULL, 'proto_version', '1', 'publication_names', %(publication)s
        ) WITH ORDINALITY AS c (lsn, xid, data, n)
    )
    SELECT data FROM found
    WHERE n > (SELECT coalesce(max(n), 0) FROM found WHERE get_byte(data, 0) = %(commit)s AND lsn <= %(begin)s)
        OR get_byte(data, 0) = %(relation)s
    ORDER BY n
"""
Answer = TypeVar("Answer")


class WalEnd(NamedTuple):
    """Insert position of the log, which is the end of a record, and its flush position on disk."""

    insert: int
    flush: int


class Slot:
    """Logical replication slot, accessed through a connection of its own."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        """Connect, and check the slot. Raises ConnectError, also for a slot that cannot be read."""
        self._server = Server(config, name)
        self._pg = self._server.driver
        self.name, self._publication = SLOT.of(config), PUBLICATION.of(config)
        self._wait_secs = CONNECT_SECS.of(config)
        self._connection = self._server.connect()
        self._loaders: dict[int, Any] = {}
        self._cursor: Any = None  # cursor of the last query
        try:
            with self._server.saying("looking at the server"):
                for setting in ("DateStyle = 'ISO'", "TimeZone = 'UTC'", "IntervalStyle = 'postgres'",
                                "bytea_output = 'hex'", "extra_float_digits = 1"):  # fmt: skip
                    self._connection.execute(f"SET {setting}")
            self._types = self._pg.adapt.Transformer(self._connection)
            self.server = self._identity()
            self.confirmed()
        except BaseException:
            self.close()
            raise

    @property
    def label(self) -> str:
        """Return the slot's description for messages."""
        return f"slot {self.name!r} ({self._server.name})"

    def close(self) -> None:
        """Close the connection."""
        self._let_go()
        self._connection.close()

    def _let_go(self) -> None:
        """Close the cursor of the last query. Errors are ignored, as a lost connection also discards it."""
        if self._cursor is not None:
            with contextlib.suppress(self._pg.Error):
                self._cursor.close()

    def _identity(self) -> str:
        """Return the server's system identifier and timeline; LSNs of other servers or timelines are not comparable.

        Raises:
            ConnectError: The server is older than PostgreSQL 13, or is a standby.
        """
        if self._connection.info.server_version < OLDEST_VERSION:
            raise ConnectError(f"{self._server.name}, is older than PostgreSQL 13, which {self.label} requires")
        with self._server.saying("looking at the server"):
            ((standby,),) = self._connection.execute("SELECT pg_is_in_recovery()").fetchall()
            if standby:
                raise ConnectError(
                    f"{self._server.name}, is a standby, which has no end of the log that changes could be confirmed "
                    "to: name the primary in config 'user.postgres.dsn' (target_session_attrs=primary finds it)"
                )
            ((system, file),) = self._connection.execute(
                "SELECT system_identifier, pg_walfile_name(pg_current_wal_insert_lsn()) FROM pg_control_system()"
            ).fetchall()
        return f"{system}/{int(file[:8], 16)}"

    def confirmed(self) -> int:
        """Return the LSN up to which the server may remove its log.

        Raises:
            ConnectError: The slot is missing or lost, or is not a logical slot of this database.
        """
        with self._server.saying(f"looking at slot {self.name!r}"):
            row = self._connection.execute(
                "SELECT slot_type, plugin, database, current_database(), wal_status, restart_lsn, confirmed_flush_lsn, "
                "current_setting('wal_level') FROM pg_replication_slots WHERE slot_name = %s", (self.name,),
            ).fetchone()  # fmt: skip
        if row is None:
            raise ConnectError(self._absent())
        kind, plugin, database, here, status, restart, confirmed, level = row
        if level != "logical":
            raise ConnectError(f"{self._server.name}, has wal_level {level}: set it to logical, and restart the server")
        if kind != "logical" or plugin != PLUGIN or database != here:
            what = f"decodes by {plugin}, of database {database}" if kind == "logical" else f"is {kind}"
            raise ConnectError(
                f"{self.label} {what}: name one that was created in database {here} by {self._making()}"
            )  # fmt: skip
        if status == "lost" or restart is None:
            raise ConnectError(
                f"{self.label} is lost: the server has removed log that was not read yet (max_slot_wal_keep_size), so "
                f"changes are missing. {self._start_over()}"
            )
        return lsn_of(confirmed)

    def _absent(self) -> str:
        level = self._connection.execute("SELECT current_setting('wal_level')").fetchone()[0]
        first = "" if level == "logical" else f"set wal_level, which is {level}, to logical and restart the server; "
        return (
            f"missing {self.label}: if it never existed, {first}create it, after the publication, by {self._making()}. "
            f"If it was dropped, or did not survive a failover, changes since then are missing. {self._start_over()}"
        )

    def _making(self) -> str:
        return f"SELECT pg_create_logical_replication_slot('{self.name}', '{PLUGIN}')"

    def _start_over(self) -> str:
        return "Start over: create the slot again, copy the tables, and submit the topology again"

    def verify_server(self, lsn: str, server: str) -> None:
        """Check that a position belongs to this server. Raises ConnectError if it does not."""
        if server != self.server:
            raise ConnectError(
                f"the position {lsn} is of server and timeline {server}, and {self._server.name}, is "
                f"{self.server}: another one answers (failover, or restored from a copy), whose log may differ from "
                f"what was read. {self._start_over()}"
            )

    def verify(self, lsn: int, server: str) -> None:
        """Check that all transactions committed after a position are still available. Raises ConnectError if not."""
        self.verify_server(text_of(lsn), server)
        confirmed = self.confirmed()
        if confirmed > lsn:
            raise ConnectError(
                f"{self.label} was confirmed up to {text_of(confirmed)}, and the position is {text_of(lsn)}: the "
                "changes between are lost. Another client has read the slot, it was recreated, or the topology was "
                f"restored to a checkpoint before its last one; let only one topology read a slot. {self._start_over()}"
            )

    def wal_end(self) -> WalEnd:
        """Return the insert and flush positions of the log. Raises ConnectError."""
        with self._server.saying("looking at the log"):
            insert, flush = self._connection.execute(
                "SELECT pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn()"
            ).fetchone()
        return WalEnd(lsn_of(insert), lsn_of(flush))

    def flushed_end(self) -> int:
        """Return the insert position, after the log up to it is flushed to disk. Raises ConnectError."""
        end = self.wal_end()
        if end.flush < end.insert:  # a commit flushes the records of open transactions
            with self._server.saying("writing a mark into the log"), self._connection.transaction():
                self._connection.execute("SET LOCAL synchronous_commit = on")
                self._connection.execute("SELECT pg_logical_emit_message(true, 'heronry', '')")
        return end.insert

    def peek(self, begin: int, upto: int, size: int) -> Iterator[bytes]:
        """Query the messages of the transactions that ended after ``begin``, and the messages that describe tables.

        The query is complete when this method returns.

        Args:
            begin: LSN after which transactions must have ended.
            upto: LSN up to which the log is decoded.
            size: Number of messages to fetch at a time.

        Returns:
            Iterator over the messages, in order.

        Raises:
            ConnectError: The slot cannot be read.
        """
        self._let_go()
        cursor = self._cursor = self._connection.cursor("heronry_changes", binary=True, withhold=True)
        publication = self._server.sql("{p}", p=self._pg.sql.Identifier(self._publication))
        values = {
            "slot": self.name, "upto": text_of(upto), "begin": text_of(begin), "commit": COMMIT, "relation": RELATION,
            "publication": publication.as_string(self._connection),
        }  # fmt: skip
        self._ask(f"reading slot {self.name!r}", lambda: cursor.execute(PEEK, values))
        return self._fetched(cursor, size)

    def _fetched(self, cursor: Any, size: int) -> Iterator[bytes]:
        while True:
            with self._server.saying(f"reading slot {self.name!r}"):
                rows = cursor.fetchmany(size)
                if len(rows) < size:
                    cursor.close()
            yield from (data for (data,) in rows)
            if len(rows) < size:
                return

    def confirm(self, lsn: int) -> None:
        """Allow the server to remove the log before ``lsn``. Raises ConnectError."""
        if lsn > self.confirmed():
            statement, values = "SELECT pg_replication_slot_advance(%s, %s)", (self.name, text_of(lsn))
            self._ask(f"confirming slot {self.name!r}", lambda: self._connection.execute(statement, values))

    def load(self, kind: int, data: bytes) -> Any:
        """Convert the text form of a value to Python.

        The text itself is returned for values that Python cannot represent (intervals, which have months; infinite
        dates).
        """
        if kind in INTERVALS:
            return data.decode()
        if kind not in self._loaders:
            self._loaders[kind] = self._types.get_loader(kind, self._pg.pq.Format.TEXT)
        try:
            return self._loaders[kind].load(data)
        except self._pg.DataError:
            return data.decode()

    def _ask(self, what: str, ask: Callable[[], Answer]) -> Answer:
        """Call ``ask``, and wait while another process uses the slot.

        Raises:
            ConnectError: The slot cannot be used, or was not free within the timeout.
        """
        until = time.monotonic() + self._wait_secs
        while True:
            with contextlib.suppress(self._pg.errors.ObjectInUse):
                return self._asked(what, ask)
            if time.monotonic() > until:
                rows = self._connection.execute(
                    "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (self.name,)
                ).fetchone()
                by = f"the server's process {rows[0]}" if rows and rows[0] else "another process"
                raise ConnectError(
                    f"{self.label} is in use by {by} (see pg_stat_activity) and was not released within "
                    f"{self._wait_secs} s: use a separate slot for this topology"
                )
            time.sleep(0.05)

    def _asked(self, what: str, ask: Callable[[], Answer]) -> Answer:
        """Call ``ask``, and translate the driver's errors.

        Raises:
            ObjectInUse: Another process uses the slot.
            ConnectError: The slot cannot be used.
        """
        errors = self._pg.errors
        try:
            return ask()
        except errors.ObjectInUse:
            raise
        except errors.InsufficientPrivilege as error:
            user = self._connection.info.user
            raise ConnectError(
                f"{self._server.name}, does not let {user} use a slot ({_said(error)}): ALTER ROLE {user} REPLICATION"
            ) from None
        except errors.UndefinedObject as error:
            self.confirmed()  # raises if the slot is the cause
            raise ConnectError(
                f"{self._server.name}, has refused {what}: {_said(error)}. Publication "
                f"{self._publication!r} must exist before the slot: CREATE PUBLICATION {self._publication} FOR TABLE "
                "…; then drop the slot and create it again"
            ) from None
        except self._pg.Error as error:
            if not self._connection.closed:
                self.confirmed()  # may raise a more specific error
                if isinstance(error, errors.ObjectNotInPrerequisiteState):
                    raise ConnectError(f"{self._server.name}, has refused {what}: {_said(error)}") from None
            with self._server.saying(what):
                raise


def _said(error: Exception) -> str:
    return one_line(str(error).strip(), 300)


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
                changes = meaning.take(message)
            except Unknown as error:
                raise ConnectError(f"{self._slot.label} has sent {error}") from None
            if isinstance(changes, Committed):
                if end and changes.end > end:
                    break
                if changes.changes < skipped:
                    raise self._other(position)
                skipped, position = 0, Position(text_of(changes.end), 0, position.server)
                yield None, position
                continue
            for change in changes:
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

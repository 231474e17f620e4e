"""Reading and confirming of a PostgreSQL logical replication slot.

Theory of operation. ``peek`` decodes the log from the confirmed position of the slot without changing the slot, so it
can be repeated after a restore. The server keeps the result outside of any transaction (``WITH HOLD``) and returns it
in pages. ``confirm`` allows the server to remove the log before a position.

Only ends of log records are confirmed, because a position within a commit record would hide that commit. Such ends are
the ends of commits, and ``pg_current_wal_insert_lsn`` once it is flushed to disk. The flush and send positions may be
in the middle of a record.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from heron_runtime.failures import one_line
from heronry.connect.pgoutput import COMMIT, RELATION, lsn_of, text_of
from heronry.connect.postgres import CONNECT_SECS, Server
from heronry.connect.settings import ConnectError, text

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
            found = self._connection.execute(
                "SELECT slot_type, plugin, database, current_database(), wal_status, restart_lsn, confirmed_flush_lsn, "
                "current_setting('wal_level') FROM pg_replication_slots WHERE slot_name = %s", (self.name,),
            ).fetchone()  # fmt: skip
        if found is None:
            raise ConnectError(self._absent())
        kind, plugin, database, here, status, restart, confirmed, level = found
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
                found = cursor.fetchmany(size)
                if len(found) < size:
                    cursor.close()
            yield from (data for (data,) in found)
            if len(found) < size:
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
                found = self._connection.execute(
                    "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (self.name,)
                ).fetchone()
                by = f"the server's process {found[0]}" if found and found[0] else "another process"
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

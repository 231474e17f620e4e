"""Exactly-once sink for a PostgreSQL table.

::

    heronry_staged       rows of checkpoints, as JSON in chunks; written while tuples arrive, in one open transaction
    heronry_checkpoints  a row for each token: prepared (with the batch of its staged rows), later committed

Theory of operation. ``prepare`` writes the token next to the staged rows and commits that transaction. So prepared rows
are as durable as PostgreSQL itself, and the server rolls unprepared rows back when the task dies. ``commit`` marks the
token as committed, moves its rows into the table, and removes them from the staging table, in one transaction. A
repeated commit finds the mark and does nothing, and of two concurrent commits the second waits for the first.

``PREPARE TRANSACTION`` would do the same without staging. Most servers forbid it (``max_prepared_transactions`` is 0),
and it holds locks and holds back vacuum until the commit, which may take long after a fault. Neither table is unlogged:
an unlogged table is empty after a crash of the server, so prepared rows would be lost.

Errors are detected early. The statement itself is checked in ``initialize``, NOT NULL constraints when a tuple is
processed, and the table's types when a chunk is staged. Only unique keys, foreign keys and triggers can fail at commit.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from heronry.api.state import Checkpoint
from heronry.connect.postgres import OPTIONS, RetryableError, Server, as_json, dsn_problems, fitting, table_option
from heronry.connect.seats import Seat, SeatedSink, attempts, seat_of
from heronry.connect.settings import BadConfig, ConnectError, names, problems, require, whole
from heronry.connect.spool import cannot_hold

TABLE = table_option("the table that rows go into")
KEY = names("user.postgres.key", "columns of a unique key: a row replaces the existing row with the same key")
ATTEMPTS = whole("user.postgres.attempts", "attempts of a commit when the connection is lost", 6)
ROWS_A_CHUNK = 500
KEPT_CHECKPOINTS = 1000  # checkpoints whose committed tokens are kept, for each task
MAKE_TABLES = (
    "SELECT pg_advisory_xact_lock(hashtext('heronry_checkpoints'))",
    "CREATE TABLE IF NOT EXISTS heronry_checkpoints (step text, token text, checkpoint bigint NOT NULL, task int NOT "
    "NULL, batch uuid NOT NULL, committed_at timestamptz, PRIMARY KEY (step, token))",
    "CREATE TABLE IF NOT EXISTS heronry_staged (batch uuid, part int, rows json NOT NULL, PRIMARY KEY (batch, part))",
)
MOVE = (
    "INSERT INTO {table} ({columns}) SELECT {distinct} {of_row} FROM heronry_staged s, "
    "json_populate_recordset(NULL::{table}, s.rows) WITH ORDINALITY r WHERE s.batch = %s ORDER BY {order} {conflict}"
)


class PostgresSink(SeatedSink):
    """Exactly-once sink that writes each tuple as a row of ``user.postgres.table``.

    The columns are the tuple's fields. With ``user.postgres.key`` the sink upserts rows, and the last row of each key
    wins. In that case, group the input by the key. ``docs/reference/connectors.md`` describes all options.
    """

    options = (*OPTIONS, TABLE, KEY, ATTEMPTS)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from problems(cls.options, config)
        yield from dsn_problems(config)

    @classmethod
    def replaces_by(cls, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the columns of the key."""
        return tuple(KEY.of(config))

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Check the configuration, and open the sink.

        Raises:
            BadConfig: An option is missing or invalid, or the inputs have different fields.
            ConnectError: The server is unreachable, or refuses the statements.
        """
        require(self, config)
        self.open(config, seat_of(context)._replace(fields=_fields_of(context)))

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Connect, create the staging tables if they are missing, and check the statement.

        Raises:
            BadConfig: The key is not among the input's fields.
            ConnectError: The server is unreachable, or refuses the statements.
        """
        self._step, self._task = seat.step, seat.task
        self._server = Server(config, f"heronry {self._step} {self._task}")
        self._table, self._attempts = TABLE.of(config), ATTEMPTS.of(config)
        self._fields = seat.fields
        self._key = tuple(KEY.of(config))
        self._rows: list[dict[str, Any]] = []
        self._batch, self._parts = uuid.uuid4(), 0
        self._staging: Any = None
        self._settling: Any = self._server.connect()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        with self._server.saying("making the tables heronry_checkpoints and heronry_staged"):
            if not self._settling.execute("SELECT to_regclass('heronry_checkpoints')").fetchone()[0]:
                with self._settling.transaction():
                    for statement in MAKE_TABLES:
                        self._settling.execute(statement)
        with self._server.saying(f"to write {', '.join(self._fields)} into table {self._table}"):
            self._move_sql = self._statement()
            self._settling.execute(self._server.sql("EXPLAIN ") + self._move_sql, (self._batch,))
            self._not_null = self._columns_without_null()

    @classmethod
    def encoded(cls, fields: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
        """Return a row as JSON values. Raises ConnectError if PostgreSQL cannot represent a value."""
        row = {}
        for name, value in zip(fields, values, strict=True):
            try:
                row[name] = fitting(value)
            except ValueError as error:
                raise cannot_hold(cls, name, value, f"and {error}") from None
        return row

    def take(self, encoded: dict[str, Any]) -> None:
        """Add a row to the batch. Raises ConnectError."""
        for name in self._not_null:
            if name in encoded and encoded[name] is None:
                raise cannot_hold(self, name, None, f"and that column of {self._table} is NOT NULL")
        self._rows.append(encoded)
        if len(self._rows) >= ROWS_A_CHUNK:
            self._stage()

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """Stage the batch in PostgreSQL under a token, without adding it to the table.

        Returns:
            The token, or None if the batch is empty.

        Raises:
            ConnectError: The connection is lost, or the server refuses the rows.
        """
        if self._rows:
            self._stage()
        if not self._parts:
            return None
        with self._server.saying(f"preparing {self._parts} chunks of rows"):
            self._staging.execute(
                "INSERT INTO heronry_checkpoints VALUES (%s, %s, %s, %s, %s)",
                (self._step, checkpoint.name, checkpoint.number, self._task, self._batch),
            )
            self._staging.commit()
        self._batch, self._parts = uuid.uuid4(), 0
        return checkpoint.name

    def commit(self, checkpoint: int, token: str) -> None:
        """Move the staged rows of ``token`` into the table. Idempotent. Raises ConnectError."""
        self._settle(lambda connection: self._commit(connection, checkpoint, token))

    def abort(self, token: str) -> None:
        """Discard the staged rows of ``token``. Idempotent. Raises ConnectError."""
        self._settle(lambda connection: self._abort(connection, token))

    def prepared(self) -> list[str]:
        """Return the prepared, uncommitted tokens of this component. Raises ConnectError."""
        tokens: list[str] = []

        def look(connection: Any) -> None:
            rows = connection.execute(
                "SELECT token FROM heronry_checkpoints WHERE step = %s AND committed_at IS NULL", (self._step,)
            )
            tokens[:] = [token for (token,) in rows]

        self._settle(look)
        return tokens

    def forget(self) -> None:
        """Delete all staged rows and tokens of the component. Raises ConnectError."""

        def delete(connection: Any) -> None:
            own = "SELECT batch FROM heronry_checkpoints WHERE step = %s"
            connection.execute(f"DELETE FROM heronry_staged WHERE batch IN ({own})", (self._step,))
            connection.execute("DELETE FROM heronry_checkpoints WHERE step = %s", (self._step,))

        self._settle(delete)

    def close(self) -> None:
        """Close the connections. The server rolls back rows that are not prepared."""
        for connection in (getattr(self, "_staging", None), getattr(self, "_settling", None)):
            if connection is not None:
                connection.close()

    # Staging.

    def _stage(self) -> None:
        with self._server.saying(f"staging rows for table {self._table}"):
            if self._staging is None:
                self._staging = self._server.connect(autocommit=False)
                self._staging.execute("SET idle_in_transaction_session_timeout = 0")
                self._staging.execute("SET synchronous_commit = on")  # prepared rows must be durable
                self._staging.commit()
            at = (self._batch, self._parts)
            self._staging.execute("INSERT INTO heronry_staged VALUES (%s, %s, %s)", (*at, as_json(self._rows)))
            self._staging.execute(
                self._server.sql(
                    "SELECT count(*) FROM heronry_staged s, json_populate_recordset(NULL::{table}, s.rows) "
                    "WHERE s.batch = %s AND s.part = %s",
                    table=self._server.table(self._table),
                ),
                at,
            )
        self._rows = []
        self._parts += 1

    # Settling.

    def _settle(self, do: Callable[[Any], None]) -> None:
        """Call ``do`` in a transaction on the settling connection, and retry on a new connection if it is lost.

        Raises:
            ConnectError: The server refuses the statements, or all attempts failed.
        """
        for attempt in attempts(self._attempts):
            try:
                if self._settling is None:
                    self._settling = self._server.connect()
                with self._server.saying(f"committing rows to table {self._table}"), self._settling.transaction():
                    do(self._settling)
                return
            except ConnectError as error:
                if self._settling is not None and not isinstance(error, RetryableError):
                    raise
                if self._settling is not None:
                    with contextlib.suppress(Exception):
                        self._settling.close()
                    self._settling = None
                if attempt.last:
                    raise

    def _commit(self, connection: Any, checkpoint: int, token: str) -> None:
        place = (self._step, token)
        connection.execute("SET LOCAL synchronous_commit = on")
        marked = connection.execute(
            "UPDATE heronry_checkpoints SET committed_at = now() WHERE step = %s AND token = %s AND committed_at IS "
            "NULL RETURNING batch, task",
            place,
        ).fetchone()
        if marked is None:
            if connection.execute("SELECT 1 FROM heronry_checkpoints WHERE step = %s AND token = %s", place).fetchone():
                return
            raise ConnectError(
                f"batch {token} was prepared for checkpoint {checkpoint} and is not in heronry_checkpoints of "
                f"{self._server.name}: let no other client remove rows there, and keep the server of a running topology"
            )
        batch, task = marked
        connection.execute(self._move_sql, (batch,))
        connection.execute("DELETE FROM heronry_staged WHERE batch = %s", (batch,))
        connection.execute(
            "DELETE FROM heronry_checkpoints WHERE step = %s AND task = %s AND committed_at IS NOT NULL AND "
            "checkpoint < %s",
            (self._step, task, checkpoint - KEPT_CHECKPOINTS),
        )

    def _abort(self, connection: Any, token: str) -> None:
        gone = connection.execute(
            "DELETE FROM heronry_checkpoints WHERE step = %s AND token = %s AND committed_at IS NULL RETURNING batch",
            (self._step, token),
        ).fetchone()
        if gone is not None:
            connection.execute("DELETE FROM heronry_staged WHERE batch = %s", gone)

    # The table.

    def _statement(self) -> Any:
        """Return the statement that moves a batch into the table. Of rows with equal keys, it takes the last one."""
        server, key = self._server, self._key
        unknown = [name for name in key if name not in self._fields]
        if unknown:
            raise BadConfig(
                f"config {KEY.key!r}: {unknown[0]!r} is not a field of the input ({', '.join(self._fields)})"
            )
        others = [name for name in self._fields if name not in key]
        sets = [server.sql("{c} = EXCLUDED.{c}", c=server.columns([name])) for name in others]
        conflict = server.sql("")
        if key:
            what = server.sql("UPDATE SET ") + server.joined(", ", sets) if sets else server.sql("NOTHING")
            conflict = server.sql("ON CONFLICT ({key}) DO {what}", key=server.columns(key), what=what)
        keys = server.columns(key, "r")
        return server.sql(
            MOVE,
            table=server.table(self._table),
            columns=server.columns(self._fields),
            of_row=server.columns(self._fields, "r"),
            distinct=server.sql("DISTINCT ON ({keys})", keys=keys) if key else server.sql(""),
            order=server.sql("{keys}, s.part DESC, r.ordinality DESC", keys=keys)
            if key
            else server.sql("s.part, r.ordinality"),
            conflict=conflict,
        )

    def _columns_without_null(self) -> frozenset[str]:
        rows = self._settling.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnotnull AND attnum > 0",
            (self._server.table(self._table).as_string(self._settling),),
        )
        return frozenset(name for (name,) in rows)


def _fields_of(context: Any) -> tuple[str, ...]:
    """Return the fields of the input. Raises BadConfig if the inputs' fields differ."""
    sources = {source: context.get_fields(*source) for source in context.get_sources()}
    first = next(iter(sources.values()))
    for (component, stream), fields in sources.items():
        if set(fields) != set(first):
            raise BadConfig(
                f"PostgresSink reads {', '.join(first)} and, from stream {stream!r} of {component!r}, "
                f"{', '.join(fields)}: use a separate sink for each kind of tuple"
            )
    return tuple(first)

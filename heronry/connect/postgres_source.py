"""Source of the rows of a growing PostgreSQL table, ordered by an increasing column.

A position is the last value of the column in PostgreSQL's text form, so timestamps and numerics are exact. ``WITH
TIES`` keeps rows with equal values together. The source misses a row that becomes visible after rows with higher values
were read: sequences and ``now()`` are evaluated before their transaction commits. If several writers are active at the
same time, use a column that only one of them sets, or one that is set after the fact.

Splits are ranges of the column. With ``user.postgres.bounds`` ``["1000", "2000"]`` there are three: up to 1000, up to
2000, and above 2000.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.acked import Row
from heronry.connect.polling import PollingSource, Range, Reader
from heronry.connect.postgres import OPTIONS, Server, dsn_problems, table_option
from heronry.connect.settings import BadConfig, names, seconds, text, whole

TABLE = table_option("the table that is read")
COLUMN = text("user.postgres.column", "the column that increases", required=True)
BOUNDS = names("user.postgres.bounds", "values of the column that divide it into splits, as PostgreSQL writes them")
ROWS = whole("user.postgres.rows", "number of rows per request", 1000)
POLL = seconds("user.postgres.poll.secs", "delay before the source asks for new rows again", 0.5)


class SqlRows(PollingSource):
    """Source of the rows of ``user.postgres.table`` in the order of ``user.postgres.column``, including later rows.

    Fields: the table's columns. Select them with ``SqlRows.spec(optional_outputs=["id", "name"], config={…})``.
    """

    example = "SqlRows.spec(optional_outputs=['id', 'name'], …)"
    pause = POLL
    options = (*OPTIONS, TABLE, COLUMN, BOUNDS, ROWS, POLL)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        yield from dsn_problems(config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """Return a reader of the table. Raises BadConfig or ConnectError, also for a missing table or column."""
        return RowReader(config, fields, name)


class RowReader(Reader):
    """Reader of table rows. A position is the last value of the column, as text."""

    def __init__(self, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> None:
        self._fields = fields
        self._server = Server(config, name)
        self._table, self._column = TABLE.of(config), COLUMN.of(config)
        self._rows = ROWS.of(config)
        self._splits = splits_of(BOUNDS.of(config))
        self._connection = self._server.connect()
        try:
            self._connection.read_only = True
            self._type = self._type_of_column()
            for low, high in self._splits.values():
                self._ask(low, high, 0)
        except BaseException:
            self.close()
            raise

    def splits(self) -> list[str]:
        """Return the names of the column's ranges."""
        return list(self._splits)

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Return rows after a position, and the position after them. See ``Reader``."""
        low, high = self._splits[split]
        rows = self._ask(low if begin is None else begin, high if end is None else end, self._rows)
        return ([tuple(row[1:]) for row in rows], rows[-1][0]) if rows else None

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """Return the range up to the greatest present value. Raises ConnectError."""
        low, high = self._splits[split]
        last = self._ask(low if begin is None else begin, high, 1, "DESC")
        return Range(split, begin, last[0][0]) if last else None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _ask(self, above: str | None, up_to: str | None, rows: int, order: str = "ASC") -> list[Any]:
        """Return rows whose column is above one value and at most another; None means unbounded.

        The first item of each row is the column as text.
        """
        column = self._server.columns([self._column], "t")
        conditions = [self._server.sql("{c} IS NOT NULL", c=column)]
        given: list[Any] = []
        for sign, value in ((">", above), ("<=", up_to)):
            if value is not None:
                kind = self._server.sql(self._type)
                conditions.append(self._server.sql("{c} " + sign + " CAST(%s AS {t})", c=column, t=kind))
                given.append(value)
        statement = self._server.sql(
            "SELECT CAST({c} AS text), {columns} FROM {table} t WHERE {conditions} ORDER BY {c} " + order + " "
            "FETCH FIRST %s ROWS WITH TIES",
            c=column, columns=self._server.columns(self._fields, "t"), table=self._server.table(self._table),
            conditions=self._server.joined(" AND ", conditions),
        )  # fmt: skip
        with self._server.saying(f"reading table {self._table} by column {self._column}"):
            return list(self._connection.execute(statement, (*given, rows)).fetchall())

    def _type_of_column(self) -> str:
        """Return the SQL type of the column. Raises BadConfig, ConnectError."""
        with self._server.saying(f"reading table {self._table}"):
            row = self._connection.execute(
                "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass AND attname = "
                "%s AND attnum > 0 AND NOT attisdropped",
                (self._server.table(self._table).as_string(self._connection), self._column),
            ).fetchone()
        if row is None:
            raise BadConfig(f"table {self._table} has no column {self._column!r}, which config {COLUMN.key!r} names")
        return str(row[0])


def splits_of(bounds: list[str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the ranges of the column by split name, as pairs of exclusive lower and inclusive upper bound."""
    if not bounds:
        return {"all": (None, None)}
    below = {f"to {high}": (low, high) for low, high in itertools.pairwise([None, *bounds])}
    return {**below, f"above {bounds[-1]}": (bounds[-1], None)}

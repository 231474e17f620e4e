"""Decoder for PostgreSQL's output plugin ``pgoutput`` (protocol version 1). Performs no I/O.

Theory of operation. Messages arrive in the commit order of transactions: a begin, changes, a commit. A message with a
table's columns precedes the first change of that table and each change after an alteration. So a reader that starts in
the middle of a sequence still needs the earlier ones of these messages. Values are in PostgreSQL's text form, which
``load`` converts by the OID of the type. A large value that an update left unchanged (TOAST) is not in the log. With
``REPLICA IDENTITY FULL`` it is taken from the old row; otherwise the column is listed in ``unchanged``.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

COMMIT, RELATION = b"CR"  # the first byte of these messages
INSERT, UPDATE, DELETE, TRUNCATE = "insert", "update", "delete", "truncate"
FIELDS = ("op", "table", "new", "old", "unchanged")  # default fields of a change
EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
Load = Callable[[int, bytes], Any]
Values = dict[str, Any]


class Unknown(ValueError):
    """Error of a message that protocol version 1 does not define."""


class Change(NamedTuple):
    """Change of a row, or truncation of a table.

    Attributes:
        op: Kind of change: insert, update, delete or truncate.
        table: Name of the table with its schema.
        new: Values of the row after the change, or None.
        old: Values before the change: the whole row under ``REPLICA IDENTITY FULL``, otherwise the key's columns.
        unchanged: Columns whose large values are not in the log.
        lsn: LSN of the transaction's commit.
        xid: Id of the transaction.
        time: Commit time.
        number: Number of the change within its transaction, from 0.
    """

    op: str
    table: str
    new: Values | None
    old: Values | None
    unchanged: tuple[str, ...]
    lsn: int
    xid: int
    time: dt.datetime
    number: int


class Committed(NamedTuple):
    """End of a transaction: the LSN after its commit, and its number of changes."""

    end: int
    changes: int


class _Column(NamedTuple):
    name: str
    is_key: bool
    kind: int


class _Table(NamedTuple):
    name: str
    columns: tuple[_Column, ...]


class _Unchanged:
    """Placeholder for a large value that is not in the log."""


_UNCHANGED = _Unchanged()


class _Bytes:
    """Cursor over the bytes of a message."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: str) -> Any:
        """Read a number of the given struct format."""
        (value,) = struct.unpack_from(f"!{form}", self._data, self._at)
        self._at += struct.calcsize(f"!{form}")
        return value

    def raw(self, size: int) -> bytes:
        """Read the given number of bytes."""
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        """Read text up to the next zero byte."""
        end = self._data.index(b"\0", self._at)
        text = self._data[self._at : end].decode()
        self._at = end + 1
        return text

    @property
    def is_left(self) -> bool:
        """Return True if the message has more bytes."""
        return self._at < len(self._data)


class Messages:
    """Decoder of consecutive messages."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._tables: dict[int, _Table] = {}
        self._lsn = self._xid = self._count = 0
        self._time = EPOCH

    def take(self, data: bytes) -> list[Change] | Committed:
        """Decode a message into changes, possibly none, or the end of a transaction. Raises Unknown."""
        message = _Bytes(data)
        kind = chr(message.take("B"))
        if kind == "B":
            self._lsn, micros, self._xid = message.take("Q"), message.take("q"), message.take("I")
            self._time, self._count = EPOCH + dt.timedelta(microseconds=micros), 0
        elif kind == "C":
            _, _, end = message.take("B"), message.take("Q"), message.take("Q")
            return Committed(end, self._count)
        elif kind == "R":
            self._relation(message)
        elif kind == "T":
            count, _ = message.take("I"), message.take("B")
            return [self._change(TRUNCATE, self._tables[message.take("I")]) for _ in range(count)]
        elif kind in "IUD":
            return [self._row(kind, message)]
        elif kind not in "YO":  # types and origins, which do not concern rows
            raise Unknown(f"a message {kind!r}, which protocol version 1 does not have")
        return []

    def _relation(self, message: _Bytes) -> None:
        number, schema, name = message.take("I"), message.text(), message.text()
        _, count = message.take("B"), message.take("H")
        columns = []
        for _ in range(count):
            flags, column, kind, _ = message.take("B"), message.text(), message.take("I"), message.take("i")
            columns.append(_Column(column, bool(flags & 1), kind))
        self._tables[number] = _Table(f"{schema or 'pg_catalog'}.{name}", tuple(columns))

    def _row(self, kind: str, message: _Bytes) -> Change:
        table = self._tables[message.take("I")]
        new: Values | None = None
        old: Values | None = None
        while message.is_left:
            part = chr(message.take("B"))
            values = self._values(table, message)
            if part == "N":
                new = values
            else:  # O: the whole row; K: only its key
                old = values if part == "O" else _key_of(table, values)
        if kind == "I":
            assert new is not None
            return self._change(INSERT, table, new)
        if kind == "D":
            return self._change(DELETE, table, None, old)
        assert new is not None
        return self._update(table, new, old)

    def _update(self, table: _Table, new: Values, old: Values | None) -> Change:
        before = _key_of(table, new) if old is None else old
        whole = {name: before.get(name, _UNCHANGED) if value is _UNCHANGED else value for name, value in new.items()}
        left = tuple(name for name, value in whole.items() if value is _UNCHANGED)
        return self._change(UPDATE, table, _without(whole, left), _without(before, left), left)

    def _change(
        self, op: str, table: _Table, new: Values | None = None, old: Values | None = None, left: Iterable[str] = ()
    ) -> Change:
        number, self._count = self._count, self._count + 1
        return Change(op, table.name, new, old, tuple(left), self._lsn, self._xid, self._time, number)

    def _values(self, table: _Table, message: _Bytes) -> Values:
        values: Values = {}
        for column, _ in zip(table.columns, range(message.take("H")), strict=True):
            state = chr(message.take("B"))
            if state == "t":
                values[column.name] = self._load(column.kind, message.raw(message.take("I")))
            else:
                values[column.name] = _UNCHANGED if state == "u" else None
        return values


def _key_of(table: _Table, values: Values) -> Values:
    return {column.name: values[column.name] for column in table.columns if column.is_key}


def _without(values: Values, names: tuple[str, ...]) -> Values:
    return {name: value for name, value in values.items() if name not in names}


def lsn_of(text: str) -> int:
    """Convert an LSN from PostgreSQL's text form to a number."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def text_of(lsn: int) -> str:
    """Convert an LSN from a number to PostgreSQL's text form."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"

"""Connections, values and errors shared by the PostgreSQL sink and sources.

Passwords must not be in the configuration, because the state store and the tracker show it. The password is read from
the file that ``user.postgres.password.file`` names, or by libpq's own methods (``PGPASSFILE``, a service file). Error
messages name the server by host, port and database only.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from heron_runtime.failures import one_line
from heronry.connect.settings import ConnectError, Option, driver, secret_of, text, whole

DSN = text("user.postgres.dsn", "the server, as host=… port=… dbname=… user=… or postgresql://…", required=True)
PASSWORD_FILE = text("user.postgres.password.file", "a file with the password")
CONNECT_SECS = whole("user.postgres.connect.timeout.secs", "how long a connection may take to open", 10)
OPTIONS = (DSN, PASSWORD_FILE, CONNECT_SECS)


def dsn_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message if the DSN of a configuration contains a password."""
    given = config.get(DSN.key)
    if isinstance(given, str) and _has_password(given):
        yield (
            f"config {DSN.key!r} holds a password, which a topology's definition shows: put it into a file and name "
            f"that in {PASSWORD_FILE.key!r}"
        )


def _has_password(dsn: str) -> bool:
    if "://" in dsn:
        place, _, query = dsn.partition("://")[2].partition("?")
        user, at, _ = place.partition("/")[0].rpartition("@")
        return bool(at and ":" in user) or "password=" in query
    return re.search(r"(^|\s)(ssl)?password\s*=", dsn) is not None


class Server:
    """Connection factory and SQL builder for the server that a topology's configuration names."""

    def __init__(self, config: Mapping[str, Any], application: str) -> None:
        self.driver = driver("psycopg", "PostgreSQL", "psycopg[binary]", "postgres")
        self._config = dict(config)
        self._application = application
        try:
            parts = self.driver.conninfo.conninfo_to_dict(DSN.of(config))
        except self.driver.Error as error:
            raise ConnectError(f"config {DSN.key!r} cannot be read ({one_line(str(error).strip(), 200)})") from None
        place = parts.get("host") or parts.get("service") or "the local socket"
        self.name = f"PostgreSQL at {place}:{parts.get('port') or 5432}, database {parts.get('dbname') or '?'}"

    def connect(self, autocommit: bool = True) -> Any:
        """Open a connection, with the session's time zone set to UTC. Raises ConnectError."""
        more: dict[str, Any] = {
            "application_name": self._application, "connect_timeout": CONNECT_SECS.of(self._config),
            "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        }  # fmt: skip
        if PASSWORD_FILE.of(self._config):
            more["password"] = secret_of(PASSWORD_FILE.of(self._config), PASSWORD_FILE.key)
        try:
            made = self.driver.connect(DSN.of(self._config), autocommit=autocommit, **more)
            made.execute("SET TIME ZONE 'UTC'")  # independent of the server's time zone
            if not autocommit:
                made.commit()
            return made
        except self.driver.Error as error:
            raise self._cannot_connect(error) from None

    def _cannot_connect(self, error: Exception) -> ConnectError:
        return ConnectError(
            f"{self.name}, cannot be reached ({one_line(str(error).strip(), 300)}): see that it runs, takes "
            f"connections from this host, and knows the user and password that config {DSN.key!r} and "
            f"{PASSWORD_FILE.key!r} lead to"
        )

    @contextlib.contextmanager
    def saying(self, what: str) -> Iterator[None]:
        """Translate psycopg errors of the block into a ConnectError that names the operation `what`.

        Raises:
            RetryableError: The operation may succeed later, on a new connection.
            ConnectError: The server refused the operation.
        """
        try:
            yield
        except (self.driver.OperationalError, self.driver.InterfaceError) as error:
            raise RetryableError(_why_later(error.sqlstate or "", self.name, what, error)) from None
        except self.driver.Error as error:
            shown = one_line(str(error).strip(), 400)
            raise ConnectError(f"{self.name}, has refused {what}: {shown} ({type(error).__name__})") from None

    def table(self, name: str) -> Any:
        """Return a table's name, with or without a schema, as an SQL identifier."""
        return self.driver.sql.Identifier(*name.split("."))

    def columns(self, names: tuple[str, ...] | list[str], prefix: str = "") -> Any:
        """Return column names as SQL identifiers, separated by commas."""
        sql = self.driver.sql
        parts = (sql.Identifier(prefix, name) if prefix else sql.Identifier(name) for name in names)
        return sql.SQL(", ").join(parts)

    def joined(self, separator: str, parts: list[Any]) -> Any:
        """Join parts of a statement with a separator."""
        return self.driver.sql.SQL(separator).join(parts)

    def sql(self, text: str, **parts: Any) -> Any:
        """Return a statement with the given parts inserted."""
        return self.driver.sql.SQL(text).format(**parts)


class RetryableError(ConnectError):
    """Error of an operation that may succeed on a new connection."""


#: SQLSTATE codes and classes of psycopg's OperationalError, longest prefix first: prefix, event, remedy.
_LATER = (
    ("53100", "has no disk space left", "free space on the server's disk"),
    ("53300", "has no connection left", "raise max_connections, or use fewer tasks"),
    ("53", "is short of resources", "give the server more memory, or raise the limit that it names"),
    ("55P03", "did not get a lock in time", "end the session that holds it, or raise lock_timeout"),
    ("57014", "cancelled the statement", "end what blocks it, or raise statement_timeout"),
    ("40", "rolled the transaction back", "let no other session change the same rows at the same time"),
    ("58", "met an error of its system", "see the server's log"),
)


def _why_later(state: str, server: str, what: str, error: Exception) -> str:
    """Return the message for an error with this SQLSTATE, which is empty for the driver's own errors."""
    shown = one_line(str(error).strip(), 300)
    for code, happened, cure in _LATER:
        if state.startswith(code):
            return f"{server}, {happened} while {what} ({shown}): {cure}; the topology resumes from its last checkpoint"
    return (
        f"the connection to {server}, was lost while {what} ({shown}): see that "
        "the server runs; nothing is lost, the topology resumes from its last checkpoint"
    )


def table_option(what: str) -> Option:
    """Return the option for the table's name."""
    return text("user.postgres.table", f"{what}, with or without its schema", required=True)


def as_json(rows: list[dict[str, Any]]) -> str:
    """Encode rows for ``json_populate_recordset``. The values must be results of ``fitting``."""
    return json.dumps(rows, ensure_ascii=False, allow_nan=False)


def fitting(value: Any) -> Any:
    """Convert a value to JSON from which PostgreSQL reads it unchanged as the column's type.

    Raises:
        ValueError: PostgreSQL cannot represent the value. The message states the reason.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("PostgreSQL has no text with a zero byte")
        if not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value):
            raise ValueError("UTF-8 cannot encode it")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, int):
        return value
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, list | tuple):
        return [fitting(part) for part in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("an object has str keys only")
        return {fitting(key): fitting(part) for key, part in value.items()}
    raise ValueError(f"PostgreSQL cannot represent a value of type {type(value).__name__}")

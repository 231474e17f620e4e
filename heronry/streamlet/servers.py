"""Sources on servers, or in tables of data lakes.

They are declared once in a program, and read by every engine through the readers of ``heronry.connect``.

A record is a dict of the declared ``fields``, with the values that the connector of that system returns. A split (a
stream, a partition, a range of a column) corresponds to a file of ``files``: it belongs to one task, its records are
numbered, and a record's identity is its step, split and number. ``settings`` are the connector's own configuration.
Invalid settings are reported when the program is built. Passwords are kept in files, never here.

A source that does not grow is read up to the records that exist at the start. This applies to the reference evaluator,
to Spark, and to the online engine with ``grows=False``. The ends are determined once (``bounds``), for all splits,
before anything is read.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from heronry.api.errors import TopologyError
from heronry.connect.acked import Row
from heronry.connect.pgoutput import FIELDS
from heronry.connect.polling import PollingSource, Range, Reader, rows_of

COMPONENTS = {
    "redis": "heronry.connect.redis_source:RedisStream",
    "postgres": "heronry.connect.postgres_source:SqlRows",
    "postgres-changes": "heronry.connect.postgres_changes:PostgresChanges",
    "kafka": "heronry.connect.kafka_source:KafkaTopics",
    "nats": "heronry.connect.nats_source:NatsStream",
    "delta": "heronry.connect.delta_source:DeltaRows",
    "iceberg": "heronry.connect.iceberg_source:IcebergRows",
}
MAPPINGS = (
    "user.kafka.client",
    "user.iceberg.catalog",
)  # settings that are mappings, stored as pairs so that a source is a value


class ServerSettings:
    """Base class of sources and sinks on servers: a system, fields, and a connector's configuration as pairs."""

    __slots__ = ()
    system: str
    fields: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...]

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the connector."""
        return {key: dict(value) if key in MAPPINGS else value for key, value in self.settings}

    def own_problems(self) -> Iterator[str]:
        """Yield problems that do not depend on the connector."""
        if not self.fields or not all(isinstance(name, str) and name for name in self.fields):
            yield f"fields is {self.fields!r}; name those of a record: fields=['id', 'word']"
        elif len(set(self.fields)) < len(self.fields):
            yield f"fields names one twice: {', '.join(self.fields)}"
        for key, value in self.settings:
            if key.endswith(".password.file") and isinstance(value, str) and not Path(value).is_absolute():
                yield f"password_file is {value!r}; write its whole path, for tasks run in folders of their own"

    def describe_address(self, what: Any) -> str:
        """Return a description: the system, the object in it (``what``), and its address."""
        known = dict(self.settings)
        where = next((known[key] for key in (prefix_of(self.system) + name for name in WHERE) if key in known), "")
        text = what if isinstance(what, str) else ", ".join(what)
        return " ".join(filter(None, (self.system, text, where and f"at {where}")))


@dataclass(frozen=True, slots=True)
class ServerSource(ServerSettings):
    """Source of records on a server. ``system`` is one of ``COMPONENTS``. ``grows``: unbounded when online."""

    system: str
    fields: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...] = field(repr=False)  # may contain passwords, until checked
    grows: bool = True
    kind: Literal["server"] = "server"

    @property
    def component(self) -> type[PollingSource]:
        """Class of the connector."""
        module, _, name = COMPONENTS[self.system].partition(":")
        source: type[PollingSource] = getattr(importlib.import_module(module), name)
        return source

    def problems(self) -> Iterator[str]:
        """Yield problems of the declaration, in the words of the connector."""
        yield from self.component.config_problems(self.config)
        yield from self.own_problems()
        if dict(self.settings).get("user.kafka.from", "oldest") != "oldest":
            yield "'from' is for spouts: what a program gives is of all messages, whenever it is started"

    def open(self, name: str) -> Reader:
        """Connect to the server. ``name`` is the client name that the server shows.

        Raises:
            ConnectError: The connection failed.
            BadConfig: A setting is invalid.
        """
        return self.component.reader(self.config, self.fields, name)

    def fixed(self) -> dict[str, Any]:
        """Return settings that the source leaves open, and that must be the same for all its readers.

        Raises:
            ConnectError: The connection failed.
        """
        return self.component.fixed(self.config, self.fields)

    def having(self, settings: Mapping[str, Any]) -> ServerSource:
        """Return a copy with these settings added."""
        return replace(self, settings=tuple(sorted({**dict(self.settings), **settings}.items())))

    def records(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return the records of a reader's rows."""
        fields = self.fields
        return [dict(zip(fields, row, strict=True)) for row in rows]

    def place_of(self, split: str, number: int) -> str:
        """Return the place of a record for messages, counted from 1."""
        return f"{split} ({self.system}), record {number + 1}"

    def __str__(self) -> str:
        known = dict(self.settings)
        return self.describe_address(
            next((known[key] for key in (prefix_of(self.system) + name for name in WHAT) if key in known), "")
        )


WHAT = ("table", "slot", "streams", "topics")  # names of settings for the object that is read,
WHERE = ("url", "dsn", "servers", "path")  # and for its address


def prefix_of(system: str) -> str:
    """Return the prefix of the settings of a system's connectors. A system may have several kinds of sources."""
    return f"user.{system.partition('-')[0]}."


def ranges_of(source: ServerSource, name: str) -> tuple[Range, ...]:
    """Return the ranges of all current records, by split.

    Raises:
        ConnectError: The connection failed.
        BadConfig: A setting is invalid.
    """
    with closing(source.open(name)) as reader:
        ranges = [reader.bounds(split) for split in reader.splits()]
    return tuple(wanted for wanted in ranges if wanted is not None)


def pieces_of(source: ServerSource, wanted: Sequence[Range], name: str) -> Iterator[tuple[str, int, list[Any]]]:
    """Yield split, number of the first record, and records, piece by piece.

    Raises:
        ConnectError: The connection failed.
        BadConfig: A setting is invalid.
    """
    with closing(source.open(name)) as reader:
        for each in wanted:
            number = 0
            for rows in rows_of(reader, each):
                yield each.split, number, source.records(rows)
                number += len(rows)


def redis_stream(
    url: str,
    streams: str | Sequence[str],
    fields: Sequence[str],
    *,
    password_file: str | Path | None = None,
    grows: bool = True,
    **more: Any,
) -> ServerSource:
    """Return a source of the entries of Redis streams. Each stream is a split.

    ``fields`` may name fields of the entries, ``id`` and ``stream``. ``more`` are further settings of ``RedisStream``,
    such as ``removed="skip"`` for ``user.redis.removed``.
    """
    return _server("redis", fields, password_file, grows, more, url=url, streams=_listed(streams))


def sql_rows(
    dsn: str,
    table: str,
    column: str,
    fields: Sequence[str],
    *,
    bounds: Sequence[Any] = (),
    password_file: str | Path | None = None,
    grows: bool = True,
    **more: Any,
) -> ServerSource:
    """Return a source of the rows of a PostgreSQL table, ordered by a column that increases.

    ``bounds`` are values of this column that divide the table into splits. ``more`` are further settings of
    ``SqlRows``, such as ``rows=5000`` for ``user.postgres.rows``.
    """
    values = {"dsn": dsn, "table": table, "column": column, "bounds": tuple(map(str, bounds))}
    return _server("postgres", fields, password_file, grows, more, **values)


def postgres_changes(
    dsn: str,
    slot: str,
    publication: str,
    fields: Sequence[str] = FIELDS,
    *,
    password_file: str | Path | None = None,
    grows: bool = True,
    **more: Any,
) -> ServerSource:
    """Return a source of the changes of PostgreSQL tables since a replication slot was created.

    Changes are in the order of commits. The slot is the only split. ``more`` are further settings of
    ``PostgresChanges``, such as ``rows=5000`` for ``user.postgres.rows``.
    """
    values = {"dsn": dsn, "slot": slot, "publication": publication}
    return _server("postgres-changes", fields, password_file, grows, more, **values)


def kafka(
    servers: str,
    topics: str | Sequence[str],
    fields: Sequence[str] = ("key", "value"),
    *,
    client: dict[str, str] | None = None,
    password_file: str | Path | None = None,
    grows: bool = True,
    **more: Any,
) -> ServerSource:
    """Return a source of the messages of Kafka topics. Each partition is a split.

    ``client`` has settings of librdkafka, without passwords. ``more`` are further settings of ``KafkaTopics``, such as
    ``removed="skip"`` for ``user.kafka.removed``.
    """
    if client is not None:
        more["client"] = tuple(sorted(client.items()))
    return _server("kafka", fields, password_file, grows, more, servers=servers, topics=_listed(topics))


def nats(
    url: str,
    streams: str | Sequence[str],
    fields: Sequence[str] = ("subject", "data"),
    *,
    password_file: str | Path | None = None,
    grows: bool = True,
    **more: Any,
) -> ServerSource:
    """Return a source of the messages of JetStream streams. Each stream is a split.

    ``more`` are further settings of ``NatsStream``, such as ``removed="skip"`` for ``user.nats.removed``.
    """
    return _server("nats", fields, password_file, grows, more, url=url, streams=_listed(streams))


def delta(path: str | Path, fields: Sequence[str], *, version: int | None = None) -> ServerSource:
    """Return a source of the rows of a Delta table at a version. Each of its data files is a split.

    ``path`` must be absolute. The default version is the newest: online, at the time of submission; otherwise, when
    reading begins.
    """
    given: dict[str, Any] = {} if version is None else {"version": version}
    return _server("delta", fields, None, False, given, path=str(path))


def iceberg(
    catalog: Mapping[str, str], table: str, fields: Sequence[str], *, snapshot: int | None = None
) -> ServerSource:
    """Return a source of the rows of an Iceberg table at a snapshot. Each of its data files is a split.

    ``catalog`` has properties of pyiceberg, without secrets. The default snapshot is the newest, as for ``delta``.
    """
    given: dict[str, Any] = {} if snapshot is None else {"snapshot": snapshot}
    return _server("iceberg", fields, None, False, given, catalog=tuple(sorted(catalog.items())), table=table)


def _server(
    system: str, fields: Sequence[str], password_file: str | Path | None, grows: bool, more: dict[str, Any],
    **values: Any,
) -> ServerSource:  # fmt: skip
    """Return the source.

    Raises:
        TopologyError: The connector does not have a setting.
    """
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    source = ServerSource(system, names, (), bool(grows))
    known = source.component.settings()
    settings = given_settings(system, source.component.__name__, known, password_file, {**more, **values})
    return replace(source, settings=settings)


def given_settings(
    system: str, component: str, known: set[str], password_file: str | Path | None, given: dict[str, Any]
) -> tuple[tuple[str, Any], ...]:
    """Return a connector's configuration as pairs.

    Raises:
        TopologyError: The connector does not have a setting.
    """
    if password_file is not None:
        given["password.file"] = str(password_file)
    settings = {prefix_of(system) + name.replace("_", "."): value for name, value in given.items()}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise TopologyError(
            f"{system}: unknown setting {', '.join(unknown)}; {component} has {', '.join(sorted(known))}"
        )
    return tuple(sorted(settings.items()))


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)

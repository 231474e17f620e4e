"""Sinks on servers, or in tables of data lakes.

They are declared once in a program, and written by every engine through the sinks of ``heronry.connect``, each record
once.

The declared ``fields`` of a record are written. Other fields are omitted, and a missing field is None. A record has
named fields: a dict, a named tuple or a dataclass. ``settings`` are the connector's own configuration. Invalid settings
are reported when the program is built. Passwords are kept in files, never here. Declaring a sink imports no driver.

Online, the connector's two phases are those of checkpoints (``online/sinks.py``). On Spark they are those of
the result's folder (``data_pipeline/shell/staged.py``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from heronry.connect.seats import Seat, SeatedSink
from heronry.connect.settings import BadConfig
from heronry.streamlet.records import named_fields
from heronry.streamlet.servers import ServerSettings, given_settings

SINKS = {
    "redis": "heronry.connect.redis_sink:RedisStreamSink",
    "postgres": "heronry.connect.postgres_sink:PostgresSink",
    "kafka": "heronry.connect.kafka_sink:KafkaSink",
    "nats": "heronry.connect.nats_sink:NatsSink",
    "delta": "heronry.connect.delta_sink:DeltaSink",
    "iceberg": "heronry.connect.iceberg_sink:IcebergSink",
}
INTO = {  # the setting that names the target
    "redis": "stream", "postgres": "table", "kafka": "topic", "nats": "subject", "iceberg": "table",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerSink(ServerSettings):
    """Sink of records on a server. ``system`` is one of ``SINKS``."""

    system: str
    fields: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...] = field(repr=False)  # may contain passwords, until checked
    kind: Literal["server"] = "server"

    @property
    def component(self) -> type[SeatedSink]:
        """Class of the connector."""
        module, _, name = SINKS[self.system].partition(":")
        sink: type[SeatedSink] = getattr(importlib.import_module(module), name)
        return sink

    @property
    def replaces_by(self) -> tuple[str, ...]:
        """Fields by which a record replaces an existing one. Empty if records are only added."""
        return self.component.replaces_by(self.config)

    def problems(self) -> Iterator[str]:
        """Yield problems of the declaration, in the words of the connector."""
        yield from self.component.config_problems(self.config)
        yield from self.own_problems()
        keys = dict(self.settings).get(f"user.{self.system}.key") or ()
        for key in (keys,) if isinstance(keys, str) else keys:
            if key not in self.fields:
                yield f"key names {key!r}, which is not one of the fields ({', '.join(map(str, self.fields))})"
        spool = dict(self.settings).get(f"user.{self.system}.spool")
        if isinstance(spool, str) and spool and not Path(spool).is_absolute():
            yield f"spool is {spool!r}; write its whole path, the same folder for all hosts"

    def encoded(self, record: Any) -> Any:
        """Return a record in the form that the connector takes.

        Raises:
            TypeError: The record has no named fields, or a value has an unsupported type.
            ConnectError: The system cannot store the record.
        """
        fields = named_fields(record, "a server")
        return _encoder(self)([fields.get(name) for name in self.fields])

    def open(self, seat: Seat) -> SeatedSink:
        """Return the connector, connected.

        Raises:
            ConnectError: The connection failed.
            BadConfig: A setting is invalid.
        """
        made = self.component()
        problems = list(made.config_problems(self.config))
        if problems:
            raise BadConfig(f"{self.component.__name__} {'; '.join(problems)}")
        made.open(self.config, seat._replace(fields=self.fields))
        return made

    def __str__(self) -> str:
        return self.describe_address(dict(self.settings).get(f"user.{self.system}.{INTO.get(self.system)}", ""))


@lru_cache
def _encoder(sink: ServerSink) -> Callable[[Sequence[Any]], Any]:
    return sink.component.encoder(sink.config, sink.fields)


def to_table(
    dsn: str,
    table: str,
    fields: Sequence[str],
    *,
    key: str | Sequence[str] = (),
    password_file: str | Path | None = None,
    **more: Any,
) -> ServerSink:
    """Return a sink of rows of a PostgreSQL table. ``fields`` are its columns.

    ``key`` has the columns of a unique key: a record replaces an existing row with its key. ``more`` are further
    settings of ``PostgresSink``.
    """
    if key:
        more["key"] = (key,) if isinstance(key, str) else tuple(key)
    return _sink("postgres", fields, password_file, more, dsn=dsn, table=table)


def to_redis_stream(
    url: str, stream: str, fields: Sequence[str], *, password_file: str | Path | None = None, **more: Any
) -> ServerSink:
    """Return a sink of entries of a Redis stream. Fields that are None are omitted.

    ``more`` are further settings of ``RedisStreamSink``, such as ``maxlen=100000`` for ``user.redis.maxlen``.
    """
    return _sink("redis", fields, password_file, more, url=url, stream=stream)


def to_kafka(
    servers: str,
    topic: str,
    fields: Sequence[str],
    *,
    spool: str | Path,
    key: str | None = None,
    client: dict[str, str] | None = None,
    password_file: str | Path | None = None,
    **more: Any,
) -> ServerSink:
    """Return a sink of messages of a Kafka topic, which are JSON objects.

    Args:
        servers: Addresses of the brokers.
        topic: The topic.
        fields: Fields of a record that are written.
        spool: Folder that keeps batches until they are written, the same for all hosts.
        key: Field that is the key of a message.
        client: Settings of librdkafka, without passwords.
        password_file: Path of a file with the password.
        **more: Further settings of ``KafkaSink``.
    """
    if key is not None:
        more["key"] = key
    if client is not None:
        more["client"] = tuple(sorted(client.items()))
    return _sink("kafka", fields, password_file, more, servers=servers, topic=topic, spool=str(spool))


def to_nats(
    url: str,
    subject: str,
    fields: Sequence[str],
    *,
    spool: str | Path,
    password_file: str | Path | None = None,
    **more: Any,
) -> ServerSink:
    """Return a sink of messages to a subject of a JetStream stream, which are JSON objects.

    ``spool`` is folder of batches until they are published, the same for all hosts. ``more`` are further
    settings of ``NatsSink``.
    """
    return _sink("nats", fields, password_file, more, url=url, subject=subject, spool=str(spool))


def to_delta(path: str | Path, fields: Sequence[str], **more: Any) -> ServerSink:
    """Return a sink of rows of an existing Delta table. ``path`` must be absolute.

    ``fields`` are columns of the table; other columns become null. ``more`` are further settings of ``DeltaSink``, such
    as ``partitions=1000`` for ``user.delta.partitions``.
    """
    return _sink("delta", fields, None, more, path=str(path))


def to_iceberg(catalog: Mapping[str, str], table: str, fields: Sequence[str], **more: Any) -> ServerSink:
    """Return a sink of rows of an existing Iceberg table.

    ``fields`` are columns of the table; other columns become null. ``catalog`` has properties of pyiceberg, without
    secrets. ``more`` are further settings of ``IcebergSink``, as for ``to_delta``.
    """
    return _sink("iceberg", fields, None, more, catalog=tuple(sorted(catalog.items())), table=table)


def _sink(
    system: str, fields: Sequence[str], password_file: str | Path | None, more: dict[str, Any], **values: Any
) -> ServerSink:
    """Return the sink.

    Raises:
        TopologyError: The connector does not have a setting.
    """
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    module, _, component = SINKS[system].partition(":")
    known: set[str] = getattr(importlib.import_module(module), component).settings()
    return ServerSink(system, names, given_settings(system, component, known, password_file, {**more, **values}))

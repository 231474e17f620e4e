"""Sinks that live in servers, or in tables of lakes: declared once in a program, written on every engine through the
sinks of ``heronry.connect``, each record once.

Of a record the declared ``fields`` are written; what else it has is left out, and one that it lacks is None. A record
has named fields: a dict, a named tuple, a dataclass. ``settings`` are the connector's own configuration; what is wrong
with them is said when the program is built. Passwords stand in files, never here, and no driver is imported to declare
a sink.

Online the connector's two phases are those of checkpoints (``online/server_writer.py``), on Spark those of the result's
folder (``data_pipeline/shell/staged.py``).
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
INTO = {  # the setting that says where to
    "redis": "stream", "postgres": "table", "kafka": "topic", "nats": "subject", "iceberg": "table",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerSink(ServerSettings):
    """Records into a server; ``system`` is one of ``SINKS``."""

    system: str
    fields: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...] = field(repr=False)  # perhaps not yet checked for passwords
    kind: Literal["server"] = "server"

    @property
    def component(self) -> type[SeatedSink]:
        """The connector."""
        module, _, name = SINKS[self.system].partition(":")
        found: type[SeatedSink] = getattr(importlib.import_module(module), name)
        return found

    @property
    def replaces_by(self) -> tuple[str, ...]:
        """The fields by which a record takes the place of one that is there; none where records are only added."""
        return self.component.replaces_by(self.config)

    def problems(self) -> Iterator[str]:
        """What is wrong with the declaration, as the connector says it."""
        yield from self.component.config_problems(self.config)
        yield from self.own_problems()
        keys = dict(self.settings).get(f"user.{self.system}.key") or ()
        for key in (keys,) if isinstance(keys, str) else keys:
            if key not in self.fields:
                yield f"key names {key!r}, which is none of the fields ({', '.join(map(str, self.fields))})"
        spool = dict(self.settings).get(f"user.{self.system}.spool")
        if isinstance(spool, str) and spool and not Path(spool).is_absolute():
            yield f"spool is {spool!r}; write its whole path, the same folder for all hosts"

    def encoded(self, record: Any) -> Any:
        """What the connector takes of a record. Raises TypeError, ConnectError."""
        found = named_fields(record, "a server")
        return _encoder(self)([found.get(name) for name in self.fields])

    def open(self, seat: Seat) -> SeatedSink:
        """The connector, connected. Raises ConnectError, BadConfig."""
        made = self.component()
        problems = list(made.config_problems(self.config))
        if problems:
            raise BadConfig(f"{self.component.__name__} {'; '.join(problems)}")
        made.open(self.config, seat._replace(fields=self.fields))
        return made

    def __str__(self) -> str:
        return self.told(dict(self.settings).get(f"user.{self.system}.{INTO.get(self.system)}", ""))


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
    """Rows of a PostgreSQL table; ``fields`` are its columns.

    ``key``: columns of a unique key; a record whose key is there replaces what is there. ``more``: what else
    ``PostgresSink`` takes.
    """
    if key:
        more["key"] = (key,) if isinstance(key, str) else tuple(key)
    return _sink("postgres", fields, password_file, more, dsn=dsn, table=table)


def to_redis_stream(
    url: str, stream: str, fields: Sequence[str], *, password_file: str | Path | None = None, **more: Any
) -> ServerSink:
    """Entries of a Redis stream, without the fields that are None.

    ``more``: what else ``RedisStreamSink`` takes, ``maxlen=100000`` for ``user.redis.maxlen``.
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
    """Messages of a Kafka topic: JSON objects. ``key``: the field that is a message's key.

    ``spool``: the folder that keeps batches until they are written, the same for all hosts. ``client``: settings of
    librdkafka, without passwords. ``more``: what else ``KafkaSink`` takes.
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
    """Messages to a subject of a JetStream stream: JSON objects.

    ``spool``: the folder that keeps batches until they are published, the same for all hosts. ``more``: what else
    ``NatsSink`` takes.
    """
    return _sink("nats", fields, password_file, more, url=url, subject=subject, spool=str(spool))


def to_delta(path: str | Path, fields: Sequence[str], **more: Any) -> ServerSink:
    """Rows of a Delta table that is there (its whole path); ``fields`` are columns of it, others become null.

    ``more``: what else ``DeltaSink`` takes, ``partitions=1000`` for ``user.delta.partitions``.
    """
    return _sink("delta", fields, None, more, path=str(path))


def to_iceberg(catalog: Mapping[str, str], table: str, fields: Sequence[str], **more: Any) -> ServerSink:
    """Rows of an Iceberg table that is there; ``fields`` are columns of it, others become null.

    ``catalog``: properties of pyiceberg's, without secrets. ``more``: what else ``IcebergSink`` takes, as above.
    """
    return _sink("iceberg", fields, None, more, catalog=tuple(sorted(catalog.items())), table=table)


def _sink(
    system: str, fields: Sequence[str], password_file: str | Path | None, more: dict[str, Any], **values: Any
) -> ServerSink:
    """The value. Raises TopologyError for settings that the connector does not have."""
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    module, _, component = SINKS[system].partition(":")
    known: set[str] = getattr(importlib.import_module(module), component).settings()
    return ServerSink(system, names, given_settings(system, component, known, password_file, {**more, **values}))

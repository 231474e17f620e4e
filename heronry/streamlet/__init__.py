"""Streamlet API: programs that run online as topologies, and over history on batch engines.

See docs/explanation/streamlet.md.
"""

from heronry.streamlet.builder import Builder
from heronry.streamlet.endpoints import archive, collect, files, sequence, sink_of, to_files, view
from heronry.streamlet.joins import Joined
from heronry.streamlet.monoid import Monoid, count, distinct, max_, mean, min_, monoid, sum_, top_k
from heronry.streamlet.process import Context, Process
from heronry.streamlet.program import KeyValue, Matched, Program, Windowed
from heronry.streamlet.server_sinks import to_delta, to_iceberg, to_kafka, to_nats, to_redis_stream, to_table
from heronry.streamlet.servers import delta, iceberg, kafka, nats, postgres_changes, redis_stream, sql_rows
from heronry.streamlet.stream import KeyedStreamlet, Streamlet, WindowedStreamlet
from heronry.streamlet.windows import Window, session, sliding, tumbling

__all__ = [
    "Builder",
    "Context",
    "Joined",
    "KeyValue",
    "KeyedStreamlet",
    "Matched",
    "Monoid",
    "Process",
    "Program",
    "Streamlet",
    "Window",
    "Windowed",
    "WindowedStreamlet",
    "archive",
    "collect",
    "count",
    "delta",
    "distinct",
    "files",
    "iceberg",
    "kafka",
    "max_",
    "mean",
    "min_",
    "monoid",
    "nats",
    "postgres_changes",
    "redis_stream",
    "sequence",
    "session",
    "sink_of",
    "sliding",
    "sql_rows",
    "sum_",
    "to_delta",
    "to_files",
    "to_iceberg",
    "to_kafka",
    "to_nats",
    "to_redis_stream",
    "to_table",
    "top_k",
    "tumbling",
    "view",
]

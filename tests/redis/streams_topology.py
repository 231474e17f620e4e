"""Topology that copies entries of two streams to a third one, exactly once.

heron submit local streams_topology.py Streams -- URL PASSWORD_FILE FROM,FROM TO
"""

from __future__ import annotations

import sys

from heronry import Config, Grouping, Topology
from heronry.connect.redis_sink import RedisStreamSink
from heronry.connect.redis_source import RedisStream


class Streams(Topology):
    """Topology entries -> stream."""

    _url, _password_file, _from, _to = sys.argv[1:]
    _server = {"user.redis.url": _url, "user.redis.password.file": _password_file}
    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 0.5,
    }
    entries = RedisStream.spec(
        par=2, optional_outputs=["stream", "word"], config={**_server, "user.redis.streams": _from.split(",")}
    )
    written = RedisStreamSink.spec(
        par=2, inputs={entries: Grouping.SHUFFLE}, config={**_server, "user.redis.stream": _to}
    )

"""Topology that copies messages of a Kafka topic to another, exactly once.

heron submit local kafka_topology.py Messages -- SERVERS FROM TO SPOOL
"""

from __future__ import annotations

import sys

from heronry import Config, Grouping, Topology
from heronry.connect.kafka_sink import KafkaSink
from heronry.connect.kafka_source import KafkaTopics


class Messages(Topology):
    """Topology messages -> topic."""

    _servers, _from, _to, _spool = sys.argv[1:]
    _brokers = {"user.kafka.servers": _servers}
    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 0.5,
    }
    messages = KafkaTopics.spec(
        par=2, optional_outputs=["key", "value"], config={**_brokers, "user.kafka.topics": [_from]}
    )
    written = KafkaSink.spec(
        par=2,
        inputs={messages: Grouping.fields("key")},
        config={**_brokers, "user.kafka.topic": _to, "user.kafka.key": "key", "user.kafka.spool": _spool},
    )

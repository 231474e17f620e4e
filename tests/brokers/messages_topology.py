"""Topology that copies messages of two streams (exactly once) and an MQTT topic (at least once) to a third stream.

heron submit local messages_topology.py Messages -- URL PASSWORD_FILE FROM,FROM SUBJECT SPOOL MQTT_URL TOPIC
"""

from __future__ import annotations

import sys

from heronry import Config, Grouping, Topology
from heronry.connect.mqtt_source import MqttTopics
from heronry.connect.nats_sink import NatsSink
from heronry.connect.nats_source import NatsStream


class Messages(Topology):
    """Topology messages, readings -> stream."""

    _url, _password_file, _from, _to, _spool, _mqtt, _topic = sys.argv[1:]
    _server = {"user.nats.url": _url, "user.nats.password.file": _password_file}
    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 0.5,
    }
    messages = NatsStream.spec(
        par=2, optional_outputs=["stream", "data"], config={**_server, "user.nats.streams": _from.split(",")}
    )
    readings = MqttTopics.spec(
        optional_outputs=["topic", "data"],
        config={
            "user.mqtt.url": _mqtt,
            "user.mqtt.password.file": _password_file,
            "user.mqtt.topics": [_topic],
            "user.mqtt.repeats": "accept",
        },
    )
    written = NatsSink.spec(
        par=2,
        inputs={messages: Grouping.SHUFFLE, readings: Grouping.SHUFFLE},
        config={**_server, "user.nats.subject": _to, "user.nats.spool": _spool},
    )

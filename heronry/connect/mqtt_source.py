"""At-least-once source for an MQTT 5.0 broker.

A broker cannot resend messages that were acknowledged, so checkpoints hold no positions. Instead, the source uses a
session, which the broker keeps while the client is disconnected. The source acknowledges a message of QoS 1 when its
results are safe, and the broker resends it until then. Results are safe when the tuple is acked (``ATLEAST_ONCE``), or
when the checkpoint that includes it is complete (``EFFECTIVELY_ONCE``).

If the source dies between that point and the acknowledgement, messages are delivered twice. They cannot be told from
new ones, because packet numbers are reused. So ``EFFECTIVELY_ONCE`` is rejected unless the configuration accepts
repeats.

A session belongs to one client, so the source has one task. The client runs in a thread of its own and passes messages
through a queue. The broker holds back messages while ``user.mqtt.rows`` of them are not acknowledged.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from heron_runtime.failures import one_line
from heron_runtime.model.settings import Keys, setting
from heronry.api.component import Spout
from heronry.api.config import Config
from heronry.connect.polling import fields_of
from heronry.connect.settings import (
    BadConfig,
    ConnectError,
    address_problems,
    driver,
    names,
    problems,
    require,
    seconds,
    secret_of,
    step_name,
    text,
    whole,
)
from heronry.connect.text import value_of

URL = text("user.mqtt.url", "the broker, as mqtt://[USER@]HOST[:PORT] or mqtts://", required=True)
PASSWORD_FILE = text("user.mqtt.password.file", "a file with the password")
TIMEOUT = seconds("user.mqtt.timeout.secs", "how long the broker may take to answer", 10.0)
TOPICS = names("user.mqtt.topics", "the topics that are read; + and # stand for levels", required=True)
ROWS = whole("user.mqtt.rows", "how many messages may wait to be acknowledged", 1000)
SESSION = seconds("user.mqtt.session.secs", "how long the broker keeps messages while no task reads", 24 * 3600.0)
REPEATS = text("user.mqtt.repeats", "accept, if messages may come twice after a fault though the topology counts once")
ACCEPT = "accept"
OPTIONS = (URL, PASSWORD_FILE, TIMEOUT, TOPICS, ROWS, SESSION, REPEATS)
MOST_ROWS = 65_535  # limit of MQTT's Receive Maximum
QOS = 1
LONGEST_PAUSE_SECS = 10
PacketId = tuple[int, int]  # session, and the packet number within it
log = logging.getLogger(__name__)


class OpenMessages:
    """Emitted QoS 1 messages that are not yet acknowledged, by session and packet number.

    A broker that has lost a session restarts its packet numbers at 1, so a number identifies a message only together
    with its session.
    """

    def __init__(self) -> None:
        self._session = 0
        self._rows: dict[PacketId, list[Any]] = {}
        self._lock = threading.Lock()

    def begin_session(self) -> None:
        """Start a new session with its own packet numbers.

        Rows are kept, because their tuples are still being processed.
        """
        with self._lock:
            self._session += 1

    def packet_id(self, number: int) -> PacketId:
        """Return the id of a packet of the current session."""
        return self._session, number

    def add(self, packet: PacketId, row: list[Any]) -> bool:
        """Add the row of a message. Return False if it is already open: the broker resent it after a reconnect."""
        if packet in self._rows:
            return False
        self._rows[packet] = row
        return True

    def row(self, packet: PacketId) -> list[Any] | None:
        """Return the row of a message, or None if it was acknowledged."""
        return self._rows.get(packet)

    def acknowledge(self, packet: PacketId, send: Callable[[int], Any]) -> None:
        """Remove a message, and pass its number to `send` if it belongs to the current session."""
        if self._rows.pop(packet, None) is None:
            return
        with self._lock:  # prevents a new session between the comparison and the sending
            session, number = packet
            if session == self._session:
                send(number)


class MqttTopics(Spout):
    """At-least-once source of the messages of ``user.mqtt.topics``.

    Fields: ``topic``, ``data`` and ``retained``. Select them with
    ``MqttTopics.spec(optional_outputs=["topic", "data"], config={…})``. The source must have exactly one task.
    """

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing, invalid or inconsistent option."""
        yield from problems(OPTIONS, config)
        yield from address_problems(config, URL, PASSWORD_FILE, ("mqtt", "mqtts"))
        if isinstance(ROWS.of(config), int) and ROWS.of(config) > MOST_ROWS:
            yield f"config {ROWS.key!r} is {ROWS.of(config)}; MQTT allows at most {MOST_ROWS}"
        once = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) == Config.EFFECTIVELY_ONCE
        if once and REPEATS.of(config) != ACCEPT:
            yield (
                "reads a broker, which sends messages again after some faults, and this topology is EFFECTIVELY_ONCE: "
                f"say that they may count twice, config {REPEATS.key!r}: {ACCEPT!r}, or make it ATLEAST_ONCE"
            )

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Check the configuration, connect to the broker and subscribe.

        Raises:
            BadConfig: An option or field is invalid, or the component has several tasks.
            ConnectError: The broker is unreachable, or refuses the connection or a topic.
        """
        require(self, config)
        self._fields = fields_of(context, "MqttTopics.spec(optional_outputs=['topic', 'data'], …)")
        if unknown := [name for name in self._fields if name not in ("topic", "data", "retained")]:
            raise BadConfig(f"MqttTopics has no field {unknown[0]!r}; there are topic, data and retained")
        if len(context.get_component_tasks(context.get_component_id())) > 1:
            raise BadConfig(
                "MqttTopics has one task, for a broker's session belongs to one client: leave par out, and divide the "
                "topics among several of them"
            )
        self._mode = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE)
        self._topics, self._rows = list(dict.fromkeys(TOPICS.of(config))), ROWS.of(config)
        self._came: queue.Queue[Any] = queue.Queue(2 * self._rows)
        self._closing = threading.Event()
        self._open = OpenMessages()
        self._since: list[PacketId] = []  # packets emitted since the last checkpoint
        self._saved: dict[str, list[PacketId]] = {}
        self._failed: queue.Queue[str] = queue.Queue()
        self._connect(config, step_name(context))

    def _connect(self, config: Mapping[str, Any], name: str) -> None:
        client = driver("paho.mqtt.client", "MQTT", "paho-mqtt", "mqtt")
        properties = client.Properties(importlib.import_module("paho.mqtt.packettypes").PacketTypes.CONNECT)
        parts = urlsplit(URL.of(config))
        port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
        self.broker = f"MQTT at {parts.hostname}:{port}"
        self._ready = threading.Event()
        made = client.Client(
            client.CallbackAPIVersion.VERSION2, f"heronry-{name}", protocol=client.MQTTv5, manual_ack=True
        )
        if parts.username:
            path = PASSWORD_FILE.of(config)
            made.username_pw_set(parts.username, secret_of(path, PASSWORD_FILE.key) if path else None)
        if parts.scheme == "mqtts":
            made.tls_set()
        made.reconnect_delay_set(1, LONGEST_PAUSE_SECS)
        made.on_connect, made.on_subscribe = self._on_connect, self._on_subscribe
        made.on_disconnect, made.on_message = self._on_disconnect, self._on_message
        properties.SessionExpiryInterval = int(SESSION.of(config))
        properties.ReceiveMaximum = self._rows
        self._client = made
        try:
            made.connect(parts.hostname, port, clean_start=False, properties=properties)
        except OSError as error:
            raise self._unreachable(one_line(str(error), 200)) from None
        made.loop_start()
        if not self._ready.wait(TIMEOUT.of(config)) or not self._failed.empty():
            why = "no answer" if self._failed.empty() else self._failed.get()
            self.close()
            raise self._unreachable(why)

    def _unreachable(self, why: str) -> ConnectError:
        return ConnectError(
            f"{self.broker} cannot be read ({why}): see that it runs, speaks MQTT 5, takes connections from this host, "
            f"and knows the user and password that config {URL.key!r} and {PASSWORD_FILE.key!r} lead to"
        )

    # Methods that run in the client's thread.

    def _on_connect(self, client: Any, _userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._failed.put(str(reason))
            self._ready.set()
            return
        if self._ready.is_set() and not flags.session_present:
            log.warning("%s has lost the session of this source: messages sent in between are lost", self.broker)
            self._open.begin_session()
        client.subscribe([(topic, QOS) for topic in self._topics])

    def _on_subscribe(self, client: Any, _userdata: Any, mid: int, reasons: Any, properties: Any) -> None:
        for topic, reason in zip(self._topics, reasons, strict=False):
            if reason.is_failure:
                self._failed.put(f"topic {topic!r}: {reason}")
        self._ready.set()

    def _on_disconnect(self, client: Any, _userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            log.warning("%s is away (%s): connecting again", self.broker, reason)

    def _on_message(self, client: Any, _userdata: Any, message: Any) -> None:
        """Queue a message, waiting for room. Only QoS 0 can fill the queue, as open messages of QoS 1 are bounded."""
        packet = self._open.packet_id(message.mid) if message.qos else None
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self._came.put((packet, message), timeout=0.2)
                return

    # Methods that run in the engine's thread.

    def next_tuple(self) -> None:
        """Emit the queued messages. Raises ConnectError if the broker refused a subscription."""
        if not self._failed.empty():
            raise self._unreachable(self._failed.get())
        rows: list[list[Any]] = []
        packets: list[PacketId | None] = []
        while len(rows) < self._rows:
            try:
                packet, message = self._came.get_nowait()
            except queue.Empty:
                break
            row = self._values(message)
            if packet is not None and not self._open.add(packet, row):
                continue
            rows.append(row)
            packets.append(packet)
        if not rows:
            return
        if self._mode == Config.ATLEAST_ONCE:
            self.emit_many(rows, packets)
            return
        self.emit_many(rows)
        given = [packet for packet in packets if packet is not None]
        if self._mode == Config.EFFECTIVELY_ONCE:
            self._since += given
        else:
            self._acknowledge(given)

    def _values(self, message: Any) -> list[Any]:
        own = {"topic": message.topic, "data": value_of(bytes(message.payload)), "retained": bool(message.retain)}
        return [own[name] for name in self._fields]

    def _acknowledge(self, packets: list[PacketId]) -> None:
        for packet in packets:
            self._open.acknowledge(packet, lambda number: self._client.ack(number, QOS))

    def ack(self, tup_id: Any) -> None:
        """Acknowledge a message, so that the broker does not resend it."""
        self._acknowledge([tup_id])

    def fail(self, tup_id: Any) -> None:
        """Emit a message again. The broker resends only messages that it has not sent over this connection."""
        row = self._open.row(tup_id)
        if row is not None:
            self.emit(row, tup_id)

    def pre_save(self, checkpoint_id: str) -> None:
        """Assign the messages emitted since the last checkpoint to this one."""
        self._saved[checkpoint_id], self._since = self._since, []

    def post_save(self, checkpoint_id: str) -> None:
        """Acknowledge the messages of a completed checkpoint and of all earlier ones."""
        for saved in list(self._saved):
            self._acknowledge(self._saved.pop(saved))
            if saved == checkpoint_id:
                return

    def close(self) -> None:
        """Disconnect. The session remains, so the broker keeps messages that arrive later."""
        if hasattr(self, "_client"):
            self._closing.set()
            self._client.disconnect()
            self._client.loop_stop()

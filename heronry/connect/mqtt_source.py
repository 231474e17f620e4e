"""Messages of an MQTT broker (5.0), at least once.

A broker cannot be asked to send again what it knows to be taken, so no checkpoint has a position. What there is instead
is a session, which the broker keeps while nobody is there: a message of QoS 1 is acknowledged when what came of it is
safe, and comes again until then. That is when the tuple is acked (``ATLEAST_ONCE``), or when the checkpoint behind it
is complete (``EFFECTIVELY_ONCE``). Who dies between that and the acknowledgement gets messages for the second time, and
nothing tells them from new ones: packet numbers are used again. So ``EFFECTIVELY_ONCE`` is refused until the
configuration accepts repeats.

A session belongs to one client, so the source has one task. The client has a thread of its own, which hands messages
over in a queue; the broker holds back what is more than ``user.mqtt.rows`` that are not acknowledged.
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
from heronry.connect.drivers import driver
from heronry.connect.polling import fields_of
from heronry.connect.settings import (
    BadConfig,
    ConnectError,
    address_problems,
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
SESSION = seconds("user.mqtt.session.secs", "how long the broker keeps what comes while nobody reads", 24 * 3600.0)
REPEATS = text("user.mqtt.repeats", "accept, if messages may come twice after a fault though the topology counts once")
ACCEPT = "accept"
OPTIONS = (URL, PASSWORD_FILE, TIMEOUT, TOPICS, ROWS, SESSION, REPEATS)
MOST_ROWS = 65_535  # what a broker may be told
QOS = 1
LONGEST_PAUSE_SECS = 10
PacketId = tuple[int, int]  # session, and the broker's number in it
log = logging.getLogger(__name__)


class OpenMessages:
    """Messages of QoS 1 that are emitted and not yet acknowledged, by session and packet number.

    A broker that has lost a session counts packets from 1 again. So a number means nothing without its session.
    """

    def __init__(self) -> None:
        self._session = 0
        self._rows: dict[PacketId, list[Any]] = {}
        self._lock = threading.Lock()

    def begin_session(self) -> None:
        """Forget how the broker numbered packets. The rows stay, for their tuples are on the way."""
        with self._lock:
            self._session += 1

    def packet_id(self, number: int) -> PacketId:
        """Return the id of a packet that the broker has sent in the present session."""
        return self._session, number

    def add(self, packet: PacketId, row: list[Any]) -> bool:
        """Keep the row of a message. False if it is here already: the broker has sent it again after a break."""
        if packet in self._rows:
            return False
        self._rows[packet] = row
        return True

    def row(self, packet: PacketId) -> list[Any] | None:
        """Return the row of a message, None if it is acknowledged."""
        return self._rows.get(packet)

    def acknowledge(self, packet: PacketId, send: Callable[[int], Any]) -> None:
        """Release a message, and `send` its number to the broker if that is the one of the present session."""
        if self._rows.pop(packet, None) is None:
            return
        with self._lock:  # no session begins between the comparison and the sending
            session, number = packet
            if session == self._session:
                send(number)


class MqttTopics(Spout):
    """Emits messages of ``user.mqtt.topics``. Its fields are ``topic``, ``data`` and ``retained``:
    ``MqttTopics.spec(optional_outputs=["topic", "data"], config={…})``. One task."""

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from problems(OPTIONS, config)
        yield from address_problems(config, URL, PASSWORD_FILE, ("mqtt", "mqtts"))
        if isinstance(ROWS.of(config), int) and ROWS.of(config) > MOST_ROWS:
            yield f"config {ROWS.key!r} is {ROWS.of(config)}; MQTT knows no more than {MOST_ROWS}"
        once = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) == Config.EFFECTIVELY_ONCE
        if once and REPEATS.of(config) != ACCEPT:
            yield (
                "reads a broker, which sends messages again after some faults, and this topology is EFFECTIVELY_ONCE: "
                f"say that they may count twice, config {REPEATS.key!r}: {ACCEPT!r}, or make it ATLEAST_ONCE"
            )

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises BadConfig, ConnectError."""
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
        self._since: list[PacketId] = []  # of them, since the last checkpoint
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

    # In the client's thread.

    def _on_connect(self, client: Any, _userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._failed.put(str(reason))
            self._ready.set()
            return
        if self._ready.is_set() and not flags.session_present:
            log.warning("%s has no session of this source any more: what came meanwhile is lost", self.broker)
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
        """Queue a message, or wait for room. Only QoS 0 can fill the queue: open messages of QoS 1 are bounded."""
        packet = self._open.packet_id(message.mid) if message.qos else None
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self._came.put((packet, message), timeout=0.2)
                return

    # In the engine's.

    def next_tuple(self) -> None:
        """What has come. Raises ConnectError for a topic that is refused."""
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
        """The broker need not send it again."""
        self._acknowledge([tup_id])

    def fail(self, tup_id: Any) -> None:
        """It is emitted again: the broker sends again only what it has not sent over this connection."""
        row = self._open.row(tup_id)
        if row is not None:
            self.emit(row, tup_id)

    def pre_save(self, checkpoint_id: str) -> None:
        """What was emitted so far belongs to this checkpoint."""
        self._saved[checkpoint_id], self._since = self._since, []

    def post_save(self, checkpoint_id: str) -> None:
        """It is complete, and so are those before it."""
        for saved in list(self._saved):
            self._acknowledge(self._saved.pop(saved))
            if saved == checkpoint_id:
                return

    def close(self) -> None:
        """The session stays; the broker keeps what comes."""
        if hasattr(self, "_client"):
            self._closing.set()
            self._client.disconnect()
            self._client.loop_stop()

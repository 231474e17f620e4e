"""Client configuration and errors shared by the Kafka source and sink.

The client is librdkafka by confluent-kafka. ``user.kafka.client`` passes further settings to it, such as
``security.protocol``, ``sasl.mechanism`` and ``ssl.ca.location``. Settings that would break the guarantees of source or
sink are rejected. Passwords must not be in the configuration, because the state store and the tracker show it. The
password is read from the file that ``user.kafka.password.file`` names.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from heron_runtime.failures import one_line
from heronry.connect.settings import ConnectError, driver, mapping, seconds, secret_of, text

SERVERS = text("user.kafka.servers", "bootstrap brokers, as HOST:PORT[,HOST:PORT…]", required=True)
CLIENT = mapping("user.kafka.client", "settings of librdkafka besides, as {'security.protocol': 'SASL_SSL'}")
PASSWORD_FILE = text("user.kafka.password.file", "a file with the password of SASL (sasl.password)")
TIMEOUT = seconds("user.kafka.timeout.secs", "timeout of the brokers", 10.0)
OPTIONS = (SERVERS, CLIENT, PASSWORD_FILE, TIMEOUT)
#: Settings that source and sink control, and settings that would read or execute files of the host.
OURS = frozenset({
    "acks", "auto.offset.reset", "bootstrap.servers", "client.id", "enable.auto.commit", "enable.auto.offset.store",
    "enable.idempotence", "enable.partition.eof", "group.id", "isolation.level", "message.timeout.ms",
    "metadata.broker.list", "plugin.library.paths", "request.required.acks", "sasl.kerberos.kinit.cmd",
    "transaction.timeout.ms", "transactional.id",
})  # fmt: skip
SECRETS = (
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "sasl.oauthbearer.client.secret",
)
log = logging.getLogger(__name__)


class Unreachable(ConnectError):
    """Error of brokers that do not answer. A retry may succeed."""


def client_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each client setting that topologies must not set."""
    given = config.get(CLIENT.key)
    for name in given if isinstance(given, Mapping) else ():
        if name in SECRETS:
            cure = (
                f"put it into a file and name that in {PASSWORD_FILE.key!r}" if name == "sasl.password" else "use SASL"
            )
            yield f"config {CLIENT.key!r} holds {name!r}, which a topology's definition shows: {cure}"
        elif name in OURS:
            yield f"config {CLIENT.key!r} holds {name!r:.80}, which is not for topologies to set"


def error_of(error: Any) -> Any:
    """Return the KafkaError of a KafkaException."""
    return error.args[0] if isinstance(error, Exception) and error.args else error


class Brokers:
    """Factory of Kafka clients for the brokers that a topology's configuration names.

    Args:
        config: The topology's configuration.
        name: Client id to report to the brokers.
    """

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        """Prepare the client settings without connecting.

        Raises:
            ConnectError: The driver is not installed, or the password file cannot be read.
        """
        self.kafka = driver("confluent_kafka", "Kafka", "confluent-kafka", "kafka")
        self.name, self.timeout = f"Kafka at {SERVERS.of(config)}", float(TIMEOUT.of(config))
        self._settings = {**CLIENT.of(config), "bootstrap.servers": SERVERS.of(config), "client.id": name}
        if PASSWORD_FILE.of(config):
            self._settings["sasl.password"] = secret_of(PASSWORD_FILE.of(config), PASSWORD_FILE.key)
        self._said = ""
        self.down_since: float | None = None  # monotonic time since which the client reports all brokers as down

    def consumer(self, isolation: str = "read_committed") -> Any:
        """Return a consumer with manually assigned partitions that commits no offsets."""
        return self._made(
            self.kafka.Consumer,
            {
                # librdkafka requires a group id, although the group has neither members nor offsets.
                "group.id": f"heronry-{self._settings['client.id']}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
            },
        )

    def producer(self, transactional_id: str) -> Any:
        """Return an idempotent transactional producer.

        Its ``init_transactions`` ends open transactions of earlier producers with the same id.
        """
        return self._made(
            self.kafka.Producer, {"transactional.id": transactional_id, "linger.ms": 5, "enable.idempotence": True}
        )

    def _made(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        try:
            return kind({**self._settings, **settings, "error_cb": self._heard}, logger=log)
        except (self.kafka.KafkaException, ValueError) as error:
            raise ConnectError(
                f"the client of {self.name} does not accept these settings ({one_line(str(error), 300)}): see config "
                f"{CLIENT.key!r}"
            ) from None

    def _heard(self, error: Any) -> None:
        """Record an error that the client reports asynchronously. It has more detail than the client's exceptions."""
        self._said = one_line(str(error), 200)
        if error.code() == self.kafka.KafkaError._ALL_BROKERS_DOWN and self.down_since is None:
            self.down_since = time.monotonic()

    def down_for(self) -> float:
        """Return for how many seconds all brokers have been unreachable; 0 if at least one is reachable."""
        return 0.0 if self.down_since is None else time.monotonic() - self.down_since

    def failure(self, what: str, error: Any) -> ConnectError:
        """Return a ConnectError that describes ``error``, a KafkaError or KafkaException.

        Args:
            what: The operation that failed, for the message.
            error: The client's error, or a text.
        """
        kafka_error = error_of(error)
        why = ", ".join(dict.fromkeys(text for text in (one_line(str(kafka_error), 200), self._said) if text))
        code, codes = getattr(kafka_error, "code", lambda: 0)(), self.kafka.KafkaError
        if code in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC, codes._UNKNOWN_PARTITION):
            return ConnectError(f"{self.name} has no such topic ({why}), {what}: create it, or name another")
        refused = (
            codes.TOPIC_AUTHORIZATION_FAILED, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            codes.CLUSTER_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED, codes.MSG_SIZE_TOO_LARGE,
        )  # fmt: skip
        if code in refused:
            return ConnectError(f"{self.name} refuses ({why}), {what}")
        return Unreachable(
            f"{self.name} cannot be reached ({why}), {what}: check that config {SERVERS.key!r} names brokers that take "
            f"connections from this host, and that {CLIENT.key!r} and {PASSWORD_FILE.key!r} authenticate the topology"
        )

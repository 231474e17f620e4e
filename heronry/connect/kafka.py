"""What the source and the sink of Kafka share: how clients are configured, and their errors.

The client is librdkafka by confluent-kafka. Whatever else it takes (``security.protocol``, ``sasl.mechanism``,
``ssl.ca.location``, …) stands in ``user.kafka.client``; what would break the promises of source and sink is refused
there. A password never stands in the configuration, which the state store and the tracker show: it comes from the file
that ``user.kafka.password.file`` names.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from heron_runtime.failures import one_line
from heronry.connect.drivers import driver
from heronry.connect.settings import ConnectError, mapping, seconds, secret_of, text

SERVERS = text("user.kafka.servers", "brokers to begin with, as HOST:PORT[,HOST:PORT…]", required=True)
CLIENT = mapping("user.kafka.client", "settings of librdkafka besides, as {'security.protocol': 'SASL_SSL'}")
PASSWORD_FILE = text("user.kafka.password.file", "a file with the password of SASL (sasl.password)")
TIMEOUT = seconds("user.kafka.timeout.secs", "how long the brokers may take to answer", 10.0)
OPTIONS = (SERVERS, CLIENT, PASSWORD_FILE, TIMEOUT)
#: What source and sink decide themselves, and what would read or run files of the host.
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
    """The brokers do not answer; another try may help."""


def client_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Why a configuration's client may not be set up so."""
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
    """The KafkaError of a KafkaException."""
    return error.args[0] if isinstance(error, Exception) and error.args else error


class Brokers:
    """The brokers as a topology's configuration names them. ``name``: what they show of the client."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        """Raises ConnectError; connects to nobody yet."""
        self.kafka = driver("confluent_kafka", "Kafka", "confluent-kafka", "kafka")
        self.name, self.timeout = f"Kafka at {SERVERS.of(config)}", float(TIMEOUT.of(config))
        self._settings = {**CLIENT.of(config), "bootstrap.servers": SERVERS.of(config), "client.id": name}
        if PASSWORD_FILE.of(config):
            self._settings["sasl.password"] = secret_of(PASSWORD_FILE.of(config), PASSWORD_FILE.key)
        self._said = ""
        self.down_since: float | None = None  # no broker could be reached, as far as the client has told

    def consumer(self, isolation: str = "read_committed") -> Any:
        """One that is assigned its partitions, and commits nothing."""
        return self._made(
            self.kafka.Consumer,
            {
                # The group has no members and no positions, but librdkafka wants its name.
                "group.id": f"heronry-{self._settings['client.id']}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
            },
        )

    def producer(self, transactional_id: str) -> Any:
        """One whose messages are there together, and which ends the transactions of one before it."""
        return self._made(
            self.kafka.Producer, {"transactional.id": transactional_id, "linger.ms": 5, "enable.idempotence": True}
        )

    def _made(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        try:
            return kind({**self._settings, **settings, "error_cb": self._heard}, logger=log)
        except (self.kafka.KafkaException, ValueError) as error:
            raise ConnectError(
                f"the client of {self.name} takes no such settings ({one_line(str(error), 300)}): see config "
                f"{CLIENT.key!r}"
            ) from None

    def _heard(self, error: Any) -> None:
        """What the client says beside its exceptions, which tell less."""
        self._said = one_line(str(error), 200)
        if error.code() == self.kafka.KafkaError._ALL_BROKERS_DOWN and self.down_since is None:
            self.down_since = time.monotonic()

    def down_for(self) -> float:
        """For how many seconds no broker could be reached; 0 while one can."""
        return 0.0 if self.down_since is None else time.monotonic() - self.down_since

    def failure(self, what: str, error: Any) -> ConnectError:
        """``error`` (a KafkaError, or a KafkaException), in our words."""
        found = error_of(error)
        why = ", ".join(dict.fromkeys(text for text in (one_line(str(found), 200), self._said) if text))
        code, codes = getattr(found, "code", lambda: 0)(), self.kafka.KafkaError
        if code in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC, codes._UNKNOWN_PARTITION):
            return ConnectError(f"{self.name} has no such topic ({why}), {what}: make it, or name another")
        refused = (
            codes.TOPIC_AUTHORIZATION_FAILED, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            codes.CLUSTER_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED, codes.MSG_SIZE_TOO_LARGE,
        )  # fmt: skip
        if code in refused:
            return ConnectError(f"{self.name} refuses ({why}), {what}")
        return Unreachable(
            f"{self.name} cannot be reached ({why}), {what}: see that config {SERVERS.key!r} names brokers that take "
            f"connections from this host, and that {CLIENT.key!r} and {PASSWORD_FILE.key!r} say who asks"
        )

"""Kafka brokers for tests: the mock cluster of librdkafka, in a process of its own on 127.0.0.1.

It speaks Kafka's protocol over TCP and keeps messages in memory. A topic is created on first use with four partitions,
and the oldest messages go when a partition exceeds 5 MB. It does not support transactions: aborted messages stay
readable and producers are not fenced. The tests cover what does not depend on transactions.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import confluent_kafka as kafka

_SERVE = """
import sys, confluent_kafka
made = confluent_kafka.Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 2})
print(",".join(f"{b.host}:{b.port}" for b in made.list_topics(timeout=60).brokers.values()), flush=True)
sys.stdin.read()
"""
ANSWER_SECS = 60.0


class KafkaMock:
    """Cluster of two brokers."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.servers = self.process.stdout.readline().strip()
        assert self.servers, "the mock cluster did not start"

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of a connector; keys of ``more`` omit their ``user.kafka.``."""
        return {f"user.kafka.{key}": value for key, value in {"servers": self.servers, **more}.items()}

    def make(self, topic: str) -> None:
        """Create an empty topic."""
        about = kafka.Producer({"bootstrap.servers": self.servers}).list_topics(topic, ANSWER_SECS).topics[topic]
        assert about.error is None, about.error

    def add(self, topic: str, *values: bytes, partition: int = 0, **more: Any) -> None:
        """Add messages."""
        client = kafka.Producer({"bootstrap.servers": self.servers})
        for value in values:
            client.produce(topic, value, partition=partition, **more)
            client.poll(0)
        assert client.flush(ANSWER_SECS) == 0

    def messages(self, topic: str) -> list[Any]:
        """Return all messages, by partition and offset."""
        client = kafka.Consumer({"bootstrap.servers": self.servers, "group.id": "look", "enable.partition.eof": True})
        try:
            about = client.list_topics(topic, ANSWER_SECS).topics[topic]
            client.assign([kafka.TopicPartition(topic, number, kafka.OFFSET_BEGINNING) for number in about.partitions])
            open_partitions, found = set(about.partitions), []
            while open_partitions:
                message = client.poll(ANSWER_SECS)
                assert message is not None, f"not read to the end: {open_partitions}"
                if message.error() is None:
                    found.append(message)
                elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
            return sorted(found, key=lambda message: (message.partition(), message.offset()))
        finally:
            client.close()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the brokers for the block."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def kafka_mock() -> Iterator[KafkaMock]:
    """Yield running brokers, and remove them afterwards."""
    made = KafkaMock()
    try:
        yield made
    finally:
        made.close()

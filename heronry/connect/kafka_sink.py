"""Exactly-once sink for a Kafka topic.

A spooled batch (``spool.py``) starts with a line that holds the end offset of each partition at the time the batch
was begun, followed by one line for each message. Commit writes the messages in one transaction of the producer
``heronry.STEP-TASK``. Each message has the header ``heronry-id: TOPOLOGY.COMPONENT-TOKEN-NUMBER``. The commit protocol:

1. Initialise the producer. This fences off an earlier producer and completes or aborts its transaction.
2. Claim the batch by creating a file exclusively. If the claim exists already, search the topic after the offsets of
   the first line, and write only the messages that are missing.
3. Check that the batch still exists. If another process has committed it meanwhile, do not write.

So a process that was paused at any point and resumes next to its successor does not write duplicates: it is fenced off
by step 1, or finds the claim, or does not find the batch. The claim is removed after the batch.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from heron_runtime.files import entries
from heronry.api.tuples import Tuple
from heronry.connect.files import json_object
from heronry.connect.kafka import OPTIONS, Brokers, Unreachable, client_problems, error_of
from heronry.connect.seats import Seat, attempts
from heronry.connect.settings import ConnectError, problems, text, whole
from heronry.connect.spool import PostingSink, safe_in
from heronry.connect.text import fitting

TOPIC = text("user.kafka.topic", "the topic that messages are written to", required=True)
KEY = text("user.kafka.key", "the field that is the key of a message, and so decides its partition")
ATTEMPTS = whole("user.kafka.attempts", "attempts of a commit when the brokers do not answer", 6)
ID = "heronry-id"
FETCH_SECS = 0.2


class KafkaSink(PostingSink):
    """Exactly-once sink that writes each tuple as a JSON object to ``user.kafka.topic``.

    ``user.kafka.spool`` names the folder of prepared batches, which all tasks share. ``docs/reference/connectors.md``
    describes all options.
    """

    suffix = ".jsonl"
    folder_option = text("user.kafka.spool", "the folder that keeps batches until they are written", required=True)
    options = (*OPTIONS, TOPIC, KEY, ATTEMPTS)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from problems((cls.folder_option, *cls.options), config)
        yield from client_problems(config)

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Check the topic and remove stale claims.

        Raises:
            BadConfig: An option is missing or invalid.
            ConnectError: The brokers are unreachable, or the topic is missing or not accessible.
        """
        super().open(config, seat)
        self._topic, self._key, self._attempts = TOPIC.of(config), KEY.of(config), ATTEMPTS.of(config)
        self._brokers = Brokers(config, f"heronry-{self._step}-{self._task}")
        self._errors = self._brokers.kafka.KafkaException
        self._producers: dict[str, Any] = {}  # by transactional id
        self._signs = seat.writer or seat.step
        self._ends = self._brokers.consumer("read_uncommitted")
        try:
            self._end_offsets()  # reports a missing topic or missing permissions at startup
            self._sweep_claims()
        except BaseException:
            self.close()
            raise

    def begin(self, file: BinaryIO) -> None:
        """Write the end offset of each partition as the first line of a batch."""
        file.write(json.dumps({"from": self._end_offsets()}).encode() + b"\n")

    def encode(self, tup: Tuple) -> bytes:
        """Return the line for a tuple.

        Raises:
            ConnectError: The key field is missing, or JSON cannot represent a value.
        """
        if self._key and self._key not in tup.fields:
            raise ConnectError(
                f"KafkaSink: config {KEY.key!r} names field {self._key!r}, and the tuple has {', '.join(tup.fields)}"
            )
        return self.encoded(tup.fields, tup.values)

    @classmethod
    def encoded(cls, fields: Sequence[str], values: Sequence[Any]) -> bytes:
        """Return the line for fields and values.

        Raises:
            ConnectError: JSON cannot represent a value.
        """
        return json_object(cls, fields, values) + b"\n"

    def post(self, batch: Path, key: str) -> None:
        """Write the messages of a batch in one transaction.

        Raises:
            ConnectError: The brokers reject the messages, or did not answer in any attempt.
            FileNotFoundError: Another process has committed the batch.
        """
        begun, *lines = batch.read_bytes().split(b"\n")[:-1]
        before = {int(partition): offset for partition, offset in json.loads(begun)["from"].items()}
        token = key.removeprefix(f"{self._step}-")
        writer = f"heronry.{self._signs}-{token.split('-')[2]}"  # serialises the batches of one task
        for attempt in attempts(self._attempts):
            try:
                producer = self._producer(writer)
                messages = {f"{key}-{number}": line for number, line in enumerate(lines)}
                if not self._claims(token):
                    for there in self._there(before, f"{key}-"):
                        messages.pop(there, None)
                if not batch.exists():
                    raise FileNotFoundError(batch)
                self._write(producer, messages)
                return
            except (self._errors, Unreachable) as error:
                failure = error if isinstance(error, Unreachable) else self._failure(error)
                # A successor may have fenced off this producer; the next attempt restarts at step 1.
                self._producers.pop(writer, None)
                if not isinstance(failure, Unreachable):
                    raise failure from None
                if attempt.last:
                    raise ConnectError(f"{failure}. {safe_in(self._folder)}") from None

    def _failure(self, error: Exception) -> ConnectError:
        return self._brokers.failure(f"writing to {self._topic!r}", error)

    def publish(self, hidden: Path, whole: Path) -> None:
        """Commit a batch, then remove its claim."""
        super().publish(hidden, whole)
        self._claim(whole.stem.removeprefix(f"{self._step}-")).unlink(missing_ok=True)

    def abort(self, token: str) -> None:
        """Discard a batch that was never written, and its claim."""
        super().abort(token)
        self._claim(token).unlink(missing_ok=True)

    def _producer(self, name: str) -> Any:
        """Return the producer of a transactional id; fence off earlier ones. Raises KafkaException, ConnectError."""
        if name not in self._producers:
            made = self._brokers.producer(name)
            made.init_transactions(self._brokers.timeout)
            self._producers[name] = made
        return self._producers[name]

    def _write(self, producer: Any, messages: Mapping[str, bytes]) -> None:
        """Write all messages, or none of them, in a transaction. Raises KafkaException."""
        producer.begin_transaction()
        try:
            for number, line in messages.items():
                key = json.loads(line)[self._key] if self._key else None
                while True:
                    try:
                        producer.produce(
                            self._topic, line, None if key is None else fitting(key), headers={ID: number.encode()}
                        )
                        break
                    except BufferError:  # librdkafka's queue is full: wait for deliveries
                        producer.poll(FETCH_SECS)
            producer.commit_transaction(self._brokers.timeout)
        except self._errors as error:
            if error_of(error).txn_requires_abort():
                with contextlib.suppress(self._errors):
                    producer.abort_transaction(self._brokers.timeout)
            raise

    def _claims(self, token: str) -> bool:
        """Claim a batch. Return False if it was claimed before."""
        try:
            os.close(os.open(self._claim(token), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def _claim(self, token: str) -> Path:
        return self._folder / f".{self._step}-claim-{token}"

    def _sweep_claims(self) -> None:
        """Remove the claims of batches that no longer exist, left by processes that died after removing the batch."""
        begin = f".{self._step}-claim-"
        for path in entries(self._folder):
            if path.name.startswith(begin) and not self._hidden(path.name.removeprefix(begin)).exists():
                path.unlink(missing_ok=True)

    def _there(self, before: Mapping[int, int], begin: str) -> list[str]:
        """Return the ids that start with ``begin`` of the committed messages after the given offsets.

        Args:
            before: Offset to start from, by partition.
            begin: Prefix of the ids in the header ``heronry-id``.

        Raises:
            KafkaException: The client fails.
            ConnectError: A partition cannot be read to its end.
        """
        numbers, kafka = list[str](), self._brokers.kafka
        ends = {p: end for p, end in self._end_offsets().items() if end > before.get(p, 0)}
        if not ends:
            return numbers
        consumer = self._brokers.consumer()
        try:
            consumer.assign([kafka.TopicPartition(self._topic, p, self._oldest(p, before.get(p, 0))) for p in ends])
            deadline = time.monotonic() + self._brokers.timeout
            while ends:
                messages = consumer.consume(500, FETCH_SECS)
                deadline = time.monotonic() + self._brokers.timeout if messages else deadline
                for message in messages:
                    error = message.error()
                    if error is None:
                        number = dict(message.headers() or ()).get(ID) or b""
                        numbers += [number.decode()] if number.startswith(begin.encode()) else []
                    elif error.code() == kafka.KafkaError._PARTITION_EOF:
                        if message.offset() >= ends.get(message.partition(), 0):
                            ends.pop(message.partition(), None)
                    else:
                        raise kafka.KafkaException(error)
                if ends and time.monotonic() > deadline:
                    raise Unreachable(
                        f"{self._brokers.name}: topic {self._topic!r} cannot be read to its end in partitions "
                        f"{sorted(ends)}: another producer's transaction is open there, or a broker is away"
                    )
        finally:
            consumer.close()
        return numbers

    def _oldest(self, partition: int, offset: int) -> int:
        """Return the offset, or the oldest retained one if that is higher. Raises KafkaException."""
        place = self._brokers.kafka.TopicPartition(self._topic, partition)
        oldest: int = self._ends.get_watermark_offsets(place, self._brokers.timeout)[0]
        return max(oldest, offset)

    def _end_offsets(self) -> dict[int, int]:
        """Return the next offset of each partition. Raises ConnectError."""
        kafka, what = self._brokers.kafka, f"looking at topic {self._topic!r}"
        try:
            about = self._ends.list_topics(self._topic, self._brokers.timeout).topics[self._topic]
            if about.error is not None or not about.partitions:
                raise self._brokers.failure(what, about.error or "it has no partitions")
            return {
                number: self._ends.get_watermark_offsets(
                    kafka.TopicPartition(self._topic, number), self._brokers.timeout
                )[1]
                for number in sorted(about.partitions)
            }
        except self._errors as error:
            raise self._brokers.failure(what, error) from None

    def close(self) -> None:
        """Discard tuples that are not prepared, and close the clients."""
        super().close()
        if hasattr(self, "_ends"):
            self._ends.close()
        getattr(self, "_producers", {}).clear()

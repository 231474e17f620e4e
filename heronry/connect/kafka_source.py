"""Source for Kafka topics, in the order of their partitions.

Each partition is a split. A position is the offset of the next message. Only the checkpoint holds positions: the source
joins no consumer group and commits nothing to the brokers, because a restore could not undo that.

If offsets below the oldest retained one were not read, messages were removed before they were read, and the source
reports that. If a topic has fewer messages than were read, it was recreated. Other gaps in the offsets are normal
(compaction, transaction markers).

Partitions that are added while the topology runs are read from the next restart, because splits are assigned to tasks
at the start of a generation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.acked import Row
from heronry.connect.kafka import OPTIONS, Brokers, client_problems
from heronry.connect.polling import PollingSource, Range, Reader
from heronry.connect.settings import ConnectError, choice, names, seconds, whole
from heronry.connect.text import value_of

TOPICS = names("user.kafka.topics", "the topics that are read", required=True)
ROWS = whole("user.kafka.rows", "number of messages per batch", 500)
POLL = seconds("user.kafka.poll.secs", "delay before the source asks for new messages again", 0.1)
REMOVED = choice("user.kafka.removed", "action when messages were removed before they were read", "fail", "skip")
FROM = choice("user.kafka.from", "start of a partition that was never read", "oldest", "newest")
FETCH_SECS = 0.05


class KafkaTopics(PollingSource):
    """Source of the messages of ``user.kafka.topics``, including messages that arrive later.

    Fields: ``value``, ``key``, ``topic``, ``partition``, ``offset``, ``time_ms`` (the message's timestamp), and headers
    by their names. Select fields with ``KafkaTopics.spec(optional_outputs=["key", "value"], config={…})``.
    """

    example = "KafkaTopics.spec(optional_outputs=['key', 'value'], …)"
    pause = POLL
    options = (*OPTIONS, TOPICS, ROWS, POLL, REMOVED, FROM)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        yield from client_problems(config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """Return a reader of the topics. Raises ConnectError, also for a missing topic."""
        return MessageReader(config, fields, name.replace(" ", "-"))


class MessageReader(Reader):
    """Reader of Kafka messages. A position is the offset of the next message."""

    def __init__(self, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> None:
        self._fields = fields
        self._topics = list(dict.fromkeys(TOPICS.of(config)))
        self._rows, self._removed, self._from = ROWS.of(config), REMOVED.of(config), FROM.of(config)
        self._brokers = Brokers(config, name)
        self._consumer = self._brokers.consumer()
        self._next: dict[str, int] = {}  # next offset of each assigned partition
        self._ready: dict[str, list[Any]] = {}  # fetched messages, by split
        self._at_end: dict[str, int] = {}  # offset at which the consumer reached the end, by split

        try:
            self._partitions = {f"{topic}/{n}": (topic, n) for topic in self._topics for n in self._numbers(topic)}
        except BaseException:
            self.close()
            raise

    def _numbers(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises ConnectError."""
        what = f"looking at topic {topic!r}"
        try:
            about = self._consumer.list_topics(topic, self._brokers.timeout).topics[topic]
        except self._brokers.kafka.KafkaException as error:
            raise self._brokers.failure(what, error) from None
        if about.error is not None or not about.partitions:
            raise self._brokers.failure(what, about.error or "it has no partitions")
        return sorted(about.partitions)

    def splits(self) -> list[str]:
        """Return the partitions that existed at the start."""
        return list(self._partitions)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """Return the range up to the last committed message. Raises ConnectError."""
        oldest, newest = self._bounds(split)
        if begin is None:
            begin = newest if self._from == "newest" else oldest
        elif not oldest <= begin <= newest:
            # Return a range even if it is empty: it records where the next one begins.
            return Range(split, self._is_lost(split, begin, oldest, newest), newest)
        return Range(split, begin, newest) if begin != newest else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Return rows after a position, and the position after them. See ``Reader``."""
        if begin is None:
            oldest, newest = self._bounds(split)
            return [], newest if self._from == "newest" else oldest  # a restart begins at the same place
        if begin == end:
            return None
        if self._next.get(split) != begin:
            position = self._go_to(split, begin)
            if position != begin:
                return [], position
        if end is not None and begin > end:
            return None
        if not self._ready.get(split):
            self._take() if end is None else self._wait(split, end)
        messages = self._ready.pop(split, [])
        if not messages:
            return None
        wanted = messages if end is None else [message for message in messages if message.offset() < end]
        behind = self._next[split] = messages[-1].offset() + 1
        return list(map(self._values, wanted)), behind if len(wanted) == len(messages) else end

    def _wait(self, split: str, end: int) -> None:
        """Wait until messages of a split arrive, or none remain before ``end``. Raises ConnectError on timeout."""
        until = time.monotonic() + self._brokers.timeout
        while not self._ready.get(split) and self._at_end.get(split, -1) < end:
            self._take()
            if self._next.get(split) == -1:
                return  # messages were removed meanwhile: the next read reports it
            if time.monotonic() > until:
                raise ConnectError(
                    f"{self._brokers.name} has messages of {split} before offset {end} that have not come in "
                    f"{self._brokers.timeout:g} s: see that the brokers are well, or give them longer by config "
                    "'user.kafka.timeout.secs'"
                )

    def _go_to(self, split: str, position: int) -> int:
        """Move the consumer to a position and return it; if its messages were removed, move to the oldest retained one.

        Raises:
            ConnectError: Messages were removed, and ``user.kafka.removed`` is ``fail``.
        """
        oldest, newest = self._bounds(split)
        if not oldest <= position <= newest:
            position = self._is_lost(split, position, oldest, newest)
        topic, number = self._partitions[split]
        place = self._brokers.kafka.TopicPartition(topic, number, position)
        try:
            self._consumer.incremental_unassign([place]) if split in self._next else None
            self._consumer.incremental_assign([place])
        except self._brokers.kafka.KafkaException as error:
            raise self._brokers.failure(f"reading {split}", error) from None
        self._ready.pop(split, None)
        self._at_end.pop(split, None)
        self._next[split] = position
        return position

    def _is_lost(self, split: str, position: int, oldest: int, newest: int) -> int:
        """Return the offset to continue from after messages were removed.

        Raises:
            ConnectError: ``user.kafka.removed`` is ``fail``.
        """
        what = (
            f"{oldest - position} messages of {split}, from offset {position} on, were removed before they were read"
            if position < oldest
            else f"{split} ends at offset {newest}, and {position} were read: the topic was recreated"
        )
        if self._removed == "fail":
            raise ConnectError(
                f"{what} ({self._brokers.name}): keep messages until they are read (retention.ms, retention.bytes), "
                f"or continue without them by config {REMOVED.key!r}: 'skip'"
            )
        logging.getLogger(__name__).warning("%s: continuing without them", what)
        return oldest

    def _bounds(self, split: str) -> tuple[int, int]:
        """Return the oldest retained offset and the next offset to be assigned. Raises ConnectError."""
        topic, number = self._partitions[split]
        try:
            place = self._brokers.kafka.TopicPartition(topic, number)
            oldest, newest = self._consumer.get_watermark_offsets(place, self._brokers.timeout)
        except self._brokers.kafka.KafkaException as error:
            raise self._brokers.failure(f"looking at {split}", error) from None
        return oldest, newest

    def _take(self) -> None:
        """Fetch what the consumer has received, for all partitions. Raises ConnectError."""
        codes = self._brokers.kafka.KafkaError
        try:
            messages = self._consumer.consume(self._rows, FETCH_SECS)
        except self._brokers.kafka.KafkaException as error:
            raise self._brokers.failure("reading", error) from None
        if messages:
            self._brokers.down_since = None
        elif self._brokers.down_for() > self._brokers.timeout:
            self._bounds(next(iter(self._next)))  # raises unless the brokers are reachable again
            self._brokers.down_since = None
        for message in messages:
            fault, split = message.error(), f"{message.topic()}/{message.partition()}"
            if fault is None:
                self._ready.setdefault(split, []).append(message)
            elif fault.code() == codes._PARTITION_EOF:
                self._at_end[split] = message.offset()
            elif fault.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
                self._next[split] = -1  # makes the next read check for removed messages
            elif not fault.retriable() and not _passes(codes, fault):
                raise self._brokers.failure(f"reading {split}", fault)

    def _values(self, message: Any) -> Row:
        headers = dict(message.headers() or ())
        _, time_ms = message.timestamp()
        own = {
            "value": value_of(message.value()), "key": value_of(message.key()), "topic": message.topic(),
            "partition": message.partition(), "offset": message.offset(), "time_ms": time_ms,
        }  # fmt: skip
        return [own[name] if name in own else value_of(headers.get(name)) for name in self._fields]


def _passes(codes: Any, error: Any) -> bool:
    """Return True for errors from which the client recovers automatically by reconnecting."""
    return error.code() in (codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._RESOLVE, codes._TIMED_OUT)

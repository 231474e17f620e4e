"""Messages of Kafka topics, in the order of their partitions.

Each partition is a split. A position is the offset of the next message: the checkpoint's alone, so no consumer group is
joined and nothing is committed to the brokers (a restore could not take that back). Offsets below the oldest that is
kept were removed before they were read, which is named; a topic that has fewer messages than were read was made anew.
Offsets may have gaps otherwise (compaction, marks of transactions), and gaps say nothing.

Partitions that are added while the topology runs are read from the next restart on: splits are what a task is given at
the begin of a generation.
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
ROWS = whole("user.kafka.rows", "how many messages are taken at a time", 500)
POLL = seconds("user.kafka.poll.secs", "how long the source waits before it asks for new messages again", 0.1)
REMOVED = choice("user.kafka.removed", "what follows when messages were removed before they were read", "fail", "skip")
FROM = choice("user.kafka.from", "where a partition that was never read begins", "oldest", "newest")
FETCH_SECS = 0.05


class KafkaTopics(PollingSource):
    """Emits the messages of ``user.kafka.topics``, and those that come. Its fields are ``value``, ``key``, ``topic``,
    ``partition``, ``offset``, ``time_ms`` (the message's timestamp) and headers by their names:
    ``KafkaTopics.spec(optional_outputs=["key", "value"], config={…})``."""

    example = "KafkaTopics.spec(optional_outputs=['key', 'value'], …)"
    pause = POLL
    options = (*OPTIONS, TOPICS, ROWS, POLL, REMOVED, FROM)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from super().config_problems(config)
        yield from client_problems(config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """Raises ConnectError, also for a topic that is not there."""
        return MessageReader(config, fields, name.replace(" ", "-"))


class MessageReader(Reader):
    """Positions are the offset of the next message."""

    def __init__(self, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> None:
        self._fields = fields
        self._topics = list(dict.fromkeys(TOPICS.of(config)))
        self._rows, self._removed, self._from = ROWS.of(config), REMOVED.of(config), FROM.of(config)
        self._brokers = Brokers(config, name)
        self._consumer = self._brokers.consumer()
        self._next: dict[str, int] = {}  # what the consumer gives next, of the partitions it has been assigned
        self._ready: dict[str, list[Any]] = {}  # messages that have come, by split
        self._at_end: dict[str, int] = {}  # where the consumer has come to the end of a split
        try:
            self._partitions = {f"{topic}/{n}": (topic, n) for topic in self._topics for n in self._numbers(topic)}
        except BaseException:
            self.close()
            raise

    def _numbers(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises ConnectError."""
        what = f"looking at topic {topic!r}"
        try:
            about = self._consumer.list_topics(topic, self._brokers.timeout).topics[topic]
        except self._brokers.kafka.KafkaException as error:
            raise self._brokers.failure(what, error) from None
        if about.error is not None or not about.partitions:
            raise self._brokers.failure(what, about.error or "it has no partitions")
        return sorted(about.partitions)

    def splits(self) -> list[str]:
        """The partitions there were at the start."""
        return list(self._partitions)

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """To the last message that is committed. Raises ConnectError."""
        oldest, newest = self._bounds(split)
        if begin is None:
            begin = newest if self._from == "newest" else oldest
        elif not oldest <= begin <= newest:
            # A range even if it is empty: it records that the next one begins here.
            return Range(split, self._is_lost(split, begin, oldest, newest), newest)
        return Range(split, begin, newest) if begin != newest else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """See ``Reader``."""
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
        """Until messages of a split have come, or there are none before ``end``. Raises ConnectError."""
        until = time.monotonic() + self._brokers.timeout
        while not self._ready.get(split) and self._at_end.get(split, -1) < end:
            self._take()
            if self._next.get(split) == -1:
                return  # what was there was removed meanwhile: the next look finds out
            if time.monotonic() > until:
                raise ConnectError(
                    f"{self._brokers.name} has messages of {split} before offset {end} that have not come in "
                    f"{self._brokers.timeout:g} s: see that the brokers are well, or give them longer by config "
                    "'user.kafka.timeout.secs'"
                )

    def _go_to(self, split: str, position: int) -> int:
        """Have the consumer go on from there, or from where there are messages again. Raises ConnectError if what is
        there was removed, unless that is wanted."""
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
        """From where it is gone on without them. Raises ConnectError unless that is wanted."""
        what = (
            f"{oldest - position} messages of {split}, from offset {position} on, were removed before they were read"
            if position < oldest
            else f"{split} ends at offset {newest}, and {position} were read: the topic was made anew"
        )
        if self._removed == "fail":
            raise ConnectError(
                f"{what} ({self._brokers.name}): keep messages until they are read (retention.ms, retention.bytes), "
                f"or go on without them by config {REMOVED.key!r}: 'skip'"
            )
        logging.getLogger(__name__).warning("%s: going on without them", what)
        return oldest

    def _bounds(self, split: str) -> tuple[int, int]:
        """The oldest offset that is kept, and the next that will be given. Raises ConnectError."""
        topic, number = self._partitions[split]
        try:
            place = self._brokers.kafka.TopicPartition(topic, number)
            oldest, newest = self._consumer.get_watermark_offsets(place, self._brokers.timeout)
        except self._brokers.kafka.KafkaException as error:
            raise self._brokers.failure(f"looking at {split}", error) from None
        return oldest, newest

    def _take(self) -> None:
        """What the consumer has, of any partition. Raises ConnectError."""
        codes = self._brokers.kafka.KafkaError
        try:
            found = self._consumer.consume(self._rows, FETCH_SECS)
        except self._brokers.kafka.KafkaException as error:
            raise self._brokers.failure("reading", error) from None
        if found:
            self._brokers.down_since = None
        elif self._brokers.down_for() > self._brokers.timeout:
            self._bounds(next(iter(self._next)))  # raises, unless they are there again
            self._brokers.down_since = None
        for message in found:
            fault, split = message.error(), f"{message.topic()}/{message.partition()}"
            if fault is None:
                self._ready.setdefault(split, []).append(message)
            elif fault.code() == codes._PARTITION_EOF:
                self._at_end[split] = message.offset()
            elif fault.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
                self._next[split] = -1  # so the next look finds out what was removed
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
    """True for what the client mends by itself: it connects again, and goes on."""
    return error.code() in (codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._RESOLVE, codes._TIMED_OUT)

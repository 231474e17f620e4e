"""Source for JetStream streams, in sequence order.

Each stream is a split. A position consists of the sequence number of the last message read and the stream's creation
time. Sequence numbers are consecutive, so a message that was removed before it was read leaves a gap, which the source
reports. It also reports a stream that was deleted or recreated.

The source reads through an ephemeral consumer without acknowledgements, which the server deletes after one minute of
inactivity. The consumer's state does not matter: a restore creates another one after the position in the checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.acked import Row
from heronry.connect.nats import OPTIONS, Server, url_problems
from heronry.connect.polling import PollingSource, Range, Reader
from heronry.connect.settings import ConnectError, choice, names, seconds, whole
from heronry.connect.text import value_of

STREAMS = names("user.nats.streams", "streams to read, each by one task", required=True)
ROWS = whole("user.nats.rows", "number of messages per request", 500)
POLL = seconds("user.nats.poll.secs", "delay before the source asks for new messages again", 0.1)
FAIL, SKIP = "fail", "skip"
REMOVED = choice("user.nats.removed", "action when messages were removed before they were read", FAIL, SKIP)
FETCH_SECS = 0.05
FORGOTTEN_SECS = 60.0
log = logging.getLogger(__name__)


class NatsStream(PollingSource):
    """Source of the messages of ``user.nats.streams``, including messages that arrive later.

    Fields: ``data``, ``subject``, ``stream``, ``sequence``, ``time_ms`` (when the message was stored), and headers by
    their names. Select fields with ``NatsStream.spec(optional_outputs=["subject", "data"], config={…})``.
    """

    example = "NatsStream.spec(optional_outputs=['subject', 'data'], …)"
    pause = POLL
    options = (*OPTIONS, STREAMS, ROWS, POLL, REMOVED)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        yield from url_problems(config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """Return a reader of the streams. Raises ConnectError, also for a missing stream."""
        return MessageReader(config, fields, name)


class MessageReader(Reader):
    """Reader of JetStream messages. A position is the last message's sequence number and its stream's creation time."""

    def __init__(self, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> None:
        self._fields = fields
        self._streams = list(dict.fromkeys(STREAMS.of(config)))
        self._rows, self._removed = ROWS.of(config), REMOVED.of(config)
        self._consumers: dict[str, tuple[int, int, Any]] = {}  # connection, next sequence number, consumer
        self._server = Server(config, name)
        try:
            for stream in self._streams:
                self._about(stream)
        except BaseException:
            self.close()
            raise

    def splits(self) -> list[str]:
        """Return the names of the streams."""
        return self._streams

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """Return the range up to the last stored message. Raises ConnectError."""
        about = self._about(split)
        begin, end = begin or _first(about), (about.state.last_seq, _made(about))
        return Range(split, begin, end) if tuple(begin) != end else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Return rows after a position, and the position after them. See ``Reader``."""
        last, made = begin or _first(self._about(split))
        if end is not None and last >= end[0] and made == end[1]:
            return None
        messages = self._fetch(split, last, made) if end is None else self._awaited(split, last, made)
        came = [message.metadata.sequence.stream for message in messages]
        gap = next((n for n, number in enumerate(came) if number != last + 1 + n), len(came))
        if gap == 0:
            lost = self._is_lost(split, last, made, came, end)
            return None if lost is None else ([], lost)
        if gap < len(came) and self._removed == SKIP:
            missing = came[-1] - last - len(came)
            log.warning("%d messages of stream %r were removed before they were read", missing, split)
            gap = len(came)
        if end is not None:
            gap = sum(number <= end[0] for number in came[:gap])
        # The next read handles the messages after the gap.
        return [self._values(split, message) for message in messages[:gap]], (came[gap - 1], made)

    def _awaited(self, stream: str, last: int, made: str) -> list[Any]:
        """Fetch messages as ``_fetch`` does, but return none only if none are pending.

        Raises:
            ConnectError: Pending messages did not arrive within the timeout.
        """
        until = time.monotonic() + self._server.timeout
        while not (messages := self._fetch(stream, last, made)):
            consumer = self._consumers.get(stream, (0, 0, None))[2]
            if consumer is None:
                break  # the stream was recreated

            async def pending(_: Any, consumer: Any = consumer) -> int:
                return int((await consumer.consumer_info()).num_pending)

            if not self._server.run(f"reading stream {stream!r}", pending):
                break
            if time.monotonic() > until:
                raise ConnectError(
                    f"{self._server.name} has messages of stream {stream!r} after {last} that did not arrive in "
                    f"{self._server.timeout:g} s: check the server, or raise the timeout by config "
                    "'user.nats.timeout.secs'"
                )
        return messages

    def _fetch(self, stream: str, last: int, made: str) -> list[Any]:
        """Return messages after a position, in order and possibly with gaps; none if the stream was recreated."""

        async def fetch(js: Any) -> list[Any]:
            life, wanted, consumer = self._consumers.pop(stream, (0, 0, None))
            if life != self._server.life or wanted != last + 1:
                if _made(await js.stream_info(stream)) != made:
                    return []
                consumer = await self._begin(js, stream, last + 1)
            try:
                messages: list[Any] = await consumer.fetch(self._rows, timeout=FETCH_SECS)
            except (self._server.errors.TimeoutError, TimeoutError):
                messages = []
            behind = messages[-1].metadata.sequence.stream + 1 if messages else last + 1
            self._consumers[stream] = (self._server.life, behind, consumer)
            return messages

        return self._server.run(f"reading stream {stream!r}", fetch)

    async def _begin(self, js: Any, stream: str, first: int) -> Any:
        api = self._server.api
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first, ack_policy=api.AckPolicy.NONE,
            inactive_threshold=FORGOTTEN_SECS, mem_storage=True, num_replicas=1,
        )  # fmt: skip
        made = await js.add_consumer(stream, config)
        return await js.pull_subscribe_bind(consumer=made.name, stream=stream)

    def _about(self, stream: str) -> Any:
        """Return the server's information about a stream. Raises ConnectError."""
        return self._server.run(f"looking at stream {stream!r}", lambda js: js.stream_info(stream))

    def _is_lost(self, stream: str, last: int, made: str, came: list[int], end: Any) -> tuple[int, str] | None:
        """Return the position to continue from if messages were removed, or None if none are missing.

        Args:
            stream: Name of the stream.
            last: Sequence number of the last message read.
            made: Creation time of the stream that was read.
            came: Sequence numbers of the messages fetched after ``last``.
            end: Position to read up to, or None.

        Raises:
            ConnectError: Messages are missing, and ``user.nats.removed`` is ``fail``; or the stream was recreated and a
                bounded range cannot be completed.
        """
        about = self._about(stream)
        recreated = _made(about) != made or about.state.last_seq < last
        next_one = came[0] if came else about.state.first_seq
        if end is not None and not recreated:
            next_one = min(came[0] if came else end[0] + 1, end[0] + 1)
        if not recreated and next_one <= last + 1:
            return None
        what = (
            f"stream {stream!r} was recreated after {last} of its messages were read"
            if recreated
            else f"{next_one - last - 1} messages of stream {stream!r}, after {last}, were removed before they were "
            "read"
        )
        if self._removed == FAIL or (recreated and end is not None):
            raise ConnectError(
                f"{what} ({self._server.name}): keep messages until they are read (max_age, max_msgs, purge), or "
                f"continue without them by config {REMOVED.key!r}: {SKIP!r}"
            )
        log.warning("%s: continuing without them", what)
        self._consumers.pop(stream, None)
        return _first(about) if recreated else (next_one - 1, made)

    def _values(self, stream: str, message: Any) -> Row:
        about, headers = message.metadata, message.headers or {}
        own = {
            "data": value_of(message.data), "subject": message.subject, "stream": stream,
            "sequence": about.sequence.stream, "time_ms": int(about.timestamp.timestamp() * 1000),
        }  # fmt: skip
        return [own[name] if name in own else headers.get(name) for name in self._fields]


def _first(about: Any) -> tuple[int, str]:
    """Return the position before the oldest message.

    Messages removed before the first read do not count as lost.
    """
    return max(about.state.first_seq - 1, 0), _made(about)


def _made(about: Any) -> str:
    """Return the stream's creation time as text, because positions must consist of plain values."""
    return str(about.created)

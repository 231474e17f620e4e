"""Messages of JetStream streams, in their order.

Each stream is a split. A position is the number of the last message read and when the stream was made. Numbers of a
stream follow each other, so a message that was removed before it was read leaves a gap, which is named; so is a stream
that was deleted or made anew.

Reading is by a consumer that the server forgets by itself a minute after it was last asked (AckNone, no name): what it
knows is of no account, for a restore begins another one behind the position that the checkpoint has.
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

STREAMS = names("user.nats.streams", "the streams that are read, each by one task", required=True)
ROWS = whole("user.nats.rows", "how many messages are asked for at a time", 500)
POLL = seconds("user.nats.poll.secs", "how long the source waits before it asks for new messages again", 0.1)
FAIL, SKIP = "fail", "skip"
REMOVED = choice("user.nats.removed", "what follows when messages were removed before they were read", FAIL, SKIP)
FETCH_SECS = 0.05
FORGOTTEN_SECS = 60.0
log = logging.getLogger(__name__)


class NatsStream(PollingSource):
    """Emits the messages of ``user.nats.streams``, and those that come. Its fields are ``data``, ``subject``,
    ``stream``, ``sequence``, ``time_ms`` (when it was stored), and headers by their names:
    ``NatsStream.spec(optional_outputs=["subject", "data"], config={…})``."""

    example = "NatsStream.spec(optional_outputs=['subject', 'data'], …)"
    pause = POLL
    options = (*OPTIONS, STREAMS, ROWS, POLL, REMOVED)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from super().config_problems(config)
        yield from url_problems(config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """Raises ConnectError, also for a stream that is not there."""
        return MessageReader(config, fields, name)


class MessageReader(Reader):
    """Positions are the number of the last message, and when its stream was made."""

    def __init__(self, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> None:
        self._fields = fields
        self._streams = list(dict.fromkeys(STREAMS.of(config)))
        self._rows, self._removed = ROWS.of(config), REMOVED.of(config)
        self._consumers: dict[str, tuple[int, int, Any]] = {}  # by stream: the connection's life, what is next, itself
        self._server = Server(config, name)
        try:
            for stream in self._streams:
                self._about(stream)
        except BaseException:
            self.close()
            raise

    def splits(self) -> list[str]:
        """The streams."""
        return self._streams

    def close(self) -> None:
        """Let go of the connection."""
        self._server.close()

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """To the last message that was stored. Raises ConnectError."""
        about = self._about(split)
        begin, end = begin or _first(about), (about.state.last_seq, _made(about))
        return Range(split, begin, end) if tuple(begin) != end else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """See ``Reader``."""
        last, made = begin or _first(self._about(split))
        if end is not None and last >= end[0] and made == end[1]:
            return None
        messages = self._fetch(split, last, made) if end is None else self._awaited(split, last, made)
        came = [message.metadata.sequence.stream for message in messages]
        gap = next((n for n, number in enumerate(came) if number != last + 1 + n), len(came))
        if gap == 0:
            found = self._is_lost(split, last, made, came, end)
            return None if found is None else ([], found)
        if gap < len(came) and self._removed == SKIP:
            missing = came[-1] - last - len(came)
            log.warning("%d messages of stream %r were removed before they were read", missing, split)
            gap = len(came)
        if end is not None:
            gap = sum(number <= end[0] for number in came[:gap])
        # Then comes what is behind the gap.
        return [self._values(split, message) for message in messages[:gap]], (came[gap - 1], made)

    def _awaited(self, stream: str, last: int, made: str) -> list[Any]:
        """As ``_fetch``, but nothing only where there is nothing. Raises ConnectError."""
        until = time.monotonic() + self._server.timeout
        while not (found := self._fetch(stream, last, made)):
            consumer = self._consumers.get(stream, (0, 0, None))[2]
            if consumer is None:
                break  # the stream was made anew

            async def pending(_: Any, consumer: Any = consumer) -> int:
                return int((await consumer.consumer_info()).num_pending)

            if not self._server.run(f"reading stream {stream!r}", pending):
                break
            if time.monotonic() > until:
                raise ConnectError(
                    f"{self._server.name} has messages of stream {stream!r} behind {last} that have not come in "
                    f"{self._server.timeout:g} s: see that the server is well, or give it longer by config "
                    "'user.nats.timeout.secs'"
                )
        return found

    def _fetch(self, stream: str, last: int, made: str) -> list[Any]:
        """What is there behind a position, in order, perhaps with gaps; nothing of a stream that was made anew."""

        async def fetch(js: Any) -> list[Any]:
            life, wanted, consumer = self._consumers.pop(stream, (0, 0, None))
            if life != self._server.life or wanted != last + 1:
                if _made(await js.stream_info(stream)) != made:
                    return []
                consumer = await self._begin(js, stream, last + 1)
            try:
                found: list[Any] = await consumer.fetch(self._rows, timeout=FETCH_SECS)
            except (self._server.errors.TimeoutError, TimeoutError):
                found = []
            behind = found[-1].metadata.sequence.stream + 1 if found else last + 1
            self._consumers[stream] = (self._server.life, behind, consumer)
            return found

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
        """What the server says of a stream. Raises ConnectError."""
        return self._server.run(f"looking at stream {stream!r}", lambda js: js.stream_info(stream))

    def _is_lost(self, stream: str, last: int, made: str, came: list[int], end: Any) -> tuple[int, str] | None:
        """Where it is gone on, if something behind the position is gone; None if it is not. ``came``: what is behind
        that. Raises ConnectError unless that is wanted, and can be."""
        about = self._about(stream)
        anew = _made(about) != made or about.state.last_seq < last
        next_one = came[0] if came else about.state.first_seq
        if end is not None and not anew:
            next_one = min(came[0] if came else end[0] + 1, end[0] + 1)
        if not anew and next_one <= last + 1:
            return None
        what = (
            f"stream {stream!r} was made anew after {last} of its messages were read"
            if anew
            else f"{next_one - last - 1} messages of stream {stream!r}, behind {last}, were removed before they were "
            "read"
        )
        if self._removed == FAIL or (anew and end is not None):
            raise ConnectError(
                f"{what} ({self._server.name}): keep messages until they are read (max_age, max_msgs, purge), or go on "
                f"without them by config {REMOVED.key!r}: {SKIP!r}"
            )
        log.warning("%s: going on without them", what)
        self._consumers.pop(stream, None)
        return _first(about) if anew else (next_one - 1, made)

    def _values(self, stream: str, message: Any) -> Row:
        about, headers = message.metadata, message.headers or {}
        own = {
            "data": value_of(message.data), "subject": message.subject, "stream": stream,
            "sequence": about.sequence.stream, "time_ms": int(about.timestamp.timestamp() * 1000),
        }  # fmt: skip
        return [own[name] if name in own else headers.get(name) for name in self._fields]


def _first(about: Any) -> tuple[int, str]:
    """The position before all that is there; what was removed before is nobody's loss."""
    return max(about.state.first_seq - 1, 0), _made(about)


def _made(about: Any) -> str:
    """When the stream was made, as text: a position must be plain."""
    return str(about.created)

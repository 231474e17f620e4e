"""Messages of JetStream streams, in their order.

Each stream is a split. A position is the number of the last message read and when the stream was made. Numbers of a
stream follow each other, so a message that was removed before it was read leaves a gap, which is named; so is a stream
that was deleted or made anew.

Reading is by a consumer that the server forgets by itself a minute after it was last asked (AckNone, no name): what it
knows is of no account, for a restore begins another one behind the position that the checkpoint has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.nats import OPTIONS, Server, url_problems
from heronry.connect.polling import PollingSource, fields_of
from heronry.connect.settings import ConnectError, names, problems, require, seconds, step_name, text, whole
from heronry.connect.text import value_of

STREAMS = names("user.nats.streams", "the streams that are read, each by one task")
ROWS = whole("user.nats.rows", "how many messages are asked for at a time", 500)
POLL = seconds("user.nats.poll.secs", "how long the source waits before it asks for new messages again", 0.1)
REMOVED = text(
    "user.nats.removed", "what follows when messages were removed before they were read: fail or skip", "fail"
)
FAIL, SKIP = "fail", "skip"
FETCH_SECS = 0.05
FORGOTTEN_SECS = 60.0
log = logging.getLogger(__name__)


class NatsStream(PollingSource):
    """Emits the messages of ``user.nats.streams``, and those that come. Its fields are ``data``, ``subject``,
    ``stream``, ``sequence``, ``time_ms`` (when it was stored), and headers by their names:
    ``NatsStream.spec(optional_outputs=["subject", "data"], config={…})``."""

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from problems((*OPTIONS, STREAMS, ROWS, POLL, REMOVED), config)
        yield from url_problems(config)
        if not config.get(STREAMS.key):
            yield f"needs config {STREAMS.key!r}: {STREAMS.what}"
        if REMOVED.of(config) not in (FAIL, SKIP):
            yield f"config {REMOVED.key!r} is {REMOVED.of(config)!r:.40}; write {FAIL} or {SKIP}"

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises BadConfig, ConnectError."""
        require(self, config)
        self._fields = fields_of(context, "NatsStream.spec(optional_outputs=['subject', 'data'], …)")
        self._streams = list(dict.fromkeys(STREAMS.of(config)))
        self._rows, self._removed = ROWS.of(config), REMOVED.of(config)
        self.begin_polling(POLL.of(config))
        self._consumers: dict[str, tuple[int, int, Any]] = {}  # by stream: the connection's life, what is next, itself
        self._server = Server(config, f"heronry {step_name(context)} {context.get_task_id()}")
        try:
            for stream in self._streams:
                self._about(stream)
        except BaseException:
            self.close()
            raise

    def splits(self) -> list[tuple[str, int]]:
        """The same for ever."""
        return [(name, number) for number, name in enumerate(self._streams)]

    def close(self) -> None:
        """The connection is closed."""
        if hasattr(self, "_server"):
            self._server.close()

    def read_split(self, split: str) -> bool:
        """Emit what comes next in a stream; False if nothing does. Raises ConnectError."""
        found: tuple[int, str] | None = self.keyed.get(split)
        if found is None:
            about = self._about(split)  # what was removed before it was ever read from here is nobody's loss
            found = (max(about.state.first_seq - 1, 0), _made(about))
        last, made = found
        messages = self._fetch(split, last, made)
        came = [message.metadata.sequence.stream for message in messages]
        gap = next((n for n, number in enumerate(came) if number != last + 1 + n), len(came))
        if gap == 0:
            return self._is_lost(split, last, made, came)
        if gap < len(came) and self._removed == SKIP:
            missing = came[-1] - last - len(came)
            log.warning("%d messages of stream %r were removed before they were read", missing, split)
            gap = len(came)
        self.emit_many([self._values(split, message) for message in messages[:gap]])  # then what is behind the gap
        self.keyed[split] = (came[gap - 1], made)
        return True

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

    def _is_lost(self, stream: str, last: int, made: str, came: list[int]) -> bool:
        """True if something behind the position is gone, and it is gone on from there. ``came``: what is behind that.
        Raises ConnectError unless that is wanted."""
        about = self._about(stream)
        anew = _made(about) != made or about.state.last_seq < last
        next_one = came[0] if came else about.state.first_seq
        if not anew and next_one <= last + 1:
            return False
        what = (
            f"stream {stream!r} was made anew after {last} of its messages were read"
            if anew
            else f"{next_one - last - 1} messages of stream {stream!r}, behind {last}, were removed before they were "
            "read"
        )
        if self._removed == FAIL:
            raise ConnectError(
                f"{what} ({self._server.name}): keep messages until they are read (max_age, max_msgs, purge), or go on "
                f"without them by config {REMOVED.key!r}: {SKIP!r}"
            )
        log.warning("%s: going on without them", what)
        self._consumers.pop(stream, None)
        self.keyed[stream] = (max(about.state.first_seq - 1, 0), _made(about)) if anew else (next_one - 1, made)
        return True

    def _values(self, stream: str, message: Any) -> list[Any]:
        about, headers = message.metadata, message.headers or {}
        own = {
            "data": value_of(message.data), "subject": message.subject, "stream": stream,
            "sequence": about.sequence.stream, "time_ms": int(about.timestamp.timestamp() * 1000),
        }  # fmt: skip
        return [own[name] if name in own else headers.get(name) for name in self._fields]


def _made(about: Any) -> str:
    """When the stream was made, as text: a position must be plain."""
    return str(about.created)

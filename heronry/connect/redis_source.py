"""Entries of Redis streams, in their order.

Each stream is a split. A position is the id of the last entry read and how many had been added to the stream up to
it, so that a loss is seen: Redis counts what was ever added (from 7.0 on), and a source that has come to the end of a
stream must have read as many. Whoever trims a stream (``MAXLEN``) before it was read, or deletes it, is named.

Consumer groups are not used: they keep positions in Redis, which a restore could not take back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.polling import PollingSource, fields_of
from heronry.connect.redis import OPTIONS, Server, url_problems
from heronry.connect.settings import ConnectError, names, problems, require, seconds, step_name, text, whole
from heronry.connect.text import value_of

STREAMS = names("user.redis.streams", "the streams that are read, each by one task")
ROWS = whole("user.redis.rows", "how many entries are asked for at a time", 1000)
POLL = seconds("user.redis.poll.secs", "how long the source waits before it asks for new entries again", 0.1)
REMOVED = text(
    "user.redis.removed", "what follows when entries were removed before they were read: fail or skip", "fail"
)
FAIL, SKIP = "fail", "skip"
ID, STREAM = "id", "stream"  # as fields: the entry's id, and the name of its stream
START = "0-0"
NO_STREAM = "no such key"  # as XINFO says it
log = logging.getLogger(__name__)


class RedisStream(PollingSource):
    """Emits the entries of ``user.redis.streams``, and those that come. Its fields are those of the entries, and ``id``
    and ``stream``: ``RedisStream.spec(optional_outputs=["id", "word"], config={…})``."""

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
        self._fields = fields_of(context, "RedisStream.spec(optional_outputs=['id', 'word'], …)")
        self._streams = list(dict.fromkeys(STREAMS.of(config)))
        self._rows, self._removed = ROWS.of(config), REMOVED.of(config)
        self.begin_polling(POLL.of(config))
        self._server = Server(config, f"heronry {step_name(context)} {context.get_task_id()}")
        with self._server.saying("looking whether it answers"):
            self._server.client.ping()

    def splits(self) -> list[tuple[str, int]]:
        """The same for ever."""
        return [(name, number) for number, name in enumerate(self._streams)]

    def close(self) -> None:
        """The connection is closed."""
        if hasattr(self, "_server"):
            self._server.close()

    def read_split(self, stream: str) -> bool:
        """Emit what comes next in a stream; False if nothing does. Raises ConnectError."""
        position, read = self.keyed.get(stream, (START, None))
        entries, added, length = self._ask(stream, position)
        if read is None:  # what was removed before it was ever read from here is nobody's loss
            read = added - length if added is not None else 0
        if added is not None:
            missing = missed(read, len(entries), added, at_end=len(entries) < self._rows)
            if missing:
                position, read = self._lost(stream, position, read, missing)
                self.keyed[stream] = (position, read)
                return True
        if not entries:
            return False
        self.emit_many([self._values(stream, *entry) for entry in entries])
        self.keyed[stream] = (entries[-1][0].decode(), read + len(entries))
        return True

    def _ask(self, stream: str, position: str) -> tuple[list[Any], int | None, int]:
        """Entries behind a position, how many were ever added (None: the server does not say) and how many are there,
        all at one instant."""
        with self._server.saying(f"reading stream {stream!r}"):
            both = self._server.client.pipeline(transaction=True)
            both.xread({stream: position}, count=self._rows)
            both.xinfo_stream(stream)
            found, about = both.execute(raise_on_error=False)
            if isinstance(found, Exception):
                raise found
            if isinstance(about, Exception):
                if NO_STREAM in str(about):
                    return [], 0, 0
                raise about
        added = about.get("entries-added")
        return _entries(found), None if added is None else int(added), int(about["length"])

    def _lost(self, stream: str, position: str, read: int, missing: int) -> tuple[str, int]:
        """Where to go on. Raises ConnectError unless that is wanted."""
        anew = missing < 0
        what = (
            f"stream {stream!r} was deleted after {read} of its entries were read, or made anew"
            if anew
            else f"{missing} entries of stream {stream!r} were removed before they were read, behind {position}"
        )
        if self._removed == FAIL:
            raise ConnectError(
                f"{what} ({self._server.name}): keep entries until they are read (MAXLEN, XDEL, DEL), or go on without "
                f"them by config {REMOVED.key!r}: {SKIP!r}"
            )
        log.warning("%s: going on without them", what)
        return (START, 0) if anew else (position, read + missing)

    def _values(self, stream: str, number: bytes, fields: Mapping[bytes, bytes]) -> list[Any]:
        own = {ID: number.decode(), STREAM: stream}
        return [own[name] if name in own else value_of(fields.get(name.encode())) for name in self._fields]


def missed(read: int, came: int, added: int, *, at_end: bool) -> int:
    """How many entries were removed before they were read; negative for a stream that is not the one that was read.

    ``read`` had been read before and ``came`` come now, of ``added`` that were ever added; ``at_end``: none are behind
    these. Only there it can be told: what is still to come may be any of those that were added.
    """
    if added < read + came:
        return -1
    return added - read - came if at_end else 0


def _entries(found: Any) -> list[Any]:
    """Of one stream, as XREAD of either protocol version answers."""
    if not found:
        return []
    pairs = found.items() if isinstance(found, Mapping) else found
    (_, entries), *_ = pairs
    return list(entries[0] if isinstance(found, Mapping) else entries)

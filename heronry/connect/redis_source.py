"""Source for Redis streams, in the order of their entries.

Each stream is a split. A position consists of the id of the last entry read and the number of entries added to the
stream up to it, which reveals losses. Redis (7.0 or later) counts the entries ever added, and a source at the end of a
stream must have read as many. The source reports entries that were trimmed (``MAXLEN``) before they were read, and
deleted streams.

Consumer groups are not used, because they keep positions in Redis, which a restore could not undo.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.acked import Row
from heronry.connect.polling import PollingSource, Range, Reader
from heronry.connect.redis import OPTIONS, Server, url_problems
from heronry.connect.settings import ConnectError, choice, names, seconds, whole
from heronry.connect.text import value_of

STREAMS = names("user.redis.streams", "streams to read, each by one task", required=True)
ROWS = whole("user.redis.rows", "number of entries per request", 1000)
POLL = seconds("user.redis.poll.secs", "delay before the source asks for new entries again", 0.1)
FAIL, SKIP = "fail", "skip"
REMOVED = choice("user.redis.removed", "action when entries were removed before they were read", FAIL, SKIP)
ID, STREAM = "id", "stream"  # names of the fields for the entry's id and its stream
START = "0-0"
NO_STREAM = "no such key"  # error message of XINFO
log = logging.getLogger(__name__)


class RedisStream(PollingSource):
    """Source of the entries of ``user.redis.streams``, including entries that are added later.

    Fields: those of the entries, ``id`` and ``stream``. Select fields with
    ``RedisStream.spec(optional_outputs=["id", "word"], config={…})``.
    """

    example = "RedisStream.spec(optional_outputs=['id', 'word'], …)"
    pause = POLL
    options = (*OPTIONS, STREAMS, ROWS, POLL, REMOVED)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        yield from url_problems(config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """Return a reader of the streams. Raises ConnectError, also if the server does not answer."""
        return StreamReader(config, fields, name)


class StreamReader(Reader):
    """Reader of Redis streams.

    A position is the id of the last entry and the number of entries added up to it (None if the server does not report
    it).
    """

    def __init__(self, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> None:
        self._fields = fields
        self._streams = list(dict.fromkeys(STREAMS.of(config)))
        self._rows, self._removed = ROWS.of(config), REMOVED.of(config)
        self._server = Server(config, name)
        with self._server.saying("looking whether it answers"):
            self._server.client.ping()

    def splits(self) -> list[str]:
        """Return the names of the streams."""
        return self._streams

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """Return the range up to the last generated entry, which may have been removed since. Raises ConnectError."""
        with self._server.saying(f"looking at stream {split!r}"):
            about = self._server.client.pipeline(transaction=True).xinfo_stream(split).execute(raise_on_error=False)[0]
            if isinstance(about, Exception):
                if NO_STREAM not in str(about):
                    raise about
                raise ConnectError(
                    f"{self._server.name} has no stream {split!r}: check that config {STREAMS.key!r} names "
                    "existing streams in the database of the address"
                ) from None
        added = about.get("entries-added")
        last, length = about["last-generated-id"], int(about["length"])
        end = (last.decode() if isinstance(last, bytes) else last, None if added is None else int(added))
        if begin is None:  # entries removed before the first read do not count as lost
            begin = (START, None if added is None else int(added) - length)
            return Range(split, begin, end) if length else None
        return Range(split, begin, end) if tuple(begin) != end else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Return rows after a position, and the position after them. See ``Reader``."""
        position, read = begin or (START, None)
        entries, added, length = self._ask(split, position)
        at_end = len(entries) < self._rows
        if end is not None:
            last, added_then = end
            before = [entry for entry in entries if in_order(entry[0].decode()) <= in_order(last)]
            entries, at_end = before, at_end or len(before) < len(entries)
            if added is not None and added_then is not None and added >= added_then:
                added = added_then  # if it is lower, the stream was recreated, which ``missed`` reports
        if read is None:  # entries removed before the first read do not count as lost
            read = added - length if added is not None else 0
        if added is not None:
            recreated = end is not None and end[1] is not None and added < end[1]
            missing = -1 if recreated else missed(read, len(entries), added, at_end=at_end)
            if missing:
                return [], self._lost(split, position, read, missing, may_go_on=not recreated)
        if not entries:
            return None
        return [self._values(split, *entry) for entry in entries], (entries[-1][0].decode(), read + len(entries))

    def _ask(self, stream: str, position: str) -> tuple[list[Any], int | None, int]:
        """Read entries after a position together with the stream's counters, in one transaction.

        Returns:
            The entries, the number of entries ever added (None if the server does not report it), and the stream's
            length.

        Raises:
            ConnectError: The server is unreachable or refuses the commands.
        """
        with self._server.saying(f"reading stream {stream!r}"):
            both = self._server.client.pipeline(transaction=True)
            both.xread({stream: position}, count=self._rows)
            both.xinfo_stream(stream)
            answer, about = both.execute(raise_on_error=False)
            if isinstance(answer, Exception):
                raise answer
            if isinstance(about, Exception):
                if NO_STREAM in str(about):
                    return [], 0, 0
                raise about
        added = about.get("entries-added")
        return _entries(answer), None if added is None else int(added), int(about["length"])

    def _lost(self, stream: str, position: str, read: int, missing: int, *, may_go_on: bool) -> tuple[str, int]:
        """Return the position to continue from.

        Raises:
            ConnectError: ``user.redis.removed`` is ``fail``, or a bounded range cannot be completed.
        """
        recreated = missing < 0
        what = (
            f"stream {stream!r} was deleted or recreated after {read} of its entries were read"
            if recreated
            else f"{missing} entries of stream {stream!r} were removed before they were read, after {position}"
        )
        if self._removed == FAIL or not may_go_on:
            raise ConnectError(
                f"{what} ({self._server.name}): keep entries until they are read (MAXLEN, XDEL, DEL), or continue "
                f"without them by config {REMOVED.key!r}: {SKIP!r}"
            )
        log.warning("%s: continuing without them", what)
        return (START, 0) if recreated else (position, read + missing)

    def _values(self, stream: str, number: bytes, fields: Mapping[bytes, bytes]) -> Row:
        own = {ID: number.decode(), STREAM: stream}
        return [own[name] if name in own else value_of(fields.get(name.encode())) for name in self._fields]


def in_order(entry: str) -> tuple[int, int]:
    """Return an entry's id as the pair of integers by which the server orders entries."""
    first, _, second = entry.partition("-")
    return int(first), int(second)


def missed(read: int, came: int, added: int, *, at_end: bool) -> int:
    """Return how many entries were removed before they were read; negative if the stream was recreated.

    Args:
        read: Number of entries read before.
        came: Number of entries read now.
        added: Number of entries ever added to the stream.
        at_end: Whether the stream ends after the entries read now. Losses can be determined only there, as entries that
            are still to come may be any of the added ones.
    """
    if added < read + came:
        return -1
    return added - read - came if at_end else 0


def _entries(answer: Any) -> list[Any]:
    """Return the entries of one stream from an XREAD reply of either protocol version."""
    if not answer:
        return []
    pairs = answer.items() if isinstance(answer, Mapping) else answer
    (_, entries), *_ = pairs
    return list(entries[0] if isinstance(answer, Mapping) else entries)

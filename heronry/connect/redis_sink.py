"""Exactly-once sink for a Redis stream.

::

    heronry:STEP:batch:ID       list of a task's unprepared entries: for each one the number of elements that follow,
                                then names and values in turn; expires after a day
    heronry:STEP:staged:TOKEN   the same, prepared
    heronry:STEP:tokens         hash from token to its state, PREPARED or COMMITTED
    heronry:STEP:committed:TASK committed tokens by checkpoint, used to remove old ones

Theory of operation. ``prepare`` renames the batch and records its token in one Redis transaction. ``commit`` is one
script, and Redis runs scripts atomically. The script adds the staged entries to the stream and marks the token, so a
repeated commit finds the mark and does nothing. A token that is neither prepared nor committed is an error: prepared
data was lost, because the server does not persist its writes or another server took over
(``docs/reference/connectors.md``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from heronry.api.state import Checkpoint
from heronry.connect.redis import OPTIONS, Server, Unreachable, url_problems
from heronry.connect.seats import Seat, SeatedSink, attempts
from heronry.connect.settings import ConnectError, problems, text, whole
from heronry.connect.spool import cannot_hold
from heronry.connect.text import fitting

STREAM = text("user.redis.stream", "the stream that entries go to", required=True)
LENGTH = whole("user.redis.maxlen", "approximate number of entries to keep (MAXLEN ~); 0: all", 0, least=0)
ATTEMPTS = whole("user.redis.attempts", "attempts of a commit when the server does not answer", 6)
ENTRIES_A_PART = 500
KEPT_CHECKPOINTS = 1000  # checkpoints whose committed tokens are kept, for each task
BATCH_SECS = 24 * 3600
PREPARED, COMMITTED = "prepared", "committed"
#: KEYS: tokens, staged, committed, stream. ARGV: token, checkpoint, oldest to keep, maxlen. Returns the former state.
COMMIT = """
local state = redis.call('HGET', KEYS[1], ARGV[1])
if state ~= 'prepared' then return state or '' end
local staged = redis.call('LRANGE', KEYS[2], 0, -1)
local at = 1
while at <= #staged do
  local last = at + tonumber(staged[at])
  if ARGV[4] == '0' then redis.call('XADD', KEYS[4], '*', unpack(staged, at + 1, last))
  else redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[4], '*', unpack(staged, at + 1, last)) end
  at = last + 1
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[1], ARGV[1], 'committed')
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. ARGV[3])
for _, token in ipairs(old) do redis.call('HDEL', KEYS[1], token) end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', '(' .. ARGV[3])
return state
"""
#: KEYS: tokens, staged. ARGV: token.
ABORT = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= 'prepared' then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
"""


class RedisStreamSink(SeatedSink):
    """Exactly-once sink that adds each tuple as an entry to ``user.redis.stream``.

    The entry's fields are those of the tuple, without fields whose value is None.
    """

    options = (*OPTIONS, STREAM, LENGTH, ATTEMPTS)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from problems(cls.options, config)
        yield from url_problems(config)

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Connect, and check the stream's key.

        Raises:
            BadConfig: An option is missing or invalid.
            ConnectError: The server is unreachable, or the key holds another type.
        """
        self._place, self._task = f"heronry:{seat.step}", seat.task
        self._stream, self._length, self._attempts = STREAM.of(config), LENGTH.of(config), ATTEMPTS.of(config)
        self._entries: list[bytes] = []
        self._waiting = 0
        self._begin()
        self._server = Server(config, f"heronry {seat.step} {self._task}")
        self._commit_script = self._server.client.register_script(COMMIT)
        self._abort_script = self._server.client.register_script(ABORT)
        with self._server.saying(f"looking at stream {self._stream!r}"):
            kind = self._server.client.type(self._stream)
        if kind not in (b"stream", b"none"):
            raise ConnectError(
                f"{self._server.name}: {self._stream!r} holds a {kind.decode()}, not a stream; name another in config "
                f"{STREAM.key!r}"
            )

    @classmethod
    def encoded(cls, fields: Sequence[str], values: Sequence[Any]) -> list[bytes]:
        """Return the names and values of an entry in turn.

        Raises:
            ConnectError: Redis cannot represent a value, or all values are None.
        """
        entry: list[bytes] = []
        for name, value in zip(fields, values, strict=True):
            if value is None:
                continue
            try:
                entry += [name.encode(), fitting(value)]
            except ValueError as error:
                raise cannot_hold(cls, name, value, f"and {error}") from None
        if not entry:
            raise cannot_hold(cls, ", ".join(fields), None, "and an entry needs a field")
        return entry

    def take(self, encoded: list[bytes]) -> None:
        """Add an entry to the batch. Raises ConnectError."""
        self._entries += [str(len(encoded)).encode(), *encoded]
        self._waiting += 1
        if self._waiting >= ENTRIES_A_PART:
            self._stage()

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """Stage the batch in Redis under a token, without adding it to the stream.

        Returns:
            The token, or None if the batch is empty.

        Raises:
            ConnectError: The server is unreachable, or has lost entries.
        """
        if self._entries:
            self._stage()
        if not self._elements:
            return None
        with self._server.saying("preparing entries"):
            transaction = self._server.client.pipeline(transaction=True)
            transaction.persist(self._batch)
            transaction.rename(self._batch, self._staged(checkpoint.name))
            transaction.hset(f"{self._place}:tokens", checkpoint.name, PREPARED)
            transaction.execute()
        self._begin()
        return checkpoint.name

    def commit(self, checkpoint: int, token: str) -> None:
        """Add the staged entries of ``token`` to the stream. Idempotent. Raises ConnectError."""
        keys = [
            f"{self._place}:tokens", self._staged(token), f"{self._place}:committed:{self._task}", self._stream,
        ]  # fmt: skip
        arguments = [token, checkpoint, checkpoint - KEPT_CHECKPOINTS, self._length]
        was = self._settle(lambda: self._commit_script(keys=keys, args=arguments)).decode()
        if was not in (PREPARED, COMMITTED):
            raise ConnectError(
                f"batch {token} was prepared for checkpoint {checkpoint} and is not in {self._server.name}: let no "
                "other client remove keys that begin with heronry:, keep the server of a running topology, and have "
                "it write to disk (appendonly yes)"
            )

    def abort(self, token: str) -> None:
        """Discard the staged entries of ``token``. Idempotent. Raises ConnectError."""
        self._settle(lambda: self._abort_script(keys=[f"{self._place}:tokens", self._staged(token)], args=[token]))

    def prepared(self) -> list[str]:
        """Return the prepared, uncommitted tokens of this component. Raises ConnectError."""
        tokens = self._settle(lambda: self._server.client.hgetall(f"{self._place}:tokens"))
        return [token.decode() for token, state in tokens.items() if state == PREPARED.encode()]

    def forget(self) -> None:
        """Delete all staged entries and tokens of the component. Raises ConnectError."""

        def delete() -> None:
            client, tokens = self._server.client, f"{self._place}:tokens"
            staged = [self._staged(token.decode()) for token in client.hkeys(tokens)]
            client.delete(tokens, f"{self._place}:committed:{self._task}", *staged)

        self._settle(delete)

    def close(self) -> None:
        """Close the connection. Entries that are not prepared are discarded, and those already in Redis expire."""
        if hasattr(self, "_server"):
            self._server.close()

    def _begin(self) -> None:
        self._batch, self._elements = f"{self._place}:batch:{uuid.uuid4()}", 0

    def _staged(self, token: str) -> str:
        return f"{self._place}:staged:{token}"

    def _stage(self) -> None:
        with self._server.saying("staging entries"):
            transaction = self._server.client.pipeline(transaction=True)
            transaction.rpush(self._batch, *self._entries)
            transaction.expire(self._batch, BATCH_SECS)
            length, _ = transaction.execute()
        self._elements += len(self._entries)
        self._entries, self._waiting = [], 0
        if length != self._elements:
            raise ConnectError(
                f"{self._server.name} has lost entries that it had taken ({length} of {self._elements} elements are "
                "there): they come again with the checkpoint before; have the server write to disk (appendonly yes)"
            )

    def _settle(self, do: Callable[[], Any]) -> Any:
        """Call ``do``, and retry while the server does not answer. Raises ConnectError."""
        for attempt in attempts(self._attempts):
            try:
                with self._server.saying(f"committing entries to stream {self._stream!r}"):
                    return do()
            except Unreachable:
                if attempt.last:
                    raise
        raise AssertionError("at least one attempt")

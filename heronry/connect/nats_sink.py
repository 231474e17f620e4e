"""Exactly-once sink for a JetStream stream.

A spooled batch (``spool.py``) starts with a line that holds the stream's last sequence number at the time the batch
was begun, followed by one line for each message. Commit publishes the messages with
``Nats-Msg-Id: TOPOLOGY.COMPONENT-TOKEN-NUMBER``. The server rejects repeated ids within the stream's
``duplicate_window``. If the batch is older than half of that window, commit first searches the stream, after the
sequence number of the first line, and publishes only the messages that are missing. So each message is stored once,
however long a topology was paused.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from heronry.api.tuples import Tuple
from heronry.connect.files import json_object
from heronry.connect.nats import OPTIONS, Server, Unreachable, url_problems
from heronry.connect.seats import Seat, attempts
from heronry.connect.settings import ConnectError, problems, text, whole
from heronry.connect.spool import PostingSink, safe_in

SUBJECT = text("user.nats.subject", "subject to publish messages to", required=True)
ATTEMPTS = whole("user.nats.attempts", "attempts of a commit when the server does not answer", 6)
ID = "Nats-Msg-Id"
TOGETHER = 500  # maximum number of messages in flight
LEAST_WINDOW_SECS = 10.0


class NatsSink(PostingSink):
    """Exactly-once sink that publishes each tuple as a JSON object to ``user.nats.subject``.

    The subject must belong to a JetStream stream. ``user.nats.spool`` names the folder of prepared batches, which all
    tasks share. ``docs/reference/connectors.md`` describes all options.
    """

    suffix = ".jsonl"
    folder_option = text("user.nats.spool", "folder of batches until they are published", required=True)
    options = (*OPTIONS, SUBJECT, ATTEMPTS)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from problems((cls.folder_option, *cls.options), config)
        yield from url_problems(config)
        subject = SUBJECT.of(config)
        if isinstance(subject, str) and any(mark in subject for mark in ("*", ">", " ")):
            yield f"config {SUBJECT.key!r} is {subject!r:.80}; it is one subject, without * and >"

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Connect, and find the stream of the subject.

        Raises:
            BadConfig: An option is missing or invalid.
            ConnectError: The server is unreachable, or its stream is missing or has a short duplicate window.
        """
        super().open(config, seat)
        self._subject, self._attempts = SUBJECT.of(config), ATTEMPTS.of(config)
        self._server = Server(config, f"heronry {self._step} {self._task}")
        try:
            self._stream = self._asked(self._find)
        except BaseException:
            self.close()
            raise

    async def _find(self, js: Any) -> str:
        try:
            stream = str(await js.find_stream_name_by_subject(self._subject))
        except self._server.js_errors.NotFoundError:
            raise ConnectError(
                f"{self._server.name}: no stream takes subject {self._subject!r}, so its messages would be "
                f"lost; create one, or name another in config {SUBJECT.key!r}"
            ) from None
        window = float((await js.stream_info(stream)).config.duplicate_window or 0)
        if window < LEAST_WINDOW_SECS:
            raise ConnectError(
                f"{self._server.name}: stream {stream!r} remembers numbers of messages for {window:g} s only; set its "
                f"duplicate_window to {LEAST_WINDOW_SECS:g} s at least, two minutes are usual"
            )
        return stream

    def begin(self, file: BinaryIO) -> None:
        """Write the stream's last sequence number as the first line of a batch."""
        about = self._asked(lambda js: js.stream_info(self._stream))
        file.write(json.dumps({"from": about.state.last_seq}).encode() + b"\n")

    def encode(self, tup: Tuple) -> bytes:
        """Return the line for a tuple."""
        return self.encoded(tup.fields, tup.values)

    @classmethod
    def encoded(cls, fields: Sequence[str], values: Sequence[Any]) -> bytes:
        """Return the line for fields and values.

        Raises:
            ConnectError: JSON cannot represent a value.
        """
        return json_object(cls, fields, values) + b"\n"

    def post(self, batch: Path, key: str) -> None:
        """Publish the messages of a batch.

        Raises:
            ConnectError: The server refuses the messages, or did not answer in any attempt.
            FileNotFoundError: Another process has committed the batch.
        """
        age_secs = time.time() - batch.stat().st_mtime
        begun, *lines = batch.read_bytes().split(b"\n")[:-1]
        messages = {f"{key}-{number}": line for number, line in enumerate(lines)}

        async def publish(js: Any) -> None:
            window = float((await js.stream_info(self._stream)).config.duplicate_window or 0)
            if not 0 <= age_secs < window / 2:
                for there in await self._there(js, json.loads(begun)["from"], f"{key}-"):
                    messages.pop(there, None)
            remaining = list(messages.items())
            for first in range(0, len(remaining), TOGETHER):
                part = remaining[first : first + TOGETHER]
                await asyncio.gather(
                    *(js.publish(self._subject, line, stream=self._stream, headers={ID: n}) for n, line in part)
                )

        for attempt in attempts(self._attempts):
            try:
                self._asked(publish)
                return
            except Unreachable as error:
                if attempt.last:
                    raise ConnectError(f"{error}. {safe_in(self._folder)}") from None

    async def _there(self, js: Any, last: int, begin: str) -> list[str]:
        """Return the ids that start with ``begin`` of the messages after sequence number ``last``."""
        api, numbers = self._server.api, []
        about = await js.stream_info(self._stream)
        if about.state.messages == 0 or about.state.last_seq <= last:
            return []
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=last + 1, ack_policy=api.AckPolicy.NONE,
            inactive_threshold=60.0, mem_storage=True, num_replicas=1, headers_only=True,
        )  # fmt: skip
        made = await js.add_consumer(self._stream, config)
        consumer = await js.pull_subscribe_bind(consumer=made.name, stream=self._stream)
        while last < about.state.last_seq:
            messages = await consumer.fetch(TOGETHER, timeout=self._server.timeout)
            last = messages[-1].metadata.sequence.stream
            numbers += [number for m in messages if (number := (m.headers or {}).get(ID, "")).startswith(begin)]
            if not messages[-1].metadata.num_pending:
                break
        return numbers

    def _asked(self, do: Any) -> Any:
        return self._server.run(f"publishing to {self._subject!r}", do)

    def close(self) -> None:
        """Discard tuples that are not prepared, and close the connection."""
        super().close()
        if hasattr(self, "_server"):
            self._server.close()

"""HTTP sink for servers that support idempotency keys: one POST for each checkpoint and task.

A spooled batch (``spool.py``) is posted with the header ``Idempotency-Key: TOPOLOGY.COMPONENT-TOKEN`` until the
server has accepted it. So each batch takes effect once if the server remembers the keys that it answered with 2xx for
longer than a topology may be stopped. The IETF draft "The Idempotency-Key HTTP Header Field" defines the rules.

The sink retries a limited number of times after missing answers, 408, 409 (an earlier attempt is still being
processed), 425, 429 and 5xx. Any other answer is final and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from heron_runtime.failures import one_line
from heronry.api.tuples import Tuple
from heronry.connect.files import json_object
from heronry.connect.seats import attempts
from heronry.connect.settings import (
    ConnectError,
    address_problems,
    mapping,
    parse_url,
    problems,
    seconds,
    secret_of,
    text,
    whole,
)
from heronry.connect.spool import PostingSink, safe_in

URL = text("user.http.url", "where batches are posted, as http:// or https://", required=True)
HEADERS = mapping("user.http.headers", "headers of each request; they must not hold secrets")
TOKEN_FILE = text("user.http.token.file", "a file with a token, sent as Authorization: Bearer")
TIMEOUT = seconds("user.http.timeout.secs", "timeout of a response", 30.0)
ATTEMPTS = whole("user.http.attempts", "how often a batch is posted before the commit fails", 6)
AGAIN = (408, 409, 425, 429)
MEANING = {
    401: "it requires credentials", 403: "it forbids this", 404: "nothing exists at this address",
    405: "it does not accept POST", 413: "the batch is too large: checkpoint more often, or use more tasks",
    415: "it does not accept application/json", 422: "it rejects this batch, or the key was used for another",
}  # fmt: skip


class HttpSink(PostingSink):
    """Sink that posts the tuples of each checkpoint as a JSON array of objects to ``user.http.url``.

    Each batch has an idempotency key, so it takes effect once. ``user.http.spool`` names the folder of prepared
    batches, which all tasks share. ``docs/reference/connectors.md`` describes all options.
    """

    suffix = ".json"
    folder_option = text("user.http.spool", "the folder that keeps batches until they are posted", required=True)
    options = (URL, HEADERS, TOKEN_FILE, TIMEOUT, ATTEMPTS)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from problems((cls.folder_option, *cls.options), config)
        yield from address_problems(config, URL, TOKEN_FILE, ("http", "https"))
        parts = parse_url(config.get(URL.key))
        if parts is not None and parts.username and not parts.password:
            yield f"config {URL.key!r} holds a user name: put a token into {TOKEN_FILE.key!r}"

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Check the configuration, and create the client. Raises BadConfig, ConnectError."""
        super().initialize(config, context)
        headers = {"Content-Type": "application/json", **HEADERS.of(config)}
        if TOKEN_FILE.of(config):
            headers["Authorization"] = f"Bearer {secret_of(TOKEN_FILE.of(config), TOKEN_FILE.key)}"
        self._url, self._attempts = URL.of(config), ATTEMPTS.of(config)
        self._client = httpx.Client(headers=headers, timeout=TIMEOUT.of(config))

    def begin(self, file: BinaryIO) -> None:
        """Start the JSON array. Its opening bracket is written with the first element."""
        self._between = b"[\n"

    def encode(self, tup: Tuple) -> bytes:
        """Return the array element for a tuple."""
        data = json_object(self, tup.fields, tup.values)
        self.opened()
        between, self._between = self._between, b",\n"
        return between + data

    def finish(self, file: BinaryIO) -> None:
        """Write the end of the array."""
        file.write(b"\n]\n")

    def close(self) -> None:
        """Discard tuples that are not prepared, and close the client."""
        super().close()
        if hasattr(self, "_client"):
            self._client.close()

    def post(self, batch: Path, key: str) -> None:
        """Post a batch. Raises ConnectError, FileNotFoundError."""
        body, reason = batch.read_bytes(), ""
        for attempt in attempts(self._attempts):
            try:
                answer = self._client.post(self._url, content=body, headers={"Idempotency-Key": key})
            except httpx.HTTPError as error:
                reason = f"gave no answer ({type(error).__name__}: {one_line(str(error), 200)})"
            else:
                if answer.is_success:
                    return
                reason, attempt.asked_secs = _said(answer), _retry_after(answer)
                if answer.status_code not in AGAIN and answer.status_code < 500:
                    raise ConnectError(f"{self._url} has refused batch {key}: {reason}")
        raise ConnectError(
            f"{self._url} did not accept batch {key} in {self._attempts} attempts; the last time it {reason}. "
            f"{safe_in(self._folder)}"
        )


def _said(answer: httpx.Response) -> str:
    status = answer.status_code
    if answer.is_redirect:
        return f"said {status}, and redirects to {one_line(answer.headers.get('Location', '?'), 200)}: use that address"
    meaning = MEANING.get(status, "")
    body = one_line(answer.text[:300].strip(), 300)
    return f"said {status} {answer.reason_phrase}{f', {meaning}' if meaning else ''}{f': {body}' if body else ''}"


def _retry_after(answer: httpx.Response) -> float:
    given = answer.headers.get("Retry-After", "")
    return float(given) if given.isdecimal() else 0.0

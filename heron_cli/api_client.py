"""Requests to an api server, and what its answers mean for the command: results, or the errors of
``heron_runtime.failures``.

The token goes in the Authorization header, to the server that was logged in to and nowhere else: redirects are not
followed, and no proxy is asked for this machine's own addresses.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from heron_cli.console import say
from heron_cli.credentials import Login
from heron_control.web.names import UNDONE_HEADER, is_loopback
from heron_runtime.failures import (
    ExistsAlready,
    Failure,
    InvalidTopology,
    NotAllowed,
    NotFound,
    Unavailable,
    UsageError,
)
from heronry.version import VERSION

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
LONG_SECONDS = 300.0  # what waits for containers: submit, kill, restart
AGAIN_SECONDS = 0.5
LEADER_SECONDS = 45.0  # until another api server leads, and has settled what the one before left
_KINDS: Mapping[int, type[Failure]] = {
    401: NotAllowed, 403: NotAllowed, 404: NotFound, 408: Unavailable, 409: ExistsAlready, 413: InvalidTopology,
    421: UsageError, 422: InvalidTopology, 429: Unavailable, 502: Unavailable, 503: Unavailable, 504: Unavailable,
}  # fmt: skip


class ApiClient:
    """One server. Use it in a ``with`` block: what is asked within shares connections."""

    def __init__(self, login: Login, name: str) -> None:
        self.login = login
        self._name = name
        host = urlsplit(login.api).hostname or ""
        token = {"authorization": f"Bearer {login.token}"} if login.token else {}
        self._client = httpx.Client(
            base_url=login.api,
            headers={"user-agent": f"heron/{VERSION}", **token},
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=not is_loopback(host),
        )

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def json(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of an answer that is a success. Raises Failure."""
        response = self.ask(method, path, **options)
        try:
            return response.json()
        except ValueError:
            raise self._stranger(f"its answer to {path} is no JSON") from None

    def ask(self, method: str, path: str, *, again: int = 0, **options: Any) -> httpx.Response:
        """An answer that is a success. ``again``: how often to send it anew if the connection breaks.

        While no api server leads, nothing is done, so whatever was asked is asked again until one does. Raises Failure.
        """
        deadline = 0.0
        while True:
            try:
                response = self._client.request(method, path, **options)
            except httpx.TransportError as error:
                if again > 0 and not isinstance(error, httpx.ConnectError):
                    again -= 1
                    time.sleep(AGAIN_SECONDS)
                    continue
                raise self._no_answer(error) from error
            if response.is_success:
                return response
            if response.status_code == 503 and UNDONE_HEADER in response.headers:
                if not deadline:
                    say("note: no api server leads at this moment; waiting until one does")
                deadline = deadline or time.monotonic() + LEADER_SECONDS
                if time.monotonic() < deadline:
                    time.sleep(AGAIN_SECONDS)
                    continue
            if again > 0 and response.headers.get("retry-after") and response.status_code in (409, 502, 503, 504):
                again -= 1
                time.sleep(2 * AGAIN_SECONDS)
                continue
            raise self._failure(response)

    def _no_answer(self, error: httpx.TransportError) -> Failure:
        late = isinstance(error, httpx.TimeoutException)
        why = "it did not answer in time" if late else str(error) or "no connection"
        return Unavailable(
            f"the api server {self.login.api} of {self._name} cannot be reached: {why}",
            f"Does it run? `heron login {self._name} --api URL` changes the address.",
        )

    def _failure(self, response: httpx.Response) -> Failure:
        try:
            found = response.json()
            message, cure = str(found["message"]), str(found.get("cure") or "")
            details, usage = [str(text) for text in found.get("details") or ()], found.get("usage") is True
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._stranger(f"it answered {response.status_code} {response.reason_phrase}")
        kind = UsageError if usage else _KINDS.get(response.status_code, Failure)
        return kind(message, cure, details if len(details) > 1 else ())

    def _stranger(self, why: str) -> Failure:
        text = f"{self.login.api} is no api server of Heronry: {why}"
        return Unavailable(text, "Is the address right, and the port?")

"""HTTP client of an API server, which turns responses into results or the errors of ``heron_runtime.failures``.

The token is sent in the Authorization header to the server of the login only: redirects are not followed, and
addresses of this machine are not requested through a proxy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from heron_cli.console import print_message
from heron_cli.home import SavedLogin
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
LONG_SECONDS = 300.0  # for requests that wait for containers: submit, kill, restart
RETRY_SECONDS = 0.5
LEADER_SECONDS = 45.0  # longest wait until another API server leads and has recovered
_KINDS: Mapping[int, type[Failure]] = {
    401: NotAllowed, 403: NotAllowed, 404: NotFound, 408: Unavailable, 409: ExistsAlready, 413: InvalidTopology,
    421: UsageError, 422: InvalidTopology, 429: Unavailable, 502: Unavailable, 503: Unavailable, 504: Unavailable,
}  # fmt: skip


class ApiClient:
    """Client of one server. Requests within its ``with`` block share connections."""

    def __init__(self, login: SavedLogin, name: str) -> None:
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
        """Send a request and return the JSON of a successful response. Raises Failure."""
        response = self.request(method, path, **options)
        try:
            return response.json()
        except ValueError:
            raise self._not_heronry(f"the response to {path} is not JSON") from None

    def request(self, method: str, path: str, *, retry_count: int = 0, **options: Any) -> httpx.Response:
        """Send a request and return a successful response.

        Without a leading API server a request has no effect, so it is sent again until one leads.

        Args:
            method: HTTP method.
            path: Path of the URL.
            retry_count: How often to send the request again if the connection breaks.
            options: Further arguments of ``httpx.Client.request``.

        Raises:
            Failure: The server cannot be reached, or responds with an error.
        """
        deadline = 0.0
        while True:
            try:
                response = self._client.request(method, path, **options)
            except httpx.TransportError as error:
                if retry_count > 0 and not isinstance(error, httpx.ConnectError):
                    retry_count -= 1
                    time.sleep(RETRY_SECONDS)
                    continue
                raise self._unreachable(error) from error
            if response.is_success:
                return response
            if response.status_code == 503 and UNDONE_HEADER in response.headers:
                if not deadline:
                    print_message("note: waiting for an API server to become the leader")
                deadline = deadline or time.monotonic() + LEADER_SECONDS
                if time.monotonic() < deadline:
                    time.sleep(RETRY_SECONDS)
                    continue
            if retry_count > 0 and response.headers.get("retry-after") and response.status_code in (409, 502, 503, 504):
                retry_count -= 1
                time.sleep(2 * RETRY_SECONDS)
                continue
            raise self._error_of(response)

    def _unreachable(self, error: httpx.TransportError) -> Failure:
        late = isinstance(error, httpx.TimeoutException)
        why = "no answer in time" if late else str(error) or "no connection"
        return Unavailable(
            f"{self.login.api}: the API server of {self._name} cannot be reached: {why}",
            f"Check that it runs. `heron login {self._name} --api URL` changes the address.",
        )

    def _error_of(self, response: httpx.Response) -> Failure:
        try:
            body = response.json()
            message, cure = str(body["message"]), str(body.get("cure") or "")
            details, usage = [str(text) for text in body.get("details") or ()], body.get("usage") is True
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._not_heronry(f"it responded {response.status_code} {response.reason_phrase}")
        kind = UsageError if usage else _KINDS.get(response.status_code, Failure)
        return kind(message, cure, details if details != [message] else ())

    def _not_heronry(self, why: str) -> Failure:
        return Unavailable(f"{self.login.api}: not a Heronry API server ({why})", "Check the address and the port.")

"""What the source and sink of NATS JetStream share: the connection and its errors.

nats-py is made of coroutines; they run in a loop of a thread of their own, one at a time, and the connector waits for
them. A connection that was lost is made anew by the next call. A password never stands in the configuration, which the
state store and the tracker show: it comes from the file that ``user.nats.password.file`` names.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from heron_runtime.failures import one_line
from heronry.connect.drivers import driver
from heronry.connect.settings import ConnectError, address_problems, seconds, secret_of, text

URL = text("user.nats.url", "the server, as nats://[USER@]HOST[:PORT] or tls://", required=True)
PASSWORD_FILE = text("user.nats.password.file", "a file with the password, or, where the address has no user, a token")
TIMEOUT = seconds("user.nats.timeout.secs", "how long the server may take to answer", 10.0)
OPTIONS = (URL, PASSWORD_FILE, TIMEOUT)
Found = TypeVar("Found")


class Unreachable(ConnectError):
    """The server does not answer; another try may help."""


def url_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Why a configuration's server may not be named so."""
    return address_problems(config, URL, PASSWORD_FILE, ("nats", "tls"))


class Server:
    """A server as a topology's configuration names it."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        """``name``: what the server shows of the connection. Raises ConnectError; connects at the first call."""
        self._nats = driver("nats", "NATS", "nats-py", "nats")
        self.errors, self.js_errors = self._nats.errors, importlib.import_module("nats.js.errors")
        self.api = importlib.import_module("nats.js.api")
        parts = urlsplit(URL.of(config))
        self.name = f"NATS at {parts.hostname}:{parts.port or 4222}"
        self._options: dict[str, Any] = {"name": name}
        secret = secret_of(PASSWORD_FILE.of(config), PASSWORD_FILE.key) if PASSWORD_FILE.of(config) else None
        if parts.username:
            self._options |= {"user": parts.username, "password": secret}
        elif secret is not None:
            self._options["token"] = secret
        self._url, self.timeout = URL.of(config), float(TIMEOUT.of(config))
        self._client: Any = None
        self._said = ""
        self.life = 0  # of the connection: what a consumer of an earlier one was is gone
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats", daemon=True)
        self._thread.start()

    def run(self, what: str, do: Callable[[Any], Awaitable[Found]]) -> Found:
        """``do`` with the JetStream of a connection. Raises ConnectError: server, what was done, why it failed; what
        the server answers by the classes of ``js_errors`` that ``do`` does not catch, too."""

        async def done() -> Found:
            return await do(await self._connected())

        with self._saying(what):
            return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    async def _connected(self) -> Any:
        if self._client is None or not self._client.is_connected:
            await self._let_go()
            self._said = ""
            self._client = self._nats.NATS()  # held, so that one that is refused is closed, too
            await self._client.connect(
                self._url, connect_timeout=self.timeout, allow_reconnect=False, max_reconnect_attempts=1,
                reconnect_time_wait=0, error_cb=self._heard, **self._options,
            )  # fmt: skip
            self.life += 1
        return self._client.jetstream(timeout=self.timeout)

    async def _heard(self, error: Exception) -> None:
        """What the client says beside its exceptions, which tell less."""
        self._said = one_line(repr(error), 200)

    async def _let_go(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()

    @contextlib.contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except self.js_errors.APIError as error:
            if error.code == 503:
                raise self._unreachable(what, error) from None
            raise ConnectError(f"{self.name} refuses ({one_line(str(error), 300)}), {what}") from None
        except (self.errors.Error, OSError, TimeoutError) as error:
            raise self._unreachable(what, error) from None

    def _unreachable(self, what: str, error: BaseException) -> Unreachable:
        why = ", ".join(dict.fromkeys(text for text in (one_line(repr(error), 200), self._said) if text))
        return Unreachable(
            f"{self.name} cannot be reached ({why}), {what}: see that it runs with JetStream, takes connections from "
            f"this host, and knows the user and password that config {URL.key!r} and {PASSWORD_FILE.key!r} lead to"
        )

    def close(self) -> None:
        """Let go of the connection."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._let_go(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

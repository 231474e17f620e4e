"""Connection and errors shared by the NATS JetStream source and sink.

nats-py is a library of coroutines. They run one at a time in an event loop on a separate thread, and the connector
waits for their results. After a connection is lost, the next call reconnects. Passwords must not be in the
configuration, because the state store and the tracker show it. The password is read from the file that
``user.nats.password.file`` names.
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
from heronry.connect.settings import ConnectError, address_problems, driver, seconds, secret_of, text

URL = text("user.nats.url", "the server, as nats://[USER@]HOST[:PORT] or tls://", required=True)
PASSWORD_FILE = text("user.nats.password.file", "a file with the password, or, where the address has no user, a token")
TIMEOUT = seconds("user.nats.timeout.secs", "how long the server may take to answer", 10.0)
OPTIONS = (URL, PASSWORD_FILE, TIMEOUT)
Found = TypeVar("Found")


class Unreachable(ConnectError):
    """Error of a server that does not answer. A retry may succeed."""


def url_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each problem of the server's address in a configuration."""
    return address_problems(config, URL, PASSWORD_FILE, ("nats", "tls"))


class Server:
    """Client of the NATS server that a topology's configuration names.

    Args:
        config: The topology's configuration.
        name: Connection name to report to the server.
    """

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        """Prepare the client. The first call connects.

        Raises:
            ConnectError: The driver is not installed, or the password file cannot be read.
        """
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
        self.life = 0  # number of connections so far; consumers of earlier ones are invalid
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats", daemon=True)
        self._thread.start()

    def run(self, what: str, do: Callable[[Any], Awaitable[Found]]) -> Found:
        """Call ``do`` with the JetStream context of a connection, and return its result.

        Args:
            what: Description of the operation, for error messages.
            do: Coroutine function that takes a JetStream context.

        Raises:
            ConnectError: The server is unreachable, or answers with an error of ``js_errors`` that ``do`` does not
                catch.
        """

        async def done() -> Found:
            return await do(await self._connected())

        with self._saying(what):
            return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    async def _connected(self) -> Any:
        if self._client is None or not self._client.is_connected:
            await self._let_go()
            self._said = ""
            self._client = self._nats.NATS()  # stored first, so that a refused connection is closed as well
            await self._client.connect(
                self._url, connect_timeout=self.timeout, allow_reconnect=False, max_reconnect_attempts=1,
                reconnect_time_wait=0, error_cb=self._heard, **self._options,
            )  # fmt: skip
            self.life += 1
        return self._client.jetstream(timeout=self.timeout)

    async def _heard(self, error: Exception) -> None:
        """Record an error that the client reports asynchronously. It has more detail than the client's exceptions."""
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
        """Close the connection and stop the event loop."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._let_go(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

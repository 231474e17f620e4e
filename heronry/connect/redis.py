"""Connection and errors shared by the Redis sources and sinks.

Passwords must not be in the configuration, because the state store and the tracker show it. The password is read from
the file that ``user.redis.password.file`` names. Error messages name the server by host and port only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from heron_runtime.failures import one_line
from heronry.connect.settings import ConnectError, address_problems, driver, seconds, secret_of, text

URL = text(
    "user.redis.url", "the server, as redis://[USER@]HOST[:PORT][/DATABASE], rediss:// or unix://", required=True
)
PASSWORD_FILE = text("user.redis.password.file", "a file with the password")
TIMEOUT = seconds("user.redis.timeout.secs", "how long the server may take to answer", 10.0)
OPTIONS = (URL, PASSWORD_FILE, TIMEOUT)


class Unreachable(ConnectError):
    """Error of a server that does not answer. A retry may succeed."""


def url_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each problem of the server's address in a configuration."""
    return address_problems(config, URL, PASSWORD_FILE, ("redis", "rediss", "unix"), hostless="unix")


class Server:
    """Client of the Redis server that a topology's configuration names.

    Args:
        config: The topology's configuration.
        name: Client name to report to the server.
    """

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        """Create the client. The first command connects.

        Raises:
            ConnectError: The driver is not installed, the address is invalid, or the password file cannot be read.
        """
        self._redis = driver("redis", "Redis", "redis", "redis")
        parts = urlsplit(URL.of(config))
        self.name = f"Redis at {parts.path if parts.scheme == 'unix' else f'{parts.hostname}:{parts.port or 6379}'}"
        more: dict[str, Any] = {"password": secret_of(PASSWORD_FILE.of(config), PASSWORD_FILE.key)} if (
            PASSWORD_FILE.of(config)
        ) else {}  # fmt: skip
        if parts.username:
            more["username"] = parts.username
        timeout = float(TIMEOUT.of(config))
        try:
            self.client = self._redis.Redis.from_url(
                URL.of(config), socket_timeout=timeout, socket_connect_timeout=timeout,
                client_name=name.replace(" ", "_"), **more,
            )  # fmt: skip
        except ValueError as error:
            raise ConnectError(f"config {URL.key!r} cannot be read ({one_line(str(error), 200)})") from None

    @contextlib.contextmanager
    def saying(self, what: str) -> Iterator[None]:
        """Translate Redis errors of the block into a ConnectError that names the operation ``what``.

        Raises:
            Unreachable: The server does not answer.
            ConnectError: The server refuses the operation.
        """
        try:
            yield
        except (self._redis.exceptions.ConnectionError, self._redis.exceptions.TimeoutError) as error:
            raise Unreachable(
                f"{self.name} cannot be reached ({one_line(str(error), 300)}), {what}: see that it runs, takes "
                f"connections from this host, and knows the user and password that config {URL.key!r} and "
                f"{PASSWORD_FILE.key!r} lead to"
            ) from None
        except self._redis.exceptions.RedisError as error:
            raise ConnectError(f"{self.name} refuses ({one_line(str(error), 300)}), {what}") from None

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

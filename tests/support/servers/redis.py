"""A real Redis server for tests that writes each command to disk."""

from __future__ import annotations

import redis

from tests.support.server_process import ServerProcess


class RedisServer(ServerProcess):
    """Redis server."""

    system, not_yet = "redis", (redis.ConnectionError, redis.exceptions.BusyLoadingError)

    def __init__(self) -> None:
        super().__init__()
        (self.folder / "redis.conf").write_text(
            f'bind 127.0.0.1\nport {self.port}\ndir {self.folder}\nappendonly yes\nappendfsync always\nsave ""\n'
            f'requirepass "{self.password}"\n'
        )

    @property
    def url(self) -> str:
        """Return the URL without the password."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def client(self) -> redis.Redis:
        """Return a new client."""
        return redis.Redis(port=self.port, password=self.password, decode_responses=True)

    @property
    def address(self) -> dict[str, str]:
        """Return the address for a connector."""
        return {"url": self.url}

    def command(self) -> list[str]:
        """Return the command of Debian's server."""
        return ["redis-server", str(self.folder / "redis.conf")]

    def greet(self) -> None:
        """Send a ping."""
        self.client.ping()

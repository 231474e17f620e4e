"""A real Redis server for tests that writes each command to disk."""

from __future__ import annotations

from tests.support.server_process import ServerProcess
from tests.support.servers import redis


class RedisServer(ServerProcess):
    """One server."""

    system, not_yet = "redis", (redis.ConnectionError, redis.exceptions.BusyLoadingError)

    def __init__(self) -> None:
        super().__init__()
        (self.folder / "redis.conf").write_text(
            f'bind 127.0.0.1\nport {self.port}\ndir {self.folder}\nappendonly yes\nappendfsync always\nsave ""\n'
            f'requirepass "{self.password}"\n'
        )

    @property
    def url(self) -> str:
        """Without the password."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def client(self) -> redis.Redis:
        """A new client."""
        return redis.Redis(port=self.port, password=self.password, decode_responses=True)

    @property
    def address(self) -> dict[str, str]:
        """Of a connector."""
        return {"url": self.url}

    def command(self) -> list[str]:
        """The server of Debian."""
        return ["redis-server", str(self.folder / "redis.conf")]

    def greet(self) -> None:
        """A ping."""
        self.client.ping()

"""A real NATS server with JetStream for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import nats

from tests.support.server_process import ServerProcess


class NatsServer(ServerProcess):
    """NATS server."""

    system, user, not_yet = "nats", "heron", (nats.errors.Error, OSError)

    def __init__(self) -> None:
        super().__init__()
        (self.folder / "nats.conf").write_text(
            f'host: 127.0.0.1\nport: {self.port}\njetstream {{ store_dir: "{self.folder}/js" }}\n'
            f'authorization {{ user: {self.user}, password: "{self.password}" }}\n'
        )

    @property
    def url(self) -> str:
        """Return the URL without the password."""
        return f"nats://{self.user}@127.0.0.1:{self.port}"

    @property
    def address(self) -> dict[str, str]:
        """Return the address for a connector."""
        return {"url": self.url}

    def command(self) -> list[str]:
        """Return the command of Debian's server."""
        return ["nats-server", "-c", str(self.folder / "nats.conf")]

    def greet(self) -> None:
        """Ask JetStream for its status."""
        self.ask(lambda js: js.account_info())

    def ask(self, do: Callable[[Any], Awaitable[Any]]) -> Any:
        """Call ``do`` with the JetStream of a separate connection."""

        async def quiet(_: Exception) -> None:
            """Ignore the error, which is also raised."""

        async def done() -> Any:
            client = await nats.connect(
                f"nats://127.0.0.1:{self.port}", user=self.user, password=self.password, allow_reconnect=False,
                max_reconnect_attempts=1, reconnect_time_wait=0, error_cb=quiet,
            )  # fmt: skip
            try:
                return await do(client.jetstream(timeout=30))
            finally:
                await client.close()

        return asyncio.run(done())

    def make(self, stream: str, **more: Any) -> None:
        """Create a stream with the subjects ``STREAM.*``."""
        self.ask(lambda js: js.add_stream(name=stream, subjects=[f"{stream}.*"], **more))

    def add(self, stream: str, *bodies: bytes, headers: dict[str, str] | None = None) -> None:
        """Add messages."""

        async def publish(js: Any) -> None:
            for body in bodies:
                await js.publish(f"{stream}.x", body, headers=headers)

        self.ask(publish)

    def bodies(self, stream: str) -> list[bytes]:
        """Return all messages, in order."""

        async def read(js: Any) -> list[bytes]:
            about = await js.stream_info(stream)
            if not about.state.messages:
                return []
            consumer = await js.subscribe(f"{stream}.*", ordered_consumer=True)
            return [(await consumer.next_msg(timeout=30)).data for _ in range(about.state.messages)]

        return list(self.ask(read))

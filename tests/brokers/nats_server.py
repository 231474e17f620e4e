"""A real NATS server with JetStream for tests: in a temporary folder, on a free port of 127.0.0.1.

It can be killed and started again on its data, and ends with its test process, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats

START_SECS = 60.0


class NatsServer:
    """One server. ``password``: what clients have to give."""

    user, password = "heron", "not in any log"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-nats-"))
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.password_file = self.folder / "password"
        self.password_file.write_text(self.password + "\n")
        (self.folder / "nats.conf").write_text(
            f'host: 127.0.0.1\nport: {self.port}\njetstream {{ store_dir: "{self.folder}/js" }}\n'
            f'authorization {{ user: {self.user}, password: "{self.password}" }}\n'
        )

    @property
    def url(self) -> str:
        """Without the password."""
        return f"nats://{self.user}@127.0.0.1:{self.port}"

    def config(self, **more: Any) -> dict[str, Any]:
        """The configuration of a connector; keys of ``more`` without their ``user.nats.``."""
        given = {"url": self.url, "password.file": str(self.password_file)}
        return {f"user.nats.{key}": value for key, value in {**given, **more}.items()}

    def ask(self, do: Callable[[Any], Awaitable[Any]]) -> Any:
        """``do`` with the JetStream of a connection of its own."""

        async def quiet(_: Exception) -> None:
            """The exception says it too."""

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
        """A stream that takes ``STREAM.*``."""
        self.ask(lambda js: js.add_stream(name=stream, subjects=[f"{stream}.*"], **more))

    def add(self, stream: str, *bodies: bytes, headers: dict[str, str] | None = None) -> None:
        """Messages."""

        async def publish(js: Any) -> None:
            for body in bodies:
                await js.publish(f"{stream}.x", body, headers=headers)

        self.ask(publish)

    def bodies(self, stream: str) -> list[bytes]:
        """All there are, in order."""

        async def read(js: Any) -> list[bytes]:
            about = await js.stream_info(stream)
            if not about.state.messages:
                return []
            consumer = await js.subscribe(f"{stream}.*", ordered_consumer=True)
            return [(await consumer.next_msg(timeout=30)).data for _ in range(about.state.messages)]

        return list(self.ask(read))

    def start(self) -> None:
        """Start, and wait until it serves."""
        die_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*die_with_us, "nats-server", "-c", str(self.folder / "nats.conf")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECS
        while True:
            try:
                self.ask(lambda js: js.account_info())
                return
            except (nats.errors.Error, OSError) as error:
                if time.monotonic() > deadline:
                    log_text = (self.folder / "server.log").read_text(errors="replace")[-500:]
                    raise TimeoutError(f"the server never served: {log_text}") from error
                time.sleep(0.05)

    def kill(self) -> None:
        """As by a power cut."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(START_SECS)

    def close(self) -> None:
        """End it, and remove all it had."""
        self.kill()
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def nats_server() -> Iterator[NatsServer]:
    """A server that serves, and leaves nothing behind."""
    made = NatsServer()
    try:
        made.start()
        yield made
    finally:
        made.close()

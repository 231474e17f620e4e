"""A real Redis server for tests: in a temporary folder, on a free port of 127.0.0.1, writing each command to disk.

It can be killed and started again on its data, and ends with its test process, however that ends.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

START_SECS = 60.0


class RedisServer:
    """One server. ``password``: what clients have to give."""

    password = "not in any log"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-redis-"))
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.password_file = self.folder / "password"
        self.password_file.write_text(self.password + "\n")
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

    def config(self, **more: Any) -> dict[str, Any]:
        """The configuration of a connector; keys of ``more`` without their ``user.redis.``."""
        given = {"url": self.url, "password.file": str(self.password_file)}
        return {f"user.redis.{key}": value for key, value in {**given, **more}.items()}

    def start(self) -> None:
        """Start, and wait until it serves."""
        die_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*die_with_us, "redis-server", str(self.folder / "redis.conf")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECS
        while True:
            try:
                self.client.ping()
                return
            except (redis.ConnectionError, redis.exceptions.BusyLoadingError) as error:
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
def redis_server() -> Iterator[RedisServer]:
    """A server that serves, and leaves nothing behind."""
    made = RedisServer()
    try:
        made.start()
        yield made
    finally:
        made.close()

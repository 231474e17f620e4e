"""A real PostgreSQL server for tests: a private cluster in a temporary folder, on a free port of 127.0.0.1.

PostgreSQL refuses to run as root: started by root it runs as the user that the distribution's package made. It can be
killed and started again on its data, and ends with its test process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

START_SECS = 60.0


class PostgresServer:
    """One server. ``password``: what the user ``heronry`` has to give."""

    user, database, password = "heronry", "postgres", "not in any log"

    def __init__(self) -> None:
        self._as_user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []}
        if os.getuid() != 0:
            self._as_user = {}
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-postgres-", dir="/tmp"))
        if self._as_user:
            shutil.chown(self.folder, "postgres", "postgres")
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.password_file = self.folder / "password"
        self.password_file.write_text(self.password + "\n")
        self.password_file.chmod(0o644)
        self._run("initdb", "--pgdata", str(self._data), "--username", self.user, "--auth", "scram-sha-256",
                  "--pwfile", str(self.password_file), "--no-sync", "--encoding", "UTF8")  # fmt: skip

    @property
    def dsn(self) -> str:
        """Without the password."""
        return f"host=127.0.0.1 port={self.port} dbname={self.database} user={self.user}"

    def config(self, **more: Any) -> dict[str, Any]:
        """The configuration of a connector; keys of ``more`` without their ``user.postgres.``."""
        given = {"dsn": self.dsn, "password.file": str(self.password_file)}
        return {f"user.postgres.{key}": value for key, value in {**given, **more}.items()}

    def connect(self) -> psycopg.Connection[Any]:
        """A connection."""
        return psycopg.connect(self.dsn, password=self.password, autocommit=True)

    def ask(self, statement: str, *values: Any) -> list[Any]:
        """What a statement answers."""
        with self.connect() as connection:
            found = connection.execute(statement, values)
            return found.fetchall() if found.description else []

    def left(self) -> list[tuple[int, int]]:
        """How many chunks are staged, and tokens known."""
        return self.ask("SELECT (SELECT count(*) FROM heronry_staged), (SELECT count(*) FROM heronry_checkpoints)")

    def start(self) -> None:
        """Start, and wait until it serves."""
        die_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *die_with_us, _program("postgres"), "-D", str(self._data), "-p", str(self.port),
                    "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}",
                    "-c", "shared_buffers=16MB",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **self._as_user,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECS
        while True:
            try:
                return self.connect().close()
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    log_text = (self.folder / "server.log").read_text(errors="replace")[-500:]
                    raise TimeoutError(f"the server never served: {log_text}") from error
                time.sleep(0.05)

    def kill(self) -> None:
        """As by a power cut: the main process and those that serve connections."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT)  # "immediate shutdown": no checkpoint, recovery at the next start
            process.wait(START_SECS)

    def close(self) -> None:
        """End it, and remove all it had."""
        self.kill()
        shutil.rmtree(self.folder)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [_program(program), *arguments], check=True, capture_output=True, timeout=120, cwd=self.folder,
            **self._as_user,
        )  # fmt: skip


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server that serves, and leaves nothing behind."""
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.close()


def _program(name: str) -> str:
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    found = str(places[-1]) if places else shutil.which(name)
    assert found, f"there is no {name}; run deploy/postgres-setup"
    return found

"""A private PostgreSQL server for tests.

PostgreSQL refuses to run as root. Started by root, it runs as the user that the distribution's package has created.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from tests.support.server_process import ServerProcess


class PostgresServer(ServerProcess):
    """PostgreSQL server."""

    system, not_yet, user, database = "postgres", (psycopg.OperationalError,), "heronry", "postgres"

    def __init__(self) -> None:
        super().__init__()
        if os.getuid() == 0:
            self.as_user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self.folder, "postgres", "postgres")
        self.password_file.chmod(0o644)
        self._run("initdb", "--pgdata", str(self._data), "--username", self.user, "--auth", "scram-sha-256",
                  "--pwfile", str(self.password_file), "--no-sync", "--encoding", "UTF8")  # fmt: skip

    @property
    def dsn(self) -> str:
        """Return the DSN without the password."""
        return f"host=127.0.0.1 port={self.port} dbname={self.database} user={self.user}"

    @property
    def address(self) -> dict[str, str]:
        """Return the address for a connector."""
        return {"dsn": self.dsn}

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection."""
        return psycopg.connect(self.dsn, password=self.password, autocommit=True)

    def ask(self, statement: str, *values: Any) -> list[Any]:
        """Return the result of a statement."""
        with self.connect() as connection:
            found = connection.execute(statement, values)
            return found.fetchall() if found.description else []

    def left(self) -> list[tuple[int, int]]:
        """Return the numbers of staged chunks and known tokens."""
        return self.ask("SELECT (SELECT count(*) FROM heronry_staged), (SELECT count(*) FROM heronry_checkpoints)")

    def command(self) -> list[str]:
        """Return the command of Debian's newest server."""
        return [
            program_of("postgres"), "-D", str(self._data), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
            "-c", f"unix_socket_directories={self.folder}", "-c", "shared_buffers=16MB",
            "-c", "wal_level=logical",
        ]  # fmt: skip

    def greet(self) -> None:
        """Open a connection."""
        self.connect().close()

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End the main process and its backends as by a power cut."""
        process.send_signal(signal.SIGQUIT)  # "immediate shutdown": no checkpoint, recovery at the next start

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [program_of(program), *arguments], check=True, capture_output=True, timeout=120, cwd=self.folder,
            **self.as_user,
        )  # fmt: skip


def program_of(name: str) -> str:
    """Return the path of one of PostgreSQL's programs."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    found = str(places[-1]) if places else shutil.which(name)
    assert found, f"there is no {name}; run deploy/postgres-setup"
    return found

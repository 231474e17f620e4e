"""A real API server process, with raw HTTP requests and a ``heron`` command logged in to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.support.heron_command import query_json
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGIES = "/api/v1/topologies"
T = TypeVar("T")


class ApiProcess:
    """Process ``python -m heron_apiserver`` on a free port."""

    def __init__(self, process: subprocess.Popen[str], port: int, home: Path, log: Path) -> None:
        self.process = process
        self.port = port
        self.home = home
        self.log = log
        self.url = f"http://127.0.0.1:{port}"

    @property
    def admin(self) -> str:
        """Return the admin's token."""
        return (self.home / "admin-token").read_text().strip()

    @property
    def reader(self) -> str:
        """Return the read-only token."""
        return (self.home / "read-token").read_text().strip()

    def request(self, method: str, path: str, *, token: str | None = None, **more: Any) -> httpx.Response:
        """Send a request with a token: the admin's by default, "" for none."""
        given = self.admin if token is None else token
        headers = {**({"authorization": f"Bearer {given}"} if given else {}), **more.pop("headers", {})}
        return httpx.request(method, self.url + path, headers=headers, timeout=60, trust_env=False, **more)

    def raw(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> int:
        """Return the status of exactly this request line, which httpx would normalise."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            given = {"Authorization": f"Bearer {self.admin}", **(headers or {})}
            connection.putrequest(method, path, skip_host="Host" in given)
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            return connection.getresponse().status

    def audit(self) -> list[dict[str, Any]]:
        """Return the entries of the audit file."""
        return [json.loads(line) for line in (self.home / "audit.jsonl").read_text().splitlines()]

    def files(self) -> set[str]:
        """Return all files of the home except the state, the log and the permanent files."""
        found = (p.relative_to(self.home).as_posix() for p in self.home.rglob("*") if p.is_file())
        always = ("admin-token", "read-token", "tokens.json", "audit.jsonl", "heron_apiserver.lock", "store-id")
        return {name for name in found if not name.startswith(("state/", "requests/")) and name not in always}

    def kill(self) -> None:
        """Kill the process, as a power cut would."""
        self.process.kill()
        self.process.wait(30)


@contextlib.contextmanager
def api_server(home: Path, *arguments: str, ready: bool = True, name: str = "") -> Iterator[ApiProcess]:
    """Run an API server for the block. Unless killed, it must end on SIGTERM with exit code 0.

    ``name`` distinguishes the logs of several servers in one home.
    """
    log = home.with_name(f"{home.name}{name}.log")
    with open(log, "ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "heron_apiserver", "--home", str(home), "--port", "0", *arguments],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"http://.*:(\d+)/\n", line)
        assert match, f"no address but {line!r}: {log.read_text()}"
        server = ApiProcess(process, int(match[1]), home, log)
        if ready:
            wait_until(lambda: server.request("GET", "/readyz").status_code == 200)
        yield server
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, log.read_text()
        if (home / "admin-token").exists():
            assert server.admin not in log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


class Heron:
    """The command with its own home."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *arguments: str, stdin: str = "", code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command, which must end with ``code``."""
        done = subprocess.run(
            [sys.executable, "-m", "heron_cli", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240,
            input=stdin, env={**os.environ, "HERONRY_HOME": str(self.home)}, check=False,
        )  # fmt: skip
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    def data(self, *arguments: str) -> Any:
        """Return the JSON output of a command."""
        return json.loads(self.run(*arguments, "-o", "json").stdout)

    def query(self, *arguments: str) -> Any:
        """Return the JSON output of a command run in this process: for ``status`` and others that tests poll."""
        return query_json(*arguments, environment={"HERONRY_HOME": str(self.home)})

    def data_of_doctor(self) -> Any:
        """Return the findings of the doctor, which ends with 1 if this machine lacks anything."""
        return json.loads(self.run("doctor", "-o", "json", code=None).stdout)

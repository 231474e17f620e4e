"""A real tracker process and plain HTTP requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[2]


class TrackerProcess:
    """Process ``python -m heron_tracker`` on a free port."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def raw(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", timeout: float = 60
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of exactly this request line."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            given = headers or {}
            connection.putrequest(method, path, skip_host="Host" in given)
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            return response.status, {n.lower(): v for n, v in response.getheaders()}, response.read()

    def get(self, path: str, /, **parameters: Any) -> tuple[int, dict[str, Any]]:
        """Return status and envelope."""
        status, _, body = self.raw(f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path)
        return status, json.loads(body)

    def result(self, path: str, /, **parameters: Any) -> Any:
        """Return the result of a successful answer."""
        status, body = self.get(path, **parameters)
        assert status == 200, body
        assert body["status"] == "success"
        return body["result"]


@contextlib.contextmanager
def tracker(*arguments: str, log: Path) -> Iterator[TrackerProcess]:
    """Run a tracker for the block; it must end on SIGTERM with exit code 0. Its home is the folder of its log."""
    home = () if "--home" in arguments else ("--home", str(log.parent))
    with open(log, "ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "heron_tracker", "--port", "0", *home, *arguments],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"http://.*:(\d+)/\n", line)
        assert match, f"no address but {line!r}: {log.read_text()}"
        yield TrackerProcess(process, int(match[1]))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

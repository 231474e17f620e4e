"""Health checks of the cluster: infrequent while healthy, frequent otherwise, without an interpreter."""

from __future__ import annotations

import http.server
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted(ROOT.glob("deploy/*/healthy"))
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
CHECKS = {name: service["healthcheck"] for name, service in SERVICES.items() if "healthcheck" in service}


class Answers(http.server.BaseHTTPRequestHandler):
    """Handler that answers 200 for /ready and 503 otherwise."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ready" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Suppress the log."""


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def look(folder: Path, port: int, path: str) -> tuple[bool, list[str]]:
    """Run one check; return its health and its sleeps (``sleep`` is replaced by a recorder)."""
    naps = folder / "naps"
    naps.write_text("")
    sleep = folder / "sleep"
    sleep.write_text(f'#!/bin/sh\necho "$1" >>{naps}\n')
    sleep.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(folder)}
    command = ["bash", str(ROOT / "deploy/image/healthy"), str(port), path]
    done = subprocess.run(command, env=environment, check=False, timeout=60, capture_output=True)
    return done.returncode == 0, naps.read_text().split()


def test_check_sleeps_long_while_healthy_and_briefly_otherwise(tmp_path: Path, port: int) -> None:
    assert look(tmp_path, port, "/ready") == (True, [])
    assert look(tmp_path, port, "/ready") == (True, ["20"])
    assert look(tmp_path, port, "/broken") == (False, ["20", *["1"] * 10])
    assert look(tmp_path, port, "/broken") == (False, ["1"] * 10)
    assert look(tmp_path, port, "/ready") == (True, [])


def test_closed_port_is_unhealthy(tmp_path: Path) -> None:
    assert look(tmp_path, 1, "/ready") == (False, ["1"] * 10)


@pytest.mark.parametrize("name", CHECKS)
def test_check_ends_before_its_timeout(name: str) -> None:
    seconds = {key: int(CHECKS[name][key].removesuffix("s")) for key in ("interval", "timeout", "start_period")}
    for script in SCRIPTS:
        text = script.read_text()
        rest, looks = (int(re.search(rf"HEALTHY_{word}:-(\d+)", text)[1]) for word in ("REST", "LOOKS"))  # type: ignore[index]
        patience = max(int(found) for found in re.findall(r"read -rt (\d+)", text))
        assert rest + looks * (patience + 1) < seconds["timeout"]
    assert seconds["interval"] == 1, "`docker compose up --wait` waits for the first check"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_check_uses_bash_only(script: Path) -> None:
    code = "\n".join(line for line in script.read_text().splitlines() if not line.startswith("#"))
    assert not re.search(r"python|curl|timeout |grep|head|\$\(|[^|]\|[^|]", code)

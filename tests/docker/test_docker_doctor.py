"""``heron doctor`` for container engines: the real one, and one that never responds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.clusters.compose import run

CLOSED = "no/such-image:here"


def doctor(engine: str, home: Path, **environment: str) -> tuple[int, Mapping[str, tuple[str, str]]]:
    """Return the exit code, and by check its verdict and its findings with the remedy."""
    done = subprocess.run(
        [sys.executable, "-m", "heron_cli", "doctor", engine, "-o", "json"],
        env={**os.environ, "HERONRY_HOME": str(home), **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    rows = json.loads(done.stdout)
    return done.returncode, {one["check"]: (one["verdict"], f"{one['found']} {one['cure']}") for one in rows}


def test_doctor_checks_engine_and_image(tmp_path: Path) -> None:
    image = run("docker", "image", "ls", "--quiet", "debian:bookworm-slim").stdout.strip()
    code, found = doctor("docker", tmp_path, HERONRY_IMAGE=image)
    assert (code, found["Docker"][0], found["image"][0]) == (0, "good", "good"), found
    code, found = doctor("docker", tmp_path, HERONRY_IMAGE=CLOSED)
    assert (code, found["image"][0]) == (1, "bad")
    assert "make image" in found["image"][1]
    code, found = doctor("compose", tmp_path, HERONRY_IMAGE=CLOSED)
    assert (found["Compose"][0], found["buildx"][0], found["image"][0]) == ("good", "good", "note")


def test_doctor_reports_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        code, found = doctor("compose", tmp_path, HERONRY_TRACKER_PORT=port)
    assert (code, found["ports"][0]) == (1, "bad")
    assert port in found["ports"][1]


def test_doctor_reports_an_engine_without_a_swarm(tmp_path: Path) -> None:
    if run("docker", "info", "--format", "{{.Swarm.LocalNodeState}}").stdout.strip() != "inactive":
        pytest.skip("this engine is in a swarm")
    code, found = doctor("swarm", tmp_path, HERONRY_SWARM_STORAGE=str(tmp_path / "nothing"))
    assert code == 1
    cure = "Run docker swarm init --advertise-addr ADDRESS."
    assert found["Docker Swarm"] == ("bad", f"this engine is not in a swarm {cure}")
    assert "No such file" in found["shared storage"][1]


def test_doctor_reports_an_engine_that_never_responds(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        code, found = doctor("swarm", tmp_path, DOCKER_HOST=f"unix://{path}")
    assert code == 1
    assert found["Docker"][0] == "bad"
    assert "`docker info` does not answer within 10 s" in found["Docker"][1]
    assert "image" not in found

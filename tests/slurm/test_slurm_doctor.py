"""``heron doctor slurm`` on a real Slurm: in order, with a node down, without its controller."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.servers.slurm import NODES, SlurmServers


def doctor(servers: SlurmServers, home: Path, code: int) -> Mapping[str, tuple[str, str]]:
    """Return by check its verdict and its findings with the remedy."""
    done = subprocess.run(
        [sys.executable, "-m", "heron_cli", "doctor", "slurm", "-o", "json"],
        env={**servers.environment, "HERONRY_HOME": str(home)}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return {one["check"]: (one["verdict"], f"{one['found']} {one['cure']}") for one in json.loads(done.stdout)}


def all_idle(servers: SlurmServers) -> bool:
    return servers.states() == dict.fromkeys(NODES, "idle")


def test_doctor_reports_nodes_queue_and_controller(servers: SlurmServers, tmp_path: Path) -> None:
    found = doctor(servers, tmp_path, 0)
    assert {verdict for verdict, _ in found.values()} == {"good"}, found
    assert found["nodes"][1].startswith("2 of 2 idle")
    assert "proctrack/cgroup" in found["process tracking"][1]
    first = next(iter(NODES))
    servers.kill_node(first)
    try:
        servers.wait_for("the node is down", lambda: servers.states()[first] == "down*")
        verdict, words = doctor(servers, tmp_path, 0)["nodes"]
        assert verdict == "note"
        assert f"1 of 2 idle; {first} is down*" in words
        assert "start slurmd" in words
    finally:
        servers.start_node(first)
        servers.wait_for("both nodes are idle", lambda: all_idle(servers))
    (tmp_path / "config.yaml").write_text("slurm: {heron.slurm.partition: gpu}\n")
    assert "unknown partition gpu; known: test" in doctor(servers, tmp_path, 1)["nodes"][1]
    servers.kill_controller()
    try:
        found = doctor(servers, tmp_path, 1)
        assert found["Slurm"][0] == "bad"
        assert "controller does not answer" in found["Slurm"][1]
        assert "scontrol ping" in found["Slurm"][1]
        assert "nodes" not in found
    finally:
        servers.start_controller()
        servers.wait_for("both nodes are idle", lambda: all_idle(servers))

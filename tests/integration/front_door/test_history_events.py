"""Events that outlive a topology: backpressure, checkpoints and restores, with their causes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.heron_command import HeronCommand, unique
from tests.support.waiting import wait_until

pytest.importorskip("pyarrow", reason="needs pyarrow: deploy/spark-setup")
pytest.importorskip("duckdb", reason="needs duckdb: pip install 'heronry[history]'")

import psutil

TOPOLOGY = Path(__file__).parent / "pressed_topology.py"


def test_history_reports_pressure_checkpoints_and_restores_after_kill(heron: HeronCommand) -> None:
    name = unique("pressed")
    heron.submit(name, TOPOLOGY, "Pressed", heron__history__enabled="true", heron__history__file__secs="1")

    def state() -> dict[str, Any]:
        return dict(heron.json("status", "local", name)["tasks_state"])

    wait_until(lambda: state()["completed"] >= 1, "a checkpoint is complete")
    psutil.Process(heron.pids(name)["container_1_count_2"]).kill()
    wait_until(lambda: state()["generation"] == 2 and state()["phase"] == "running", "it is restored")
    complete = state()["completed"]
    wait_until(lambda: state()["completed"] > complete, "another checkpoint is complete")
    heron.kill(name)

    def told(kind: str) -> list[dict[str, Any]]:
        return list(heron.json("pipeline", "history", name, "--kind", kind, "--limit", "1000"))

    checkpoints = [json.loads(each["detail"]) for each in told("checkpoint")]
    assert sum(each["what"] == "complete" and each["bytes"] > 0 for each in checkpoints) >= 2
    begun = {each["checkpoint"] for each in checkpoints if each["what"] == "begun"}
    assert {each["checkpoint"] for each in checkpoints if each["what"] != "begun"} <= begun
    restores = [json.loads(each["detail"]) for each in reversed(told("restore"))]
    assert [(each["generation"], each["what"]) for each in restores] == [
        (1, "start"), (1, "runs"), (2, "begun"), (2, "runs"),
    ]  # fmt: skip
    assert "task 2" in restores[2]["cause"]
    pressure = [json.loads(each["detail"]) for each in told("pressure")]
    assert 1 <= len(pressure) <= 3, "however often the spout was paused: what goes on is told as one"
    assert {cause["component"] for each in pressure for cause in each["causes"]} == {"count"}
    assert all(0 < each["paused_ms"] <= each["to_ms"] - each["from_ms"] for each in pressure)
    text = heron.run("pipeline", "history", name).stdout
    assert "events of" in text
    assert "restoring from checkpoint" in text

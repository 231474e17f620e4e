"""History and events that outlive a topology, with true sums although a metrics manager was killed meanwhile."""

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

from heron_control.history.reading import History, Question
from heron_runtime.model.history import LEVEL_MS

TOPOLOGY = Path(__file__).with_name("history_topologies.py")
TUPLES = 3000


def of(history: History, metric: str) -> float:
    times = history.times()
    assert times is not None
    points = history.points(Question(*times, LEVEL_MS["10s"], "slow", metrics=(metric,)))
    return sum(point.total for point in points)


def test_killed_topology_has_history_and_advice(heron: HeronCommand) -> None:
    name = unique("uneven")
    heron.submit(name, TOPOLOGY, "Uneven", heron__history__enabled="true", heron__history__file__secs="1")
    files = heron.home / "history"
    wait_until(lambda: list(files.glob(f"local/*/default/{name}/*/metrics/10s/date=*/c1-*.parquet")), "a first file")
    psutil.Process(heron.pids(name)["metrics_manager-1"]).kill()

    def executed() -> float:
        return sum(v for m, v in heron.totals(name).get("slow", {}).items() if m.startswith("__execute-count"))

    wait_until(lambda: executed() == TUPLES, f"all {TUPLES} tuples are executed")
    heron.kill(name)
    (folder,) = files.glob(f"local/*/default/{name}/*")
    history = History(folder)
    assert of(history, "__execute-count") == TUPLES
    assert of(history, "__exception-count") == TUPLES / 10
    kinds: dict[str, int] = {}
    for event in history.events():
        kinds[event.kind] = kinds.get(event.kind, 0) + event.count
    kinds.pop("pressure", None)  # occurs on a slow machine
    assert kinds == {"plan": 1, "exception": TUPLES // 10}
    (row,) = heron.json("pipeline", "history", name)
    assert (row["topology"], row["tasks"]) == (name, 5)
    advice: dict[str, Any] = heron.json("pipeline", "advise", name)
    words, slow = advice["components"]
    assert (words["component"], words["advised"]) == ("words", 1), "spouts are left as they are"
    assert slow["tasks"] == 4
    assert 1 <= slow["advised"] <= 4, "a millisecond a tuple, at a few hundred a second"
    assert 0 < slow["true_rate"] < 1100
    said = heron.run("pipeline", "advise", name).stdout.strip().splitlines()
    assert said[-1] == (advice["command"] or "nothing to change")
    assert not list(files.rglob("*.part")), "files are whole, or not there"


def test_missing_history_names_the_remedy(heron: HeronCommand) -> None:
    failed = heron.run("pipeline", "advise", "nobody", code=3)
    assert "heron.history.enabled=true" in failed.stderr


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

"""The history of a topology outlives it, and its sums are true although a metrics manager was killed meanwhile."""

from __future__ import annotations

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

TOPOLOGY = Path(__file__).parent / "uneven_topology.py"
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

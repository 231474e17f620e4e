"""API semantics of acks, failures, groupings, ticks and states in real processes.

``semantics_topology.py`` runs once for all tests of this file. The tests compare what its tasks recorded with the
expected outcome. The rules themselves are tested in ``tests/unit/heron_instance``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.front_door import semantics_topology as user
from tests.support.heron_command import HeronCommand, heron_command, json_lines, unique
from tests.support.waiting import wait_until


@dataclass
class Run:
    """Running topology and the records of its tasks."""

    heron: HeronCommand
    name: str
    folder: Path

    def diary(self, component: str) -> list[dict[str, Any]]:
        """Return the records of all tasks of a component, without the first of each."""
        return [line for lines in self.diaries(component).values() for line in lines if "pid" not in line]

    def diaries(self, component: str) -> dict[int, list[dict[str, Any]]]:
        """Return the records of a component by task."""
        files = sorted(self.folder.glob(f"{component}-*.jsonl"))
        return {int(file.stem.rpartition("-")[2]): json_lines(file) for file in files}

    def verdict(self, tup_id: str) -> dict[str, Any]:
        """Return the only verdict of a tuple."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.diary("cases") if tup_id in (line.get("acked"), line.get("failed"))]

        (only,) = wait_until(found, f"a verdict for {tup_id}")
        return only

    def task(self, component: str) -> int:
        """Return the only task of a component."""
        (task,) = (p["task"] for p in self.heron.status(self.name)["processes"] if p["component"] == component)
        return int(task)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Yield the topology, submitted deactivated and activated once every task runs."""
    folder = tmp_path_factory.mktemp("semantics")
    with heron_command(folder) as heron:
        found = Run(heron, unique("Semantics"), folder)
        heron.submit(found.name, user.__file__, "--deploy-deactivated", "Semantics", "--", str(folder))
        heron.reaches(found.name, "paused")
        assert found.diary("cases") == found.diary("clockwork") == [], "no spout has emitted or been activated"
        heron.run("activate", "local", found.name)
        yield found
        heron.kill(found.name)


@pytest.mark.parametrize(
    ("case", "kind", "component", "message"),
    [
        ("fail", "failed", "judge", "it is not to my taste"),
        ("raise", "exception", "raiser", "ZeroDivisionError: the user's own fault"),
        ("anchored", "failed", "doomed", "doomed anchored"),
    ],
)
def test_failure_reports_reason_component_and_task(
    run: Run, case: str, kind: str, component: str, message: str
) -> None:
    verdict = run.verdict(case)
    assert [verdict[key] for key in ("failed", "kind", "component", "message")] == [case, kind, component, message]
    assert verdict["task"] == run.task(component)
    assert verdict["elapsed_ms"] > 0
    if kind == "exception":
        assert "in at_fault" in verdict["traceback"]
        assert "semantics_topology.py" in verdict["traceback"]


def test_unacked_tuple_fails_by_timeout_and_an_unanchored_one_with_no_failure(run: Run) -> None:
    verdict = run.verdict("never")
    assert verdict["kind"] == "timeout"
    assert verdict["elapsed_ms"] >= 4_000
    assert run.verdict("unanchored") == {"acked": "unanchored"}


def test_on_exception_restart_restarts_the_instance(run: Run) -> None:
    verdict = run.verdict("restart")
    assert (verdict["kind"], verdict["component"]) == ("exception", "fragile")
    (lines,) = wait_until(lambda: [found for found in run.diaries("fragile").values() if len(found) == 2], "a restart")
    assert lines[0]["pid"] != lines[1]["pid"]
    run.heron.reaches(run.name, "running")
    processes = run.heron.status(run.name)["processes"]
    restarted = {p["component"]: (p["restarts"], p["last_error"]) for p in processes if p["restarts"]}
    assert restarted.keys() == {"fragile"}, restarted
    assert restarted["fragile"][0] == 1
    assert "MemoryError" in restarted["fragile"][1]
    shown = run.heron.run("status", "local", run.name).stdout
    assert "ZeroDivisionError in" in shown
    assert "MemoryError in" in shown


def test_every_grouping_routes_tuples_as_documented(run: Run) -> None:
    numbers = list(range(user.PER_GROUPING))
    for number in numbers:
        assert "acked" in run.verdict(f"number {number}")
    got = {
        component: {task: [line["number"] for line in lines if "number" in line] for task, lines in diaries.items()}
        for component in ("everyone", "local", "parity", "lowest")
        if (diaries := run.diaries(component))
    }
    assert list(got["everyone"].values()) == [numbers] * 3, "ALL: each task has everything, in order"
    first, last = sorted(got["parity"])
    assert got["parity"] == {first: [n for n in numbers if n % 2], last: [n for n in numbers if n % 2 == 0 and n % 10]}
    assert got["lowest"] == {min(got["lowest"]): numbers, max(got["lowest"]): []}
    containers = {task: lines[0]["container"] for task, lines in run.diaries("local").items()}
    (home,) = (lines[0]["container"] for lines in run.diaries("cases").values())
    assert sorted(containers.values()) == [1, 2]
    assert {containers[task]: sorted(n) for task, n in got["local"].items()} == {home: numbers, 3 - home: []}
    asked = {line["number"]: line["tasks"] for line in run.diary("cases") if "tasks" in line}
    for number in numbers:  # need_task_ids returns exactly the tasks that got a copy
        receivers = sorted(task for tasks in got.values() for task, seen in tasks.items() if number in seen)
        assert asked[number] == receivers


def test_deactivate_stops_emits_and_activate_resumes(run: Run) -> None:
    heron, name = run.heron, run.name

    def drained() -> float:
        return heron.totals(name).get("drain", {}).get("__execute-count/clockwork/default", 0)

    before = wait_until(drained, "it emits")
    heron.run("deactivate", "local", name)
    heron.reaches(name, "paused")
    wait_until(lambda: "deactivated" in run.diary("clockwork")[-1], "the spout is told")
    heron.run("activate", "local", name)
    heron.reaches(name, "running")
    wait_until(lambda: "activated" in run.diary("clockwork")[-1], "the spout is told")
    first, stop, go = run.diary("clockwork")
    assert first == {"activated": 0}
    assert stop["deactivated"] == go["activated"], "not a call while it was paused"
    wait_until(lambda: drained() > max(before, go["activated"] / 2), "it emits again")


def test_ticks_arrive_and_a_signal_logs_the_stacks(run: Run) -> None:
    assert all(line["is_tick"] for line in wait_until(lambda: run.diary("drain"), "ticks"))
    (pid,) = (p["pid"] for p in run.heron.status(run.name)["processes"] if p["component"] == "judge")
    os.kill(pid, signal.SIGUSR1)
    wait_until(lambda: "Thread" in run.heron.run("logs", "local", run.name, "judge").stdout, "a dump in the log")
    assert psutil.pid_exists(pid)

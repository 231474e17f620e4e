"""API semantics of acks, fails, groupings, ticks, hooks and states in real processes.

Two topologies (``semantics_topology.py``) run once for all tests of this file. The tests compare what their tasks
recorded with the expected outcome.
"""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.front_door import semantics_topology as user
from tests.support.heron_command import HeronCommand, heron_command, json_lines, unique
from tests.support.waiting import wait_until, wait_until_equal

FILE = Path(user.__file__)


@dataclass
class Run:
    """Running topologies and the records of their tasks."""

    heron: HeronCommand
    name: str
    at_most_once: str
    folder: Path

    def diary(self, component: str) -> list[dict[str, Any]]:
        """Return the records of all tasks of a component."""
        return [line for lines in self.diaries(component).values() for line in lines]

    def diaries(self, component: str) -> dict[int, list[dict[str, Any]]]:
        """Return the records of a component by task."""
        files = sorted(self.folder.glob(f"{component}-*.jsonl"))
        return {int(file.stem.rpartition("-")[2]): json_lines(file) for file in files}

    def verdicts(self) -> dict[str, list[dict[str, Any]]]:
        """Return verdicts by message id."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in self.diary("cases"):
            if "acked" in line or "failed" in line:
                found[line.get("acked") or line["failed"]].append(line)
        return found

    def failed(self, tup_id: str) -> dict[str, Any]:
        """Return the only verdict of a tuple, which must be a fail."""
        (verdict,) = wait_until(lambda: self.verdicts().get(tup_id), f"a verdict for {tup_id}")
        assert "failed" in verdict, verdict
        assert verdict["elapsed_ms"] > 0
        return verdict

    def acked(self, tup_id: str) -> None:
        """Check that the only verdict of a tuple is an ack."""
        (verdict,) = wait_until(lambda: self.verdicts().get(tup_id), f"a verdict for {tup_id}")
        assert "acked" in verdict, verdict

    def task(self, component: str) -> int:
        """Return the only task of a component."""
        (task,) = (p["task"] for p in self.heron.status(self.name)["processes"] if p["component"] == component)
        return int(task)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Yield both topologies, submitted deactivated and activated once every task runs."""
    folder = tmp_path_factory.mktemp("semantics")
    with heron_command(folder) as heron:
        found = Run(heron, unique("Semantics"), unique("AtMostOnce"), folder)
        names = {found.name: "Semantics", found.at_most_once: "AtMostOnce"}
        started = [
            heron.start_submit(name, FILE, "--deploy-deactivated", cls, "--", str(folder))
            for name, cls in names.items()
        ]
        for process in started:
            heron.finish(process)
        for name in names:
            heron.remember(name)
            heron.reaches(name, "paused")
        # Deployed deactivated: every task runs, and no spout has emitted or been activated.
        assert found.diary("cases") == found.diary("untracked") == found.diary("clockwork") == []
        for name in names:
            heron.run("activate", "local", name)
        yield found
        for name in names:
            heron.kill(name)


def test_explicit_fail_reports_reason_component_and_task(run: Run) -> None:
    verdict = run.failed("fail")
    assert (verdict["kind"], verdict["component"], verdict["task"]) == ("failed", "judge", run.task("judge"))
    assert verdict["message"] == "it is not to my taste"
    assert run.failed("fail with exception")["kind"] == "exception"
    assert run.failed("fail with exception")["message"] == "LookupError: handed over"


def test_exception_fails_the_tuple_with_its_traceback(run: Run) -> None:
    verdict = run.failed("raise")
    assert (verdict["kind"], verdict["component"], verdict["task"]) == ("exception", "raiser", run.task("raiser"))
    assert verdict["message"] == "ZeroDivisionError: the user's own fault"
    assert "in at_fault" in verdict["traceback"]
    assert "semantics_topology.py" in verdict["traceback"]


def test_unacked_tuple_fails_by_timeout(run: Run) -> None:
    verdict = run.failed("never")
    assert verdict["kind"] == "timeout"
    assert verdict["elapsed_ms"] >= 4_000


def test_unanchored_emits_do_not_fail_the_root(run: Run) -> None:
    run.acked("unanchored")


def test_fail_downstream_fails_every_anchored_root(run: Run) -> None:
    for tup_id, case in (("anchored", "anchored"), ("double 1", "double"), ("double 2", "double")):
        verdict = run.failed(tup_id)
        assert (verdict["kind"], verdict["component"]) == ("failed", "doomed")
        assert verdict["message"] == f"doomed {case}"


def test_automatic_acks_and_duplicate_acks(run: Run) -> None:
    run.acked("auto ack")
    run.acked("ack twice")
    run.acked("late anchor")
    (line,) = run.diary("judge")
    assert "acked or failed already" in line["refused"]
    wait_until_equal(
        lambda: run.heron.totals(run.name)["judge"].get("__ignored-settle-count"), 2, "ignored acks and fails"
    )


def test_batch_that_raises_fails_its_open_tuples(run: Run) -> None:
    verdict = run.failed("batch raise")
    assert (verdict["kind"], verdict["component"]) == ("exception", "batcher")
    assert "the whole batch" in verdict["message"]
    assert run.failed("batch fail")["message"] == "one of a batch"
    run.acked("batch fine")


def test_on_exception_restart_restarts_the_instance(run: Run) -> None:
    verdict = run.failed("restart")
    assert (verdict["kind"], verdict["component"]) == ("exception", "fragile")
    assert "start me again" in verdict["traceback"]
    pids = wait_until(lambda: p if len(p := [line["pid"] for line in run.diary("fragile")]) == 2 else None, "a restart")
    assert pids[0] != pids[1]
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
    wait_until(lambda: all(f"number {n}" in run.verdicts() for n in numbers), "verdicts for all numbers")
    for number in numbers:
        run.acked(f"number {number}")
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
    (home,) = (p["container"] for p in run.heron.status(run.name)["processes"] if p["component"] == "cases")
    assert sorted(containers.values()) == [1, 2]
    assert {containers[task]: sorted(n) for task, n in got["local"].items()} == {home: numbers, 3 - home: []}
    asked = {line["number"]: line["tasks"] for line in run.diary("cases") if "tasks" in line}
    for number in numbers:  # need_task_ids returns exactly the tasks that got a copy
        receivers = sorted(task for tasks in got.values() for task, seen in tasks.items() if number in seen)
        assert asked[number] == receivers


@pytest.mark.parametrize("component", ["odd", "pickled"])
def test_unusual_values_keep_type_and_value(run: Run, component: str) -> None:
    """Applies to the serializers ``auto`` and ``pickle``."""
    wanted = [{"type": type(v).__name__, "text": user.repr_of(v)} for v in user.ODD_VALUES]
    wait_until_equal(lambda: run.diary(component), wanted, "odd values")


def test_user_ticks_hooks_and_metrics(run: Run) -> None:
    cases = len(user.CASES) + 1  # "double" comes twice
    calls = {"bolt_execute": cases, "bolt_ack": cases - 1, "bolt_fail": 1, "emit default": 1}
    wait_until_equal(lambda: run.diary("watched")[-1].get("calls"), calls, "calls of the hooks")
    assert run.failed("hooked")["message"] == "the watched one"
    lines = run.diary("watched")
    assert lines[0] == {"sources": {"cases/default": "none"}, "topology": run.name}
    assert [line["ticks"] for line in lines[1:]] == list(range(1, len(lines)))
    assert all(line["is_tick"] for line in lines[1:])
    wanted = {"seen": cases, "by-case/double": 2, "by-case/raise": 1, "level": 7, "mean": 3, "latency": cases}

    def reported() -> dict[str, float]:
        found = run.heron.totals(run.name).get("watched", {})
        return {metric: found.get(metric, -1) for metric in wanted}

    wait_until_equal(reported, wanted, "metrics of the user")
    assert run.heron.totals(run.name)["watched"]["__hook-exception-count"] == 1
    shown = run.heron.json("metrics", "local", run.name, "latency", "--component", "watched")
    assert shown["components"]["watched"]["latency"]["p50"] == pytest.approx(20.0, rel=0.02)


def test_at_most_once_acks_immediately(run: Run) -> None:
    wanted = [line for number in range(20) for line in ({"emitting": number}, {"acked": number})]
    assert wait_until(lambda: d if len(d := run.diary("untracked")) >= len(wanted) else None, "20 acks")
    lines = run.diary("untracked")
    assert sorted(map(str, lines)) == sorted(map(str, wanted)), "no fail reaches the spout, though the bolt raises"
    assert all(lines.index({"emitting": n}) < lines.index({"acked": n}) for n in range(20))


def test_deactivate_stops_emits_and_activate_resumes(run: Run) -> None:
    heron, name = run.heron, run.at_most_once

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


def test_max_spout_pending_limits_tuples_in_flight(heron: HeronCommand, tmp_path: Path) -> None:
    name = unique("Pending")
    heron.submit(name, FILE, "Pending", "--", str(tmp_path))

    def diary() -> list[dict[str, int]]:
        return [line for file in tmp_path.glob("greedy-*.jsonl") for line in json_lines(file)]

    wait_until_equal(lambda: heron.totals(name).get("greedy", {}).get("__pending-acked-count"), 10, "pending")
    assert max(line["most"] for line in diary()) == 10
    (tmp_path / "release").touch()
    wait_until_equal(lambda: diary()[-1], {"done": 10}, "all are acked, and never more than ten were in flight")
    instance = next(p for p in heron.status(name)["processes"] if p["component"] == "holder")
    os.kill(instance["pid"], signal.SIGUSR1)  # prints a dump of its stacks, as the README says
    wait_until(lambda: "Thread" in heron.run("logs", "local", name, "holder").stdout, "a dump in the log")
    assert psutil.pid_exists(instance["pid"])
    assert json.dumps(diary())
    heron.kill(name)

"""A topology submitted by the command line: every number in the tracker equals the true one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.tracker_process import TrackerProcess, tracker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
NUMBERS, FAILED = 300, 30
PLACE = {"cluster": "local", "role": "ada", "environ": "test", "topology": "PacedWords"}
FILE = Path(__file__).parent / "paced_words.py"


def heron(home: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "heron_cli", *arguments], env={**os.environ, "HERONRY_HOME": str(home)},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackerProcess]:
    home = tmp_path_factory.mktemp("home")
    heron(home, "submit", "local/ada/test", str(FILE), "--wait-timeout", "120")
    try:
        with tracker("--home", str(home), log=home / "tracker.log") as process:
            wait_until(lambda: process.raw("/readyz")[0] == 200)
            yield process
            heron(home, "kill", "local/ada/test", "PacedWords")
            wait_until(lambda: process.result("/topologies") == {"local": {}})
            assert process.get("/topologies/info", **PLACE)[0] == 404
    finally:
        subprocess.run(
            [sys.executable, "-m", "heron_cli", "kill", "local/ada/test", "PacedWords"],
            env={**os.environ, "HERONRY_HOME": str(home)}, capture_output=True, timeout=120, check=False,
        )  # fmt: skip


def total(rest: TrackerProcess, component: str, name: str) -> float:
    """Return the total over all streams and instances since the start; 0 while the master does not report it."""
    status, body = rest.get("/topologies/metrics", **PLACE, component=component, metricname=name)
    if status != 200:
        return 0
    return sum(v for by_instance in body["result"]["metrics"].values() for v in by_instance.values())


def test_totals_are_exact(rest: TrackerProcess) -> None:
    def settled() -> bool:
        return total(rest, "numbers", "__ack-count") + total(rest, "numbers", "__fail-count") >= NUMBERS

    wait_until(settled, 120)
    assert total(rest, "numbers", "__emit-count") == NUMBERS
    assert total(rest, "numbers", "__ack-count") == NUMBERS - FAILED
    assert total(rest, "numbers", "__fail-count") == FAILED
    wait_until(lambda: total(rest, "sieve", "__execute-count") == NUMBERS)
    row = rest.result("/api/v1/topologies", interval=600)["topologies"][0]
    assert (row["flow"]["acked"], row["flow"]["failed"], row["tasks"]) == (NUMBERS - FAILED, FAILED, 3)
    assert row["flow"]["complete_latency"]["count"] == NUMBERS - FAILED


def test_overview_lists_the_topology_and_its_processes(rest: TrackerProcess) -> None:
    shown: dict[str, Any] = wait_until(lambda: _running(rest))
    processes = {p["name"]: p for c in shown["container_list"] for p in c["processes"]}
    assert {"heron_scheduler", "topology_master-0", "stream_manager-1", "container_1_numbers_1"} <= set(processes)
    assert processes["container_1_numbers_1"]["memory"] > 1_000_000
    assert [n["name"] for n in shown["graph"]["nodes"]] == ["numbers", "sieve"]
    assert rest.result("/topologies/runtimestate", **PLACE)["stmgrs"] == {"stmgr-1": {"is_registered": True}}
    assert rest.result("/topologies/config", **PLACE)["user.password"] == "********"


def _running(rest: TrackerProcess) -> Any:
    shown = rest.result("/api/v1/topology", **PLACE)
    return shown if shown["state"] == "running" and shown["master_answers"] else None


def test_pid_stacks_and_log_of_an_instance(rest: TrackerProcess) -> None:
    wait_until(lambda: _running(rest))
    instance = "container_1_numbers_1"
    pid = rest.result("/topologies/pid", **PLACE, instance=instance)["pid"]
    assert b"container_1_numbers_1" in Path(f"/proc/{pid}/cmdline").read_bytes()

    def stacks() -> str | None:
        status, body = rest.get("/topologies/jstack", **PLACE, instance=instance)
        return body["result"]["stdout"] if status == 200 else None

    text = wait_until(stacks)
    assert "most recent call first" in text
    assert "paced_words.py" in text or "heron_instance" in text
    log = rest.result("/topologies/container/filedata", **PLACE, container=1, path=f"{instance}.log", offset=-20_000,
                      length=20_000)  # fmt: skip
    assert "most recent call first" in log["data"]
    assert wait_until(lambda: _running(rest))  # it survived


def test_prometheus_targets_answer(rest: TrackerProcess) -> None:
    targets = wait_until(lambda: json.loads(rest.raw("/prometheus/targets")[2]))
    url = f"http://{targets[-1]['targets'][0]}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert b"heron_" in answer.read()

"""The ``heron`` command against a cluster of real processes, from submit to kill, and its error messages."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.heron_command import query_json
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import time
from heronry import BasicBolt, Grouping, Spout, Topology

class Numbers(Spout):
    outputs = ["number"]
    def initialize(self, config, context):
        {initialize}
        self.number = 0
    def next_tuple(self):
        time.sleep(0.001)
        self.number += 1
        self.emit([self.number])

class Sink(BasicBolt):
    def process(self, tup):
        self.log.info("got %s", tup["number"])

class Count(Topology):
    {name}
    numbers = Numbers.spec()
    sink = Sink.spec(par=2, inputs={{numbers: Grouping.SHUFFLE}})
"""
QUICK = ("--config-property", "heron.metrics.interval.secs=0.5", "--config-property", "heron.stop.grace.secs=2")
Heron = Callable[..., "subprocess.CompletedProcess[str]"]


class Cluster:
    """A cluster in its own home folder, and the command that runs against it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.folder = folder
        self.environment = {**os.environ, "HERONRY_HOME": str(self.home), "NO_COLOR": "1"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "heron_cli", *arguments],
            cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def heron(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=150)
        assert process.returncode == code, f"heron {arguments}: {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.heron(*arguments, "-o", "json").stdout)

    def status(self, topology: str) -> dict[str, Any]:
        return dict(query_json("status", "local", topology, environment=self.environment))

    def program(self, name: str = "", initialize: str = "pass") -> str:
        file = self.folder / f"count{name}.py"
        file.write_text(PROGRAM.format(initialize=initialize, name=f'name = "{name}"' if name else ""))
        return str(file)

    def processes(self) -> list[psutil.Process]:
        """Return the living processes that use this home."""
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.cwd().startswith(str(self.home)) and process.status() != psutil.STATUS_ZOMBIE
            except psutil.Error:
                continue
            if ours:
                found.append(process)
        return found

    def reaches(self, topology: str, state: str) -> None:
        """Wait until a topology is in a state."""
        wait_until(lambda: self.status(topology)["state"] == state, f"{topology} is {state}")

    def pid(self, topology: str, process: str) -> int:
        found = [p for p in self.status(topology)["processes"] if p["name"] == process]
        return int(found[0]["pid"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    for process in made.processes():
        process.kill()


def nothing_is_left(cluster: Cluster, runtime: str) -> None:
    wait_until(lambda: cluster.processes() == [], "every process ends")
    assert not Path(runtime).exists()
    assert list((cluster.home / "topologies").glob("*")) == []
    assert list((cluster.home / "state" / "sessions").iterdir()) == []
    assert cluster.json("list", "local") == []


def launch_of(cluster: Cluster, name: str) -> dict[str, Any]:
    (place,) = (cluster.home / "topologies" / "local").glob(f"*/default/{name}")
    for name in ("secret", "key.pem"):
        assert stat.S_IMODE((place / name).stat().st_mode) == 0o400
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    return dict(json.loads((place / "launch.json").read_text()))


@pytest.mark.core
def test_topology_lifecycle_from_submit_to_kill(cluster: Cluster) -> None:
    """Submit, inspect, deactivate, activate, restart, replace and kill, with two topologies at once."""
    first = cluster.start("submit", "local", cluster.program(), *QUICK)
    second = cluster.start("submit", "local", cluster.program("Other"), *QUICK)
    for process in (first, second):
        _, err = process.communicate(timeout=150)
        assert process.returncode == 0, err
    assert [t["topology"] for t in cluster.json("list", "local")] == ["Count", "Other"]
    cluster.reaches("Count", "running")
    cluster.reaches("Other", "running")
    found = cluster.json("status", "local", "Count")
    assert {p["kind"] for p in found["processes"]} == {
        "heron_scheduler", "heron_container", "topology_master", "metrics_manager", "stream_manager", "heron_instance",
    }  # fmt: skip
    wait_until(lambda: executed(cluster) > 100, "tuples flow")
    assert "got" in cluster.heron("logs", "local", "Count", "sink", "-n", "5").stdout

    assert "exists already" in cluster.heron("submit", "local", cluster.program(), *QUICK, code=4).stderr
    cluster.heron("deactivate", "local", "Count")
    cluster.reaches("Count", "paused")
    cluster.heron("activate", "local", "Count")
    cluster.reaches("Count", "running")
    before = cluster.pid("Count", "heron_container-1")
    cluster.heron("restart", "local", "Count", "1")
    assert cluster.pid("Count", "heron_container-1") != before

    old = launch_of(cluster, "Count")
    cluster.heron("submit", "local", cluster.program(), "--replace", *QUICK)
    new = launch_of(cluster, "Count")
    assert old["topology_id"] != new["topology_id"]
    assert not Path(old["runtime_dir"]).exists()

    cluster.heron("kill", "local", "Other")
    cluster.heron("kill", "local", "Count")
    nothing_is_left(cluster, new["runtime_dir"])
    assert "unknown topology 'Count'" in cluster.heron("kill", "local", "Count", code=3).stderr


def executed(cluster: Cluster) -> float:
    """Return how many tuples the sink has executed."""
    found = query_json("metrics", "local", "Count", environment=cluster.environment)
    metrics = found["components"].get("sink", {})
    return float(sum(m["total"] for name, m in metrics.items() if name.startswith("__execute-count")))


def test_submit_rolls_back_a_topology_that_cannot_start(cluster: Cluster) -> None:
    program = cluster.program(initialize="raise RuntimeError('no such database')")
    failed = cluster.heron("submit", "local", program, *QUICK, code=1)
    assert "container_1_numbers_1" in failed.stderr
    assert "no such database" in failed.stderr
    assert "Its logs are kept in" in failed.stderr
    assert failed.stdout == ""
    assert cluster.json("list", "local") == []
    wait_until(lambda: cluster.processes() == [], "every process ends")
    kept = list((cluster.home / "topologies").glob("local/*/default/Count/*"))
    assert [path.name for path in kept] == ["log-files"]
    cluster.heron("submit", "local", cluster.program(), *QUICK)  # the name is free, and leftover files do no harm
    cluster.heron("kill", "local", "Count")


def test_ctrl_c_during_submit_leaves_the_topology_starting_and_says_so(cluster: Cluster) -> None:
    process = cluster.start("submit", "local", cluster.program(initialize="time.sleep(600)"), *QUICK)
    wait_until(lambda: len(cluster.processes()) > 5, "its processes start")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "continues to start" in err
    assert "Traceback" not in err
    assert out == ""
    assert [t["state"] for t in cluster.json("list", "local")] == ["starting"]
    launch = launch_of(cluster, "Count")
    cluster.heron("kill", "local", "Count")
    nothing_is_left(cluster, launch["runtime_dir"])


def test_kill_works_when_all_processes_are_dead_or_stopped(cluster: Cluster) -> None:
    cluster.heron("submit", "local", cluster.program(), "--no-wait", *QUICK)
    launch = launch_of(cluster, "Count")
    cluster.reaches("Count", "running")
    os.kill(cluster.pid("Count", "container_1_sink_2"), signal.SIGSTOP)
    os.kill(cluster.pid("Count", "heron_container-1"), signal.SIGSTOP)
    os.kill(cluster.pid("Count", "heron_scheduler"), signal.SIGKILL)
    cluster.heron("kill", "local", "Count")
    nothing_is_left(cluster, launch["runtime_dir"])


def test_logs_follow_prints_new_lines_and_ends_on_ctrl_c(cluster: Cluster) -> None:
    cluster.heron("submit", "local", cluster.program(), *QUICK)
    process = cluster.start("logs", "local", "Count", "sink", "--follow", "-n", "0")
    assert process.stdout is not None
    assert "got" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    cluster.heron("kill", "local", "Count")


def test_submit_rejects_each_fault_before_writing_anything(cluster: Cluster, tmp_path: Path) -> None:
    """Each fault has its own error and leaves no files behind."""
    program = cluster.program()
    assert "did you mean 'Count'" in cluster.heron("submit", "local", program, "Cuont", code=3).stderr
    broken = tmp_path / "broken.py"
    broken.write_text("class A(\n")
    assert "broken.py" in cluster.heron("submit", "local", str(broken), code=7).stderr
    raising = tmp_path / "raising.py"
    raising.write_text("print('hello from the file')\nraise KeyError('missing')\n")
    said = cluster.heron("submit", "local", str(raising), code=7).stderr
    assert "missing" in said
    assert "hello from the file" in said
    assert "does not exist" in cluster.heron("submit", "local", str(tmp_path / "none.py"), code=3).stderr
    archive = tmp_path / "broken.zip"
    archive.write_bytes(b"PK\x03\x04 this is no archive")
    assert "broken.zip" in cluster.heron("submit", "local", str(archive), code=7).stderr
    text = tmp_path / "notes.txt"
    text.write_text("")
    assert "not a package" in cluster.heron("submit", "local", str(text), code=7).stderr
    assert cluster.heron("submit", "local", program, "--name", "no/slash", code=2).stdout == ""
    plan = json.loads(cluster.heron("submit", "local", program, "--dry-run", "--dry-run-format", "json").stdout)
    assert plan["tasks"] == 3
    assert cluster.json("list", "local") == []
    assert not (cluster.home / "topologies").exists()
    assert list(cluster.home.glob(".submit-*")) == []


def test_kill_ends_processes_when_the_store_rejects_writes(cluster: Cluster) -> None:
    cluster.heron("submit", "local", cluster.program(), *QUICK)
    launch = launch_of(cluster, "Count")
    holder = sqlite3.connect(cluster.home / "state" / "state.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")  # blocks all other writers, as a full disk does
    said = cluster.heron("kill", "local", "Count", code=6).stderr
    assert "has held the store's lock" in said
    assert cluster.processes() == []
    assert not Path(launch["runtime_dir"]).exists()
    holder.execute("ROLLBACK")
    holder.close()
    cluster.heron("kill", "local", "Count")
    nothing_is_left(cluster, launch["runtime_dir"])

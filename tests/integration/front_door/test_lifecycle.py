"""Packages of every kind, submitted at once and running side by side, and the commands of a user.

Three topologies run for the first tests: a folder, a .zip and a .tar.gz, each with a requirements.txt that asks for a
wheel in the package itself. These tests run in order. What every scheduler promises is tested by its contract.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from heronry.version import VERSION
from tests.support.heron_command import HeronCommand, heron_command, titles, unique
from tests.support.waiting import wait_until

WHEEL = "tinybird-1.0-py3-none-any.whl"
FLIGHT = """
import time
from pathlib import Path

import helper
import tinybird  # from requirements.txt
from heronry import BasicBolt, Grouping, Spout, Topology


class Birds(Spout):
    outputs = ["bird"]

    def initialize(self, config, context):
        self.birds = Path(__file__).with_name("birds.txt").read_text().split()

    def next_tuple(self):
        time.sleep(0.05)
        for bird in self.birds:
            self.emit([bird])


class Listener(BasicBolt):
    def process(self, tup):
        self.log.info("%s", tinybird.cry(helper.loud(tup["bird"])))


class Flight(Topology):
    config = {"topology.stmgrs": 2}
    birds = Birds.spec()
    listener = Listener.spec(inputs={birds: Grouping.SHUFFLE})
"""

SLOW_START = """
import time
from heronry import Spout, Topology


class Numbers(Spout):
    outputs = ["number"]

    def initialize(self, config, context):
        time.sleep({seconds})

    def next_tuple(self):
        time.sleep(0.01)


class Count(Topology):
    numbers = Numbers.spec(par=2)
"""


def make_wheel(file: Path) -> None:
    """Write a minimal wheel without downloading anything."""
    info = "tinybird-1.0.dist-info"
    files = {
        "tinybird.py": "def cry(bird):\n    return f'{bird} cries'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinybird\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(file, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)


def make_packages(folder: Path) -> list[Path]:
    """Write the same package as a folder, a .zip and a .tar.gz."""
    package = folder / "flight-package"
    package.mkdir()
    (package / "flight.py").write_text(FLIGHT)
    (package / "helper.py").write_text("def loud(text):\n    return text.upper()\n")
    (package / "birds.txt").write_text("heron stork\n")
    (package / "requirements.txt").write_text(f"./{WHEEL}\n")
    make_wheel(package / WHEEL)
    zipped = folder / "flight.zip"
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(package.iterdir()):
            archive.write(file, file.name)
    tarred = folder / "flight.tar.gz"  # contains the folder, as `tar czf` makes it
    subprocess.run(["tar", "czf", str(tarred), "-C", str(folder), package.name], check=True)
    return [package, zipped, tarred]


@dataclass
class Three:
    """Running topologies."""

    heron: HeronCommand
    names: list[str]
    packages: list[Path]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """Yield all three topologies, submitted at once; one has a name of the maximum length."""
    folder = tmp_path_factory.mktemp("three")
    packages = make_packages(folder)
    names = [unique("Folder"), unique("Zip"), unique("Tar-" + "x" * 117)]
    assert len(names[2]) == 128
    with heron_command(folder) as heron:
        started = [heron.start_submit(n, p, "flight:Flight") for n, p in zip(names, packages, strict=True)]
        for name, process in zip(names, started, strict=True):
            heron.finish(process)
            heron.remember(name)
        yield Three(heron, names, packages)


def test_packages_run_side_by_side_with_their_requirements(three: Three) -> None:
    for name in three.names:
        three.heron.reaches(name, "running")
        heard = wait_until(lambda n=name: three.heron.run("logs", "local", n, "listener").stdout, "birds are heard")  # type: ignore[misc]
        assert "HERON cries" in heard
    listed = three.heron.json("list", "local")
    assert [t["topology"] for t in listed] == sorted(three.names)
    for row in listed:
        assert set(row) == {
            "cluster", "role", "environ", "topology", "state", "containers", "tasks", "submitted_at",
        }  # fmt: skip
        assert (row["cluster"], row["environ"], row["state"]) == ("local", "default", "running")
        assert (row["containers"], row["tasks"]) == (2, 2)
        assert row["submitted_at"].endswith("+00:00")
    assert len(list((three.heron.home / "cache").iterdir())) == 1, "one digest, one installation"


def test_logs_follow_until_ctrl_c(three: Three) -> None:
    heron, name = three.heron, three.names[1]
    process = heron.start("logs", "local", name, "listener", "--follow", "-n", "0")
    assert process.stdout is not None
    for _ in range(3):
        assert "cries" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert "Traceback" not in heron.finish(process, 130).stderr
    shown = heron.run("logs", "local", name).stdout
    assert "heron_scheduler" in shown
    assert "container_1_birds_1" in shown
    for target in ("stream_manager-1", "topology_master-0", "heron_container-2", "heron_scheduler"):
        heron.run("logs", "local", name, target, "-n", "3")
    assert "did you mean 'listener'" in heron.run("logs", "local", name, "listner", code=3).stderr


def test_replace_ends_every_process_of_the_old_submission(three: Three) -> None:
    heron, name = three.heron, three.names[2]
    before = heron.pids(name)
    heron.submit(name, three.packages[2], "--replace", "flight:Flight")
    old, new = heron.submitted[name]
    assert old["topology_id"] != new["topology_id"]
    assert not Path(old["runtime_dir"]).exists()
    assert not set(before.values()) & set(heron.pids(name).values())


def test_dry_run_shows_the_plan_and_changes_nothing(three: Three) -> None:
    heron, package = three.heron, str(three.packages[0])
    before = heron.json("list", "local")
    arguments = ("submit", "local", package, "flight:Flight", "--dry-run", "--name", "Dry")
    plan = json.loads(heron.run(*arguments, "--dry-run-format", "json").stdout)
    assert plan["tasks"] == 2
    assert "Container 2" in heron.run(*arguments).stdout
    assert heron.nodes("Dry") == []
    assert [row["topology"] for row in heron.json("list", "local")] == [row["topology"] for row in before]
    assert list(heron.home.glob(".submit-*")) == []


def test_version_doctor_and_completion(three: Three) -> None:
    heron = three.heron
    assert heron.json("version")["heronry"] == VERSION
    findings = {finding["check"]: finding for finding in heron.json("doctor")}
    assert {"Python", "packages", "home", "disk", "state store", "runtime folder", "network"} <= set(findings)
    assert "stale topology" not in findings
    for variables, told in (
        ({"_HERON_COMPLETE": "source_bash"}, "complete -o default -F"),
        ({"_HERON_COMPLETE": "source_zsh"}, "#compdef heron"),
        ({"_HERON_COMPLETE": "complete_bash", "COMP_WORDS": "heron sub", "COMP_CWORD": "1"}, "submit"),
    ):
        environment = {**heron.environment, **variables}
        done = subprocess.run(
            heron.command, cwd=heron.cwd, env=environment, capture_output=True, text=True, check=False
        )
        assert told in done.stdout, done


def test_kill_ends_a_topology_and_a_second_kill_fails(three: Three) -> None:
    heron = three.heron
    killing = [heron.start("kill", "local", name) for name in three.names[:2]]
    for process in killing:
        heron.finish(process)
    assert [row["topology"] for row in heron.json("list", "local")] == [three.names[2]]
    for name in three.names[:2]:
        heron.nothing_is_left(name)
        assert "unknown topology" in heron.run("kill", "local", name, code=3).stderr
    heron.kill(three.names[2])
    assert heron.json("list", "local") == []


def program(folder: Path, seconds: int = 0) -> Path:
    """Write a topology whose tasks take this long to start."""
    file = folder / "slow_start.py"
    file.write_text(SLOW_START.format(seconds=seconds))
    return file


def test_ctrl_c_during_submit_leaves_the_topology_starting_and_says_so(heron: HeronCommand, tmp_path: Path) -> None:
    name = unique("Interrupted")
    process = heron.start_submit(name, program(tmp_path, 600))
    wait_until(lambda: len(titles(name)) > 5, "its processes start")
    process.send_signal(signal.SIGINT)
    done = heron.finish(process, 130)
    assert "continues to start" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    heron.remember(name)
    assert heron.status(name)["state"] == "starting"
    heron.kill(name)


def test_kill_works_when_all_processes_are_dead_or_stopped(heron: HeronCommand, tmp_path: Path) -> None:
    name = unique("Stopped")
    heron.submit(name, program(tmp_path))
    pids = heron.pids(name)
    os.kill(pids["container_1_numbers_2"], signal.SIGSTOP)
    os.kill(pids["heron_container-1"], signal.SIGSTOP)
    os.kill(pids["heron_scheduler"], signal.SIGKILL)
    heron.kill(name)


def test_kill_ends_processes_when_the_store_rejects_writes(heron: HeronCommand, tmp_path: Path) -> None:
    name = unique("Locked")
    heron.submit(name, program(tmp_path))
    holder = sqlite3.connect(heron.home / "state" / "state.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")  # blocks all other writers, as a full disk does
    assert "has held the store's lock" in heron.run("kill", "local", name, code=6).stderr
    assert titles(name) == []
    assert not Path(heron.submitted[name][0]["runtime_dir"]).exists()
    holder.execute("ROLLBACK")
    holder.close()
    heron.kill(name)
    assert list((heron.home / "state" / "sessions").iterdir()) == []

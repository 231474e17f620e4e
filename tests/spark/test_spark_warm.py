"""``heron spark``: consecutive jobs on a warm Spark, their leftovers, and the end of the Spark process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from data_pipeline.core.warm import Places
from data_pipeline.shell import warm
from heron_control.schedulers.identity import HostLock
from tests.support.servers.spark import ROOT, run_heron
from tests.support.waiting import wait_until

PROGRAM = """
import os, sys, time
from pathlib import Path
from heronry.streamlet import Builder, sequence, to_files

def seen(number):
    time.sleep({seconds})
    print("seen", number)
    told = {{"said": sys.argv[1], "name": os.environ.get("NAME", ""), "file": Path("note").read_text()}}
    return {{"n": number * {times}, **told}}

numbers = Builder("numbers")
numbers.source(sequence({count})).map(seen, name="seen").sink(to_files("/nowhere"), name="out")
"""


class World:
    """Home with a warm Spark, and programs that run on it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.out = place / "out"
        self.file = place / "numbers_program.py"

    def write(self, times: int, seconds: float = 0, count: int = 8) -> None:
        self.file.write_text(PROGRAM.format(times=times, seconds=seconds, count=count))

    def heron(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return run_heron(self.home, *arguments)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.heron("spark", "status", "-o", "json").stdout))

    def command(self, argument: str) -> list[str]:
        given = [
            "submit",
            "spark",
            str(self.file),
            "numbers",
            "--output-path",
            str(self.out),
            "--replace",
            "--",
            argument,
        ]
        return [sys.executable, "-m", "heron_cli", *given]

    def start_job(self, argument: str, name: str = "") -> subprocess.Popen[bytes]:
        environment = {**os.environ, "HERONRY_HOME": str(self.home), "PYTHONPATH": str(ROOT), "NAME": name}
        return subprocess.Popen(
            self.command(argument), env=environment, cwd=self.place, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def records(self, argument: str, name: str = "") -> list[dict[str, Any]]:
        """Run a job on the warm Spark; return its records, sorted by number."""
        job = self.start_job(argument, name)
        _, said = job.communicate(timeout=600)
        assert job.returncode == 0, said.decode()
        assert b"on the warm Spark" in said, said.decode()
        assert b"seen 7" in said, "what the program prints is shown"
        found = [json.loads(x) for part in (self.out / "out").glob("*.json") for x in part.read_text().splitlines()]
        return sorted(found, key=lambda record: record["n"])


@contextlib.contextmanager
def kept_warm(place: Path) -> Iterator[World]:
    found = World(place)
    (place / "note").write_text("here")
    started = found.heron("spark", "start", "--conf", "spark.driver.memory=800m")
    assert started.returncode == 0, started.stderr.decode()
    try:
        yield found
    finally:
        found.heron("spark", "stop")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with kept_warm(tmp_path_factory.mktemp("warm")) as found:
        yield found


def test_jobs_use_the_current_code_and_environment(world: World) -> None:
    """Code, arguments, environment and folder are the command's, although the workers are older."""
    assert world.status()["state"] == "idle"
    for times, argument, name in ((1, "a", ""), (1, "a", ""), (2, "a", ""), (2, "b", ""), (2, "b", "x")):
        world.write(times)
        assert world.records(argument, name) == [
            {"n": n * times, "said": argument, "name": name, "file": "here"} for n in range(8)
        ]
    assert world.status()["state"] == "idle"


def test_second_start_is_rejected_and_the_record_is_private(world: World) -> None:
    again = world.heron("spark", "start")
    assert (again.returncode, b"already running" in again.stderr) == (4, True)
    assert Places(world.home / "spark").record.stat().st_mode & 0o777 == 0o600
    keeper = psutil.Process(world.status()["pid"])
    listening = [
        c.laddr.ip for p in keeper.children(recursive=True) for c in p.net_connections() if c.status == "LISTEN"
    ]
    assert listening
    assert all(ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1") for ip in listening)


def test_killed_job_leaves_nothing_in_the_warm_spark(world: World) -> None:
    world.write(1, seconds=30, count=100)
    job = world.start_job("a")
    try:
        wait_until(lambda: world.status()["state"] == "busy", "the job runs")
        wait_until(lambda: list(world.place.glob(".out.*")), "it writes")
        family = psutil.Process(job.pid).children(recursive=True)
    finally:
        for process in [*family, psutil.Process(job.pid)]:
            process.send_signal(signal.SIGKILL)
        job.communicate()
    wait_until(lambda: not Places(world.home / "spark").unsettled.exists(), "the keeper has tidied up")
    world.write(3)
    assert world.records("c")[-1]["n"] == 21
    assert not list(world.place.glob(".out.*"))


def test_job_continues_after_the_workers_of_others_were_ended(spark: SparkSession) -> None:
    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    for _ in range(2):
        assert spark.range(1_000).mapInArrow(same, "id long").count() == 1_000
        before = daemons()
        assert before
        warm.end_workers(spark)
        wait_until(lambda gone=before: not any(process.is_running() for process in gone))  # type: ignore[misc]


def daemons() -> list[psutil.Process]:
    """Return the processes of this session that fork Python workers."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # ended, or a zombie
            command, parent = process.cmdline(), process.parent()
            is_daemon = "pyspark.daemon" in command and process.name() != "java"
            if is_daemon and parent is not None and parent.name() == "java":
                found.append(process)
    return found


def test_failed_job_names_the_log_of_the_warm_spark(world: World) -> None:
    world.file.write_text(PROGRAM.format(times=1, seconds=0, count=2).replace("time.sleep(0)", "os._exit(3)"))
    job = world.start_job("dies")
    _, said = job.communicate(timeout=600)
    assert job.returncode == 1, said.decode()
    (named,) = [line.partition("Spark's log is ")[2] for line in said.decode().splitlines() if "Spark's log is" in line]
    assert Path(named).stat().st_size > 0


def test_job_with_other_settings_does_not_use_the_warm_spark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERONRY_HOME", str(world.home))

    def said(master: str = "local[*]", conf: dict[str, str] | None = None) -> str:
        out = io.StringIO()
        with warm.taken(master, conf or {}, (), out) as spark:
            assert spark is None
        return out.getvalue()

    assert "not at local[1]" in said("local[1]")
    assert "spark.driver.memory=900m" in said(conf={"spark.driver.memory": "900m"})
    lock = HostLock(warm.places().job)
    assert lock.acquire("test")
    try:
        assert "another job" in said(conf={"spark.driver.memory": "800m", "spark.sql.shuffle.partitions": "3"})
        assert world.status()["state"] == "busy"
    finally:
        lock.release()


@pytest.mark.parametrize("way", ["stop", "SIGKILL"])
def test_stop_or_kill_leaves_no_process(way: str, tmp_path: Path) -> None:
    with kept_warm(tmp_path) as world:
        family = [psutil.Process(world.status()["pid"])]
        family += family[0].children(recursive=True)
        if way == "stop":
            assert world.heron("spark", "stop").returncode == 0
        else:
            family[0].kill()
        wait_until(
            lambda: not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], "all have ended"
        )
        assert world.status() == {"state": "none"}
        assert world.heron("spark", "stop").returncode == 0


def test_failed_start_is_explained(tmp_path: Path) -> None:
    started = run_heron(tmp_path / "home", "spark", "start", "--conf", "spark.driver.memory=nonsense")
    assert started.returncode == 1
    assert b"did not start" in started.stderr
    refused = run_heron(tmp_path / "home", "spark", "start", "--master", "spark://127.0.0.1:7077")
    assert refused.returncode == 2

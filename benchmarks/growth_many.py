"""Topologies beside each other on one api server and one ZooKeeper server: what each of them costs both, doing nothing.

    .venv/bin/python -m benchmarks.growth many [--topologies 10,25,50] [--seconds 20]

Each has one container beside the master's, a spout and a bolt. They are submitted through the api server, one after the
other, and stay. *Requests* are what ZooKeeper was sent (its ``packets_received``), pings of sessions among them;
*writes* are those that change something. *MB each* is the memory of a topology's processes (PSS). The api server runs
containers as processes of this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cluster import ROOT
from benchmarks.zookeeper_server import ZookeeperServer

PLACE = "many/bench/growth"
START_SECONDS = 60.0
LEAST_FREE_MB = 2_000  # the machine has others on it
HEADS = (
    "topologies", "znodes", "watches", "sessions", "requests/s", "writes/s", "ZooKeeper ms/s", "api ms/s",
    "api MB", "topologies ms/s", "MB each", "s to submit", "load",
)  # fmt: skip


@dataclass
class Many:
    """The api server, its store, and a user's home that is logged in."""

    server: ZookeeperServer
    api: psutil.Process
    home: Path

    def heron(self, *arguments: str) -> str:
        """One command; its standard output. Raises CalledProcessError."""
        done = subprocess.run(
            [sys.executable, "-m", "heron_cli", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
            env={**os.environ, "HERONRY_HOME": str(self.home / "user")},
        )  # fmt: skip
        return done.stdout

    def submit(self, name: str) -> None:
        """An idle topology. Raises CalledProcessError."""
        given = {"name": name, "case": "idle", "tasks": 1, "bolt": "process", "branches": 1, "spouts": 1}
        config = {"topology.stmgrs": 1, "user.board": "", "user.folder": str(self.home)}
        self.heron(
            "submit", PLACE, "benchmarks/topologies.py", "benchmark", "--", json.dumps({**given, "config": config})
        )


@dataclass(frozen=True)
class Moment:
    """What was used until now."""

    at: float
    store: dict[str, float]
    store_cpu: float
    api_cpu: float
    topologies_cpu: dict[int, float]


def main() -> int:
    """Measure at each number of topologies."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth many", description=__doc__)
    parser.add_argument("--topologies", default="10,25,50", help="numbers of topologies, ascending")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", type=Path, help="write every row there")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("\n| " + " | ".join(HEADS) + " |\n|" + " --- |" * len(HEADS), flush=True)
    with many() as world:
        began, names = time.monotonic(), list[str]()
        for number in (int(part) for part in options.topologies.split(",")):
            while len(names) < number:
                if psutil.virtual_memory().available < LEAST_FREE_MB * 1_000_000:
                    print(f"{len(names)} topologies leave less than {LEAST_FREE_MB} MB free; no more", file=sys.stderr)
                    return 1
                names.append(f"Many{os.getpid()}n{len(names) + 1}")
                world.submit(names[-1])
            submitting = time.monotonic() - began
            rows.append(measured(world, names, options.seconds, submitting))
            print(row(rows[-1]), flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
            began = time.monotonic()
    return 0


def measured(world: Many, names: list[str], seconds: float, submitting: float) -> dict[str, Any]:
    """What they cost for some seconds."""
    time.sleep(5.0)
    first = moment(world, names)
    time.sleep(seconds)
    last = moment(world, names)
    length = last.at - first.at

    def each_second(name: str) -> float:
        return (last.store.get(name, 0.0) - first.store.get(name, 0.0)) / length

    topologies = sum(cpu - first.topologies_cpu.get(pid, 0.0) for pid, cpu in last.topologies_cpu.items())
    return {
        "topologies": len(names),
        "processes": len(last.topologies_cpu),
        "znodes": last.store["znode_count"], "watches": last.store["watch_count"],
        "sessions": last.store["global_sessions"], "requests": each_second("packets_received"),
        "writes": each_second("cnt_updatelatency"),
        "store_cores": (last.store_cpu - first.store_cpu) / length,
        "api_cores": (last.api_cpu - first.api_cpu) / length,
        "api_mb": world.api.memory_info().rss / 1e6,
        "topology_cores": topologies / length,
        "mb_each": pss_bytes(last.topologies_cpu) / 1e6 / len(names),
        "submitting_s": submitting, "load": round(os.getloadavg()[0], 2),
    }  # fmt: skip


def moment(world: Many, names: list[str]) -> Moment:
    """Now."""
    ours = re.compile("heron:(" + "|".join(names) + "):")
    used = {}
    for process in psutil.process_iter(["cmdline", "cpu_times"]):
        if ours.search(" ".join(process.info["cmdline"] or ())) and process.info["cpu_times"]:
            used[process.pid] = process.info["cpu_times"].user + process.info["cpu_times"].system
    api = world.api.cpu_times()
    store = world.server.figures()
    return Moment(time.monotonic(), store, world.server.cpu_seconds(), api.user + api.system, used)


def pss_bytes(pids: Iterable[int]) -> int:
    """Memory of processes, what they share divided among those who share it."""
    found = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += psutil.Process(pid).memory_full_info().pss
    return found


def row(found: dict[str, Any]) -> str:
    """One line of the table."""
    cells = (
        found["topologies"], f"{found['znodes']:.0f}", f"{found['watches']:.0f}", f"{found['sessions']:.0f}",
        f"{found['requests']:.0f}", f"{found['writes']:.1f}",
        f"{found['store_cores'] * 1e3:.0f}", f"{found['api_cores'] * 1e3:.1f}", f"{found['api_mb']:.0f}",
        f"{found['topology_cores'] * 1e3:.0f}", f"{found['mb_each']:.0f}", f"{found['submitting_s']:.0f}",
        found["load"],
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


@contextmanager
def many() -> Iterator[Many]:
    """Both servers; at the end every topology is killed, and nothing of them is left. Raises NoServer."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="heronry-many-")))
        server = ZookeeperServer(folder / "zookeeper")
        stack.callback(server.close)
        api = folder / "api"
        with (folder / "api.log").open("ab") as log:
            process = psutil.Popen(
                [sys.executable, "-m", "heron_apiserver", "--home", str(api), "--port", "0", "--cluster", "many",
                 "--state-url", server.url],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is for us
            )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(process.terminate)
        world = Many(server, process, folder)
        stack.callback(end_all, world)
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        line = process.stdout.readline() if ready else ""
        if not line.startswith("http://"):
            raise RuntimeError(f"the api server does not listen: {(folder / 'api.log').read_text()[-500:]}")
        world.heron("login", "many", "--api", line.strip().rstrip("/"), "--token-file", str(api / "admin-token"))
        yield world


def end_all(world: Many) -> None:
    """Kill each topology; what does not end so is ended."""
    try:
        for found in json.loads(world.heron("list", "many", "-o", "json")):
            world.heron("kill", PLACE, found["topology"])
    except subprocess.CalledProcessError as error:
        print(f"a topology could not be killed: {error}", file=sys.stderr)
    ours = f"heron:Many{os.getpid()}n"
    for process in psutil.process_iter(["cmdline"]):
        if ours in " ".join(process.info["cmdline"] or ()):
            process.kill()

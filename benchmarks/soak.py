"""Soak test: long-running topologies with dying processes, short-lived neighbours, and queries to a tracker.

    .venv/bin/python -m benchmarks.soak --minutes 120        # make soak MINUTES=120

Word count and RTAC with acks and a streamlet program run at a steady rate. Meanwhile one of their processes is killed
at intervals, a small topology is submitted and killed repeatedly, and the tracker's pages are queried. Every few
seconds the test samples memory, descriptors and threads of every process, the files of the home, the nodes of its state
store, and the times of answers and tuples.

A table shows for each kind of process how fast these grow: the slope of a line through the last two thirds of each
process's life, the median of those that lived long enough, and the same over the last third. It is also written every
five minutes (to ``--kept FOLDER``, with every sample as a line of JSON). The test has no targets; unbounded growth
shows as a slope that a longer run confirms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import psutil

from benchmarks.cluster import NAME, ROOT, Cluster, kind_of
from benchmarks.run import Options, prepared

LOOK_SECONDS = 5.0
KILL_SECONDS = 30.0  # between kills
REPORT_SECONDS = 300.0
ROUND_SECONDS = 11.0  # a guest is submitted in one and killed in the next, so that 200 are run in 75 minutes
LEAST_LIFE_SECONDS = 60.0  # shorter lives do not show growth
MORTAL = ("spout", "last", "distributor", "aggregator", "stream_manager", "metrics_manager", "topology_master")
LONG_LIVED = (
    ("w", Options("wordcount", True, 2, 2, rate=2_000)),
    ("r", Options("rtac", True, 1, 1, rate=5_000)),
)
PROGRAM = "benchmarks/lasting_program.py"
AREAS = ("state", "log-files", "metrics")  # of the files in the home; the rest is "other"
COMING_AND_GOING = Options("wordcount", True, 1, 1, rate=100)
PATHS = ("clusters", "topologies", "topologies/states", "prometheus/targets", "metrics", "")


@dataclass
class Life:
    """Process: its kind, and (seconds, resident bytes, descriptors, threads) of each sample."""

    kind: str
    looks: list[tuple[float, float, float, float]] = field(default_factory=list)

    def slope(self, column: int, after: float = 1 / 3) -> float | None:
        """Return the growth per minute after a part of its life; None for a life too short."""
        late = self.looks[int(len(self.looks) * after) :]
        if len(late) < 3 or late[-1][0] - late[0][0] < LEAST_LIFE_SECONDS / 3:
            return None
        times = np.array([look[0] for look in late])
        values = np.array([look[column] for look in late])
        return float(np.polyfit(times / 60, values, 1)[0])


class Soak:
    """Clusters, tracker and samples."""

    def __init__(self, seed: int, pace: float, round_seconds: float, kept: Path) -> None:
        self.rng = random.Random(seed)
        self.pace = pace
        self.round_seconds = round_seconds
        self.kept = kept
        self.lives: dict[int, Life] = {}
        self.series: dict[str, list[tuple[float, float]]] = defaultdict(list)  # of no single process: (s, value)
        self.counts: dict[str, int] = defaultdict(int)
        self.began = time.monotonic()
        self.first = Cluster(suffix=LONG_LIVED[0][0])
        self.home = self.first.home
        self.clusters = [self.first] + [Cluster(self.home, suffix) for suffix, _ in LONG_LIVED[1:]]
        self.guest: Cluster | None = None
        self.tracker: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> None:
        """Submit the long-running topologies and start the tracker."""
        for cluster, (_, options) in zip(self.clusters, LONG_LIVED, strict=True):
            self.submit(cluster, options)
        program = Cluster(self.home, "s")
        self.clusters.append(program)
        arguments = [str(self.home / "program"), str(200 * self.pace)]
        program.heron("submit", "--name", program.name, "local", PROGRAM, "traffic", "--", *arguments)
        self.log = (self.kept / "tracker.log").open("w+")  # a pipe without a reader would fill up and block it
        self.tracker = subprocess.Popen(
            [sys.executable, "-m", "heron_cli", "tracker", "--port", "0"],
            cwd=ROOT, env=self.first.environment, stdout=self.log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        while (found := re.search(r"http://[\w.:]+", (self.kept / "tracker.log").read_text())) is None:
            if self.tracker.poll() is not None:
                raise RuntimeError(f"the tracker ended: {self.kept / 'tracker.log'}")
            time.sleep(0.2)
        self.address = found.group()

    def note(self, name: str, value: float) -> None:
        """Record one figure that is not of a process."""
        self.series[name].append((time.monotonic() - self.began, value))

    def submit(self, cluster: Cluster, options: Options) -> None:
        """Submit one topology of the benchmarks."""
        board = self.home / f"board-{cluster.name}"
        arguments, _ = prepared(cluster, replace(options, rate=options.rate * self.pace), board)
        began = time.monotonic()
        cluster.submit(arguments, {})
        self.note("submit, s", time.monotonic() - began)

    def run(self, seconds: float) -> None:
        """Sample, query, kill and submit until the time is up."""
        end, next_kill, next_report = self.began + seconds, self.began + KILL_SECONDS, self.began + REPORT_SECONDS
        next_round = self.began
        while (now := time.monotonic()) < end:
            self.look()
            self.ask()
            if now >= next_kill:
                next_kill += KILL_SECONDS
                self.kill_one()
            if now >= next_report:
                next_report += REPORT_SECONDS
                (self.kept / "report.md").write_text(self.report() + "\n")
            if now >= next_round:
                next_round = max(next_round + self.round_seconds, now)
                self.host()
            time.sleep(LOOK_SECONDS)
        if self.guest is not None:
            self.host()

    def host(self) -> None:
        """Submit or kill the short-lived topology."""
        try:
            if self.guest is None:
                self.guest = Cluster(self.home, "g")
                self.submit(self.guest, COMING_AND_GOING)
                self.counts["submitted"] += 1
            else:
                self.guest.heron("kill", "local", self.guest.name)
                self.guest = None
                self.counts["killed topologies"] += 1
        except subprocess.CalledProcessError as error:
            self.counts[f"heron {error.cmd[3]}: exit code {error.returncode}"] += 1
            self.guest = None

    def look(self) -> None:
        """Sample every process and file."""
        now = time.monotonic() - self.began
        for process in psutil.process_iter(["pid", "cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            is_tracker = self.tracker is not None and process.pid == self.tracker.pid
            if f"heron:{NAME}{os.getpid()}" not in line and not is_tracker:
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                life = self.lives.setdefault(process.pid, Life("tracker" if is_tracker else kind_of(line)))
                life.looks.append((now, process.memory_info().rss, process.num_fds(), process.num_threads()))
        areas = dict.fromkeys((*AREAS, "other"), 0)
        files = 0
        for path in self.home.rglob("*"):
            size = _size(path)
            if size is not None:
                areas[next((part for part in path.parts if part in AREAS), "other")] += size
                files += 1
        for area, size in areas.items():
            self.note(f"{area}, kB", size / 1024)
        self.note("files", files)
        for table in ("nodes", "sessions"):
            self.note(f"store's {table}", _rows(self.home / "state", table))
        seen = {
            pid: [life.kind, *life.looks[-1]]
            for pid, life in self.lives.items()
            if life.looks and life.looks[-1][0] == now
        }
        with (self.kept / "looks.jsonl").open("a") as file:
            file.write(json.dumps({"seconds": now, "processes": seen}) + "\n")

    def ask(self) -> None:
        """Query all pages of the tracker once, and the tuple latency of the first topology."""
        complete = (
            f"topologies/metrics?cluster=local&environ=default&topology={self.first.name}&component=spout"
            "&metricname=__complete-latency/default&interval=60"
        )
        for path in (*PATHS, complete):
            began = time.monotonic()
            try:
                with urllib.request.urlopen(f"{self.address}/{path}", timeout=30) as answer:
                    text = answer.read()
                self.note("tracker's answer, ms", 1000 * (time.monotonic() - began))
                if path == complete:
                    values = json.loads(text)["result"]["metrics"].get("__complete-latency/default", {})
                    for value in values.values():
                        self.note("complete latency, ms", float(value))
            except (urllib.error.URLError, TimeoutError) as error:
                self.counts[f"tracker: {getattr(error, 'code', type(error).__name__)}"] += 1

    def kill_one(self) -> None:
        """Kill one of the processes that may die (SIGKILL)."""
        mortal = [pid for pid, life in self.lives.items() if life.kind in MORTAL and psutil.pid_exists(pid)]
        pid = self.rng.choice(mortal)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.counts[f"killed {self.lives[pid].kind}"] += 1

    def close(self) -> None:
        """Kill everything and remove the home."""
        try:
            if self.tracker is not None:
                self.tracker.terminate()
                self.tracker.wait(timeout=60)
        finally:
            for cluster in reversed([*self.clusters, *([self.guest] if self.guest else [])]):
                cluster.close()

    def report(self) -> str:
        """Return the tables."""
        minutes = (time.monotonic() - self.began) / 60
        lines = [
            f"{minutes:.0f} minutes",
            "",
            "| kind | processes | MB at last | kB/min | of the last third | descriptors/min | threads/min |",
            "|---|---|---|---|---|---|---|",
        ]
        kinds: dict[str, list[Life]] = defaultdict(list)
        for life in self.lives.values():
            kinds[life.kind].append(life)
        for kind, lives in sorted(kinds.items()):
            newest = max(lives, key=lambda life: life.looks[-1][0])
            cells = [
                _median([life.slope(1) for life in lives], 1024),
                _median([life.slope(1, 2 / 3) for life in lives], 1024),
                *(_median([life.slope(column) for life in lives], 1) for column in (2, 3)),
            ]
            lines.append(f"| {kind} | {len(lives)} | {newest.looks[-1][1] / 1e6:.0f} | {' | '.join(cells)} |")
        lines += [
            "",
            "| what | first fifth, median | last fifth, median | greatest | per minute |",
            "|---|---|---|---|---|",
        ]
        for name, points in sorted(self.series.items()):
            fifth = max(1, len(points) // 5)
            values = [value for _, value in points]
            late = points[len(points) // 3 :]
            slope = (
                np.polyfit([at / 60 for at, _ in late], [value for _, value in late], 1)[0] if len(late) > 2 else 0.0
            )
            first, last = statistics.median(values[:fifth]), statistics.median(values[-fifth:])
            lines.append(f"| {name} | {first:.1f} | {last:.1f} | {max(values):.1f} | {slope:+.2f} |")
        return "\n".join([*lines, "", json.dumps(self.counts)])


def _rows(state: Path, table: str) -> int:
    """Return the number of rows of a table of the state store."""
    [database] = state.glob("*.db") if state.is_dir() else [state]
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _size(path: Path) -> int | None:
    """Return the bytes of a file; None for anything else, or one that has just been removed."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def _median(slopes: list[float | None], unit: float) -> str:
    found = [slope / unit for slope in slopes if slope is not None]
    return f"{statistics.median(found):+.2f}" if found else ""


def main() -> None:
    """Run, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1, help="of who is killed, and when")
    parser.add_argument("--pace", type=float, default=1.0, help="of what lives long, 1: 2 000 and 5 000 tuples/s")
    parser.add_argument("--round", type=float, default=ROUND_SECONDS, help="seconds between guests' submits and kills")
    parser.add_argument("--kept", type=Path, help="a folder for every look and the table so far")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SIGTERM removes everything
    kept = options.kept or Path(tempfile.mkdtemp(prefix="heronry-soak-"))
    kept.mkdir(parents=True, exist_ok=True)
    print(f"kept in {kept}", flush=True)
    soak = Soak(options.seed, options.pace, options.round, kept)
    try:
        soak.start()
        soak.run(60 * options.minutes)
    finally:
        soak.close()
    print(soak.report())


if __name__ == "__main__":
    main()

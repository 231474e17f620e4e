"""Does it last? Topologies run for long while parts of them die, others come and go beside them and a tracker is asked.

    .venv/bin/python -m benchmarks.soak --minutes 120        # make soak MINUTES=120

Word count and RTAC run with acks at a steady rate. Meanwhile one of their processes is killed now and then, a small
topology is submitted and killed over and over, and the tracker's pages are asked. Memory, descriptors and threads of
every process, and the files of the home, are looked at every few seconds. At the end a table says for each kind of
process how fast they grow: the slope of a line through the last two thirds of each process's life, the median of those
that lived long enough. It records and judges nothing; what grows for ever shows as a slope that a longer run confirms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from benchmarks.cluster import NAME, ROOT, Cluster, kind_of
from benchmarks.run import Options
from benchmarks.topologies import ROW_BYTES

LOOK_SECONDS = 5.0
KILL_SECONDS = 30.0  # from one kill to the next
LEAST_LIFE_SECONDS = 60.0  # a shorter life says nothing of growth
MORTAL = ("spout", "last", "distributor", "aggregator", "stream_manager", "metrics_manager", "topology_master")
LONG_LIVED = (
    ("w", Options("wordcount", True, 2, 2, rate=2_000)),
    ("r", Options("rtac", True, 1, 1, rate=5_000)),
)
COMING_AND_GOING = Options("wordcount", True, 1, 1, rate=100)
PATHS = ("clusters", "topologies", "topologies/states", "prometheus/targets", "metrics", "")


@dataclass
class Life:
    """One process: what it was, and (seconds, resident bytes, descriptors, threads) at each look."""

    kind: str
    looks: list[tuple[float, float, float, float]] = field(default_factory=list)

    def slope(self, column: int) -> float | None:
        """Growth per minute; None for a life too short."""
        late = self.looks[len(self.looks) // 3 :]
        if len(late) < 3 or late[-1][0] - late[0][0] < LEAST_LIFE_SECONDS * 2 / 3:
            return None
        times = np.array([look[0] for look in late])
        values = np.array([look[column] for look in late])
        return float(np.polyfit(times / 60, values, 1)[0])


class Soak:
    """The clusters, the tracker, and what was seen."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lives: dict[int, Life] = {}
        self.disk: list[tuple[float, float, float]] = []  # seconds, bytes, files
        self.counts: dict[str, int] = defaultdict(int)
        self.answers_ms: list[float] = []
        self.submit_seconds: list[float] = []
        self.began = time.monotonic()
        self.first = Cluster(suffix=LONG_LIVED[0][0])
        self.home = self.first.home
        self.clusters = [self.first] + [Cluster(self.home, suffix) for suffix, _ in LONG_LIVED[1:]]
        self.tracker: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> None:
        """Submit what lives long, start the tracker."""
        for cluster, (_, options) in zip(self.clusters, LONG_LIVED, strict=True):
            self.submit(cluster, options)
        self.tracker = subprocess.Popen(
            [sys.executable, "-m", "heron_cli", "tracker", "--port", "0"],
            cwd=ROOT, env=self.first.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.tracker.stdout is not None
        for line in self.tracker.stdout:
            found = re.search(r"http://[\w.:]+", line)
            if found:
                self.address = found.group()
                break

    def submit(self, cluster: Cluster, options: Options) -> None:
        """One topology of the benchmarks."""
        board = self.home / f"board-{cluster.name}"
        board.write_bytes(bytes(ROW_BYTES * 4096))
        config = {
            "topology.reliability.mode": "ATLEAST_ONCE", "topology.stmgrs": options.containers,
            "user.board": str(board), "user.folder": str(self.home), "user.acks": True, "user.rate": options.rate,
            "user.size": 0,
        }  # fmt: skip
        began = time.monotonic()
        cluster.submit(
            {
                "name": cluster.name, "case": options.case, "tasks": options.tasks, "bolt": options.bolt,
                "branches": options.branches, "config": config,
            },
            {},
        )  # fmt: skip
        self.submit_seconds.append(time.monotonic() - began)

    def run(self, seconds: float) -> None:
        """Until the time is up: look, ask, kill, submit."""
        end, next_kill = self.began + seconds, self.began + KILL_SECONDS
        guest: Cluster | None = None
        while time.monotonic() < end:
            self.look()
            self.ask()
            if time.monotonic() >= next_kill:
                next_kill += KILL_SECONDS
                self.kill_one()
            if guest is None:
                guest = Cluster(self.home, "g")
                self.submit(guest, COMING_AND_GOING)
                self.counts["submitted"] += 1
            else:
                guest.heron("kill", "local", guest.name)
                guest = None
            time.sleep(LOOK_SECONDS)
        if guest is not None:
            guest.heron("kill", "local", guest.name)

    def look(self) -> None:
        """At every process and file."""
        now = time.monotonic() - self.began
        for process in psutil.process_iter(["pid", "cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            is_tracker = self.tracker is not None and process.pid == self.tracker.pid
            if f"heron:{NAME}{os.getpid()}" not in line and not is_tracker:
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                life = self.lives.setdefault(process.pid, Life("tracker" if is_tracker else kind_of(line)))
                life.looks.append((now, process.memory_info().rss, process.num_fds(), process.num_threads()))
        sizes = [size for path in self.home.rglob("*") if (size := _size(path)) is not None]
        self.disk.append((now, float(sum(sizes)), float(len(sizes))))

    def ask(self) -> None:
        """The tracker, all its pages once."""
        for path in PATHS:
            began = time.monotonic()
            try:
                with urllib.request.urlopen(f"{self.address}/{path}", timeout=30) as answer:
                    answer.read()
                self.answers_ms.append(1000 * (time.monotonic() - began))
            except (urllib.error.URLError, TimeoutError) as error:
                self.counts[f"tracker: {getattr(error, 'code', type(error).__name__)}"] += 1

    def kill_one(self) -> None:
        """A process of those that may die, by SIGKILL."""
        mortal = [pid for pid, life in self.lives.items() if life.kind in MORTAL and psutil.pid_exists(pid)]
        pid = self.rng.choice(mortal)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.counts[f"killed {self.lives[pid].kind}"] += 1

    def close(self) -> None:
        """Kill everything, remove the home."""
        if self.tracker is not None:
            self.tracker.terminate()
            self.tracker.communicate(timeout=30)
        for cluster in reversed(self.clusters):
            cluster.close()

    def report(self) -> str:
        """The tables."""
        lines = [
            "| kind | processes | MB at last | kB/min | descriptors/min | threads/min |",
            "|---|---|---|---|---|---|",
        ]
        kinds: dict[str, list[Life]] = defaultdict(list)
        for life in self.lives.values():
            kinds[life.kind].append(life)
        for kind, lives in sorted(kinds.items()):
            newest = max(lives, key=lambda life: life.looks[-1][0])
            cells = [
                _median([life.slope(column) for life in lives], 1024 if column == 1 else 1) for column in (1, 2, 3)
            ]
            lines.append(f"| {kind} | {len(lives)} | {newest.looks[-1][1] / 1e6:.0f} | {' | '.join(cells)} |")
        late = self.disk[len(self.disk) // 3 :] if len(self.disk) > 5 else [(0.0, 0.0, 0.0), self.disk[-1]]
        times = np.array([look[0] for look in late]) / 60
        growth = [float(np.polyfit(times, np.array([look[n] for look in late]), 1)[0]) for n in (1, 2)]
        asked = (statistics.median(self.answers_ms), max(self.answers_ms)) if self.answers_ms else (0.0, 0.0)
        lines += [
            "",
            f"home: {self.disk[-1][1] / 1e6:.1f} MB in {self.disk[-1][2]:.0f} files, {growth[0] / 1024:+.0f} kB/min, "
            f"{growth[1]:+.1f} files/min",
            f"tracker: {len(self.answers_ms)} answers, median {asked[0]:.0f} ms, slowest {asked[1]:.0f} ms",
            f"submit: median {statistics.median(self.submit_seconds):.1f} s, slowest {max(self.submit_seconds):.1f} s",
            json.dumps(self.counts),
        ]
        return "\n".join(lines)


def _size(path: Path) -> int | None:
    """Bytes of a file; None for anything else, or one that has just gone."""
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
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is taken down when we are ended
    soak = Soak(options.seed)
    try:
        soak.start()
        soak.run(60 * options.minutes)
    finally:
        soak.close()
    print(soak.report())


if __name__ == "__main__":
    main()

"""Effect of three misbehaving topologies on seven others on the same machine.

    .venv/bin/python -m benchmarks.neighbours

Seven topologies count tuples at a steady rate, first alone. Then one that crashes repeatedly, one that leaks memory and
one that prints a gigabyte are added. The table has the rate of each topology in both windows; the second window begins
when the first misbehaving topology is submitted. The benchmark has no targets: on a busy machine a ratio means little,
so the table also shows the load.

On ``local`` the memory of a topology is not limited, so the leaking one ends itself at 600 MB, as its container's limit
would in Docker.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from benchmarks.cluster import Cluster

STEADY = 7
BAD = {"crash": 0, "leak": 600, "print": 1000}  # megabytes
FILE = "benchmarks/neighbour_topology.py"
SETTLE_SECONDS = 5.0
KILLS_AT_ONCE = 4
LINE_BYTES = 1000


class Neighbourhood:
    """Home with all topologies."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.first = Cluster(suffix="steady0")
        self.folder = self.first.home / "counts"
        self.folder.mkdir()
        self.steady = [self.first, *(Cluster(self.first.home, f"steady{n}") for n in range(1, STEADY))]
        self.bad = {kind: Cluster(self.first.home, kind) for kind in BAD}

    def submit(self, cluster: Cluster, kind: str, most: int = 0) -> None:
        """Submit a topology and wait until it runs; a crashing one need not."""
        arguments = {
            "name": cluster.name, "kind": kind, "folder": str(self.folder), "rate": self.rate, "most": most,
        }  # fmt: skip
        wait = ["--no-wait"] if kind != "steady" else []
        cluster.heron("submit", *wait, "local", FILE, "benchmark", "--", json.dumps(arguments))

    def let_in(self) -> None:
        """Submit the misbehaving topologies."""
        for kind, cluster in self.bad.items():
            self.submit(cluster, kind, BAD[kind])

    def counts(self) -> dict[str, int]:
        """Return the tuple counts by topology."""
        return {path.name: int(path.read_bytes() or b"0") for path in self.folder.iterdir()}

    def rates(self, seconds: float, meanwhile: Callable[[], object] = bool) -> dict[str, float]:
        """Return the rate of each topology over a window that begins with the call of ``meanwhile``."""
        first, began = self.counts(), time.monotonic()
        meanwhile()
        time.sleep(seconds)
        last, passed = self.counts(), time.monotonic() - began
        return {name: (count - first.get(name, 0)) / passed for name, count in last.items()}

    def close(self) -> None:
        """Kill all topologies; the home is the first one's."""
        with ThreadPoolExecutor(KILLS_AT_ONCE) as pool:
            list(pool.map(Cluster.close, (*self.bad.values(), *self.steady[1:])))
        self.first.close()


def measure(rate: float, seconds: float) -> list[str]:
    """Measure both windows; return the table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SIGTERM kills the topologies
    here = Neighbourhood(rate)
    try:
        for cluster in here.steady:
            here.submit(cluster, "steady")
        time.sleep(SETTLE_SECONDS)
        load_alone, alone = os.getloadavg()[0], here.rates(seconds)
        beside, load_beside = here.rates(seconds, here.let_in), os.getloadavg()[0]
        restarts = {kind: _restarts(cluster) for kind, cluster in here.bad.items()}
        printed = here.counts()[here.bad["print"].name] * LINE_BYTES, _logged(here.bad["print"])
        names = [cluster.name for cluster in here.steady]
        return table(
            [(alone.get(name, 0.0), beside.get(name, 0.0)) for name in names],
            (load_alone, load_beside),
            restarts,
            printed,
        )
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM leaves nothing running either
        here.close()


def table(
    pairs: list[tuple[float, float]], loads: tuple[float, float], restarts: Mapping[str, int], printed: tuple[int, int]
) -> list[str]:
    """Return the figures as Markdown."""
    lines = ["| steady topology | alone, tuples/s | beside the bad ones | of it |", "|---|---|---|---|"]
    for number, (alone, beside) in enumerate(pairs, 1):
        part = f"{beside / alone:.0%}" if alone else "–"
        lines.append(f"| {number} | {alone:.1f} | {beside:.1f} | {part} |")
    told = ", ".join(f"{kind} {count}" for kind, count in restarts.items())
    lines.append(f"\nLoad of the machine: {loads[0]:.1f}, then {loads[1]:.1f}. Restarts of instances: {told}.")
    lines.append(f"Printed {printed[0] / 1e6:.0f} MB, of which {printed[1] / 1e6:.0f} MB are kept in its logs.")
    return lines


def _restarts(cluster: Cluster) -> int:
    return sum(p["restarts"] for p in cluster.processes() if p["kind"] == "heron_instance")


def _logged(cluster: Cluster) -> int:
    """Return the bytes of its log files."""
    files = (path for path in cluster.home.rglob("*") if {cluster.name, "log-files"} <= set(path.parts))
    return sum(path.stat().st_size for path in files if path.is_file())


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="benchmarks.neighbours", description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0, help="tuples/s of each steady topology")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each window")
    arguments = parser.parse_args()
    print("\n".join(measure(arguments.rate, arguments.seconds)))


if __name__ == "__main__":
    main()

"""How the cost of a tuple grows with tasks, containers, fan-out and size, with acks, flat out unless a rate is given.

    .venv/bin/python -m benchmarks.growth [--only size] [--runs 3]
    .venv/bin/python -m benchmarks.growth hosts|idle|many …

One table for each kind of growth. *Per copy* is the figure divided by how many bolts get each tuple; *per kB* is for
sizes from 1 kB on. ``hosts`` (``benchmarks.growth_hosts``) has a simulated host for each container, ``idle``
(``benchmarks.growth_idle``) fits what topologies cost that have nothing to do, ``many`` (``benchmarks.growth_many``)
puts topologies beside each other on one api server and ZooKeeper.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import growth_hosts, growth_idle, growth_many
from benchmarks.hosts import NoHosts, in_own_network
from benchmarks.run import Options, TuplesLost, run
from benchmarks.zookeeper_server import NoServer


@dataclass(frozen=True)
class Growth:
    """What grows, the cases, and by what a case's figure is divided for the last column."""

    name: str
    cases: tuple[tuple[str, Options, float], ...]
    share: str


GROWTHS = (
    Growth(
        "tasks", tuple((f"{n} + {n}", Options("wordcount", True, n, 1), 1.0) for n in (1, 2, 4, 8)), "per tuple"
    ),
    Growth(
        "containers", tuple((str(n), Options("wordcount", True, 4, n), 1.0) for n in (1, 2, 4)), "per tuple"
    ),
    Growth(
        "containers at 20 000/s each",
        tuple((str(n), Options("wordcount", True, n, n, rate=20_000 * n), 1.0) for n in (1, 4, 8)),
        "per tuple",
    ),
    Growth(
        "containers at 2 000/s each",
        tuple((str(n), Options("wordcount", True, n, n, rate=2_000 * n), 1.0) for n in (1, 4, 8)),
        "per tuple",
    ),
    Growth(
        "fan-out",
        tuple((f"{n} bolts", Options("fanout", True, branches=n), float(n)) for n in (1, 2, 4, 8)),
        "per copy",
    ),
    Growth(
        "size",
        tuple((f"{n:,} B", Options("payload", True, size=n), max(1.0, n / 1000)) for n in (1, 100, 10_000, 1_000_000)),
        "per kB",
    ),
)  # fmt: skip


def on_hosts(measure: Callable[[], int]) -> Callable[[], int]:
    """The same in a network of its own."""

    def begin() -> int:
        try:
            in_own_network("benchmarks.growth")
            del sys.argv[1]
            return measure()
        except (NoHosts, NoServer) as error:
            print(error, file=sys.stderr)
            return 1

    return begin


def many() -> int:
    """Beside each other."""
    del sys.argv[1]
    try:
        return growth_many.main()
    except NoServer as error:
        print(error, file=sys.stderr)
        return 1


OTHERS = {"hosts": on_hosts(growth_hosts.main), "idle": on_hosts(growth_idle.main), "many": many}


def row(name: str, results: list[dict[str, Any]], share: float) -> str:
    """One line: medians over the runs."""
    raw = statistics.median(r["cpu_us_per_tuple"] for r in results)
    calibrated = statistics.median(
        r["cpu_us_per_tuple"] * r["calibration_reference_ns"] / r["calibration_ns"] for r in results
    )
    rate = statistics.median(r["tuples_per_second"] for r in results)
    late = [statistics.median(r["complete_latency_ms"][p] for r in results) for p in ("p50", "p99")]
    cells = (name, f"{rate:,.0f}", round(raw, 2), round(calibrated, 2), f"{late[0]:.0f} / {late[1]:.0f}",
             round(raw / share, 2))  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main() -> int:
    """Measure each growth; print the tables."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended when we are
    if sys.argv[1:2] and sys.argv[1] in OTHERS:
        return OTHERS[sys.argv[1]]()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", default="", help="growths whose name contains this")
    parser.add_argument("--json", type=Path, help="write every run there")
    options = parser.parse_args()
    everything: dict[str, list[dict[str, Any]]] = {}
    for growth in GROWTHS:
        if options.only not in growth.name:
            continue
        heads = (growth.name, "tuples/s", "CPU µs/tuple", "calibrated", "p50 / p99 ms", growth.share)
        print("\n| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads), flush=True)
        for name, case, share in growth.cases:
            try:
                results = [run(replace(case, seconds=options.seconds)) for _ in range(options.runs)]
            except TuplesLost as error:
                print(f"{growth.name} {name}: {error}", file=sys.stderr)
                return 1
            everything[f"{growth.name} {name}"] = results
            print(row(name, results, share), flush=True)
            if options.json:
                options.json.write_text(json.dumps(everything, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

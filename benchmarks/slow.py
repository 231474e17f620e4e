"""Slow bolts behind a spout that knows no measure: how old tuples get, and how much of them times out.

``python -m benchmarks.slow --bolts 0.2 0.2 --size 30000 --acks`` prints one line of JSON. After the warm-up, over the
measured window: the age of tuples when the last bolt is done with them, how many of them there were beside how many
the slowest bolt could do, and what the spout was told. Nothing is set but the timeout: that is the point.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster import Cluster


def run(
    bolts: list[float], size: int, acks: bool, containers: int, warm_up: float, seconds: float, timeout: int
) -> dict[str, Any]:
    """One case. ``bolts``: the seconds that each bolt of the row takes for a tuple."""
    cluster = Cluster()
    try:
        config = {
            "topology.reliability.mode": "ATLEAST_ONCE" if acks else "ATMOST_ONCE",
            "topology.message.timeout.secs": timeout, "topology.stmgrs": containers,
            "user.size": size, "user.folder": str(cluster.home),
        }  # fmt: skip
        arguments = {"name": cluster.name, "seconds": bolts, "config": config}
        cluster.submit(arguments, {}, "benchmarks/slow_topology.py")
        time.sleep(warm_up)
        first = time.monotonic()
        time.sleep(seconds)
        last = time.monotonic()
        ages = [float(age) for at, age in _lines(cluster.home / "done") if first <= float(at) < last]
        settled = _lines(cluster.home / "settled")
        return {
            "bolts_s": bolts, "size": size, "acks": acks, "containers": containers, "timeout_s": timeout,
            "age_s": {f"p{q}": round(float(np.percentile(ages, q)), 2) for q in (50, 99, 100)} if ages else None,
            "of_possible": round(len(ages) * max(bolts) / (last - first), 3),
            "acked": _count(settled, first, last, True), "failed": _count(settled, first, last, False),
            "failed_in_warm_up": _count(settled, 0, first, False),
        }  # fmt: skip
    finally:
        cluster.close()


def _lines(file: Path) -> list[list[str]]:
    """What was written so far; the last line may be half."""
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [line for line in lines if len(line) == 2]


def _count(settled: list[list[str]], first: float, last: float, acked: bool) -> int:
    return sum(first <= float(at) < last and (what == "acked") is acked for at, what in settled)


def main() -> None:
    """Run one case and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow", description=__doc__)
    parser.add_argument(
        "--bolts", type=float, nargs="+", default=[0.2], help="seconds a tuple, for each bolt of the row"
    )
    parser.add_argument("--size", type=int, default=30, help="bytes of padding in a tuple")
    parser.add_argument("--acks", action="store_true", help="at least once (default: at most once)")
    parser.add_argument("--containers", type=int, default=1)
    parser.add_argument("--warm-up", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--timeout", type=int, default=30, help="of a tuple tree, in seconds")
    print(json.dumps(run(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()

"""Cost of state: ``python -m benchmarks.state [--pairs 3] [--seconds 10]`` prints a line of JSON for each figure.

* cost: word count with checkpoints every 10 s and at most once, in alternation: CPU per tuple, and the quotient of the
  medians;
* bubble: how long spouts are silent at a checkpoint, at 2, 8 and 32 tasks and 1 000 tuples per second (16 spouts,
  polled every millisecond, already take half of two cores);
* latency: RTAC at 10 000 tuples per second with a checkpoint every second, and at most once;
* restore, update: ``recovery.py``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.cluster import Cluster
from benchmarks.recovery import recovery
from benchmarks.run import Options, prepared, run
from heron_control.inspection.inspector import asker_of
from heron_runtime.state import local_store, open_address
from heron_runtime.state.topologies import read_topology
from heron_runtime.wire.master import CheckpointSummary

MODE, INTERVAL = "topology.reliability.mode", "topology.stateful.checkpoint.interval.secs"
EXACTLY, AT_MOST = "EFFECTIVELY_ONCE", "ATMOST_ONCE"
RTAC_RATE = 10_000
LOOK_SECONDS = 0.1


def cost(pairs: int, seconds: float) -> dict[str, Any]:
    """Return CPU per tuple in both modes."""
    found: dict[str, list[float]] = {AT_MOST: [], EXACTLY: []}
    for _ in range(pairs):
        for mode, figures in found.items():
            options = Options("wordcount", seconds=seconds, overrides={MODE: mode, INTERVAL: 10.0})
            figures.append(run(options)["cpu_us_per_tuple"])
    quotient = statistics.median(found[EXACTLY]) / statistics.median(found[AT_MOST])
    return {"figure": "cost", "cpu_us_per_tuple": found, "quotient": round(quotient, 3)}


def bubble(spouts: int, bolts: int, seconds: float) -> dict[str, Any]:
    """Return bubbles and durations of checkpoints at a low rate."""
    options = Options("wordcount", tasks=bolts, rate=1_000, overrides={MODE: EXACTLY, INTERVAL: 0.5}, spouts=spouts)
    cluster = Cluster()
    try:
        arguments, _ = prepared(cluster, options, cluster.home / "board")
        cluster.submit(arguments, {})
        seen = {summary.number: summary for summary in _checkpoints(cluster, seconds) if summary.number}
    finally:
        cluster.close()
    bubbles = sorted(summary.bubble_ms for summary in seen.values())
    durations = sorted(summary.duration_ms for summary in seen.values())
    return {
        "figure": "bubble", "spouts": spouts, "bolts": bolts, "checkpoints": len(seen),
        "bubble_ms": _spread(bubbles), "duration_ms": _spread(durations),
    }  # fmt: skip


def _checkpoints(cluster: Cluster, seconds: float) -> Iterator[CheckpointSummary]:
    """Yield the last complete checkpoint repeatedly."""
    store = open_address(local_store(cluster.home))
    store.open()
    try:
        record = read_topology(store, cluster.name)
        asker = asker_of(record)
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            master = asker.query_all(record).master
            if master is not None:
                yield master.tasks_state.last
            time.sleep(LOOK_SECONDS)
    finally:
        store.close()


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": round(statistics.median(values), 1), "most": round(values[-1], 1)}


def latency(rate: float, seconds: float) -> dict[str, Any]:
    """Return end-to-end latencies of RTAC at a rate, at most once and with a checkpoint every second.

    Tuples are stamped when they are due.
    """
    found = {}
    for mode in (AT_MOST, EXACTLY):
        options = Options("rtac", rate=rate, seconds=seconds, overrides={MODE: mode, INTERVAL: 1.0})
        found[mode] = run(options)["latency_ms"]
    return {"figure": "latency", "tuples_per_second": rate, "latency_ms": found}


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state", description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    for line in recovery():
        print(json.dumps(line), flush=True)
    for spouts, bolts in ((1, 1), (1, 7), (4, 28), (16, 16)):
        print(json.dumps(bubble(spouts, bolts, options.seconds)), flush=True)
    print(json.dumps(latency(RTAC_RATE, options.seconds)), flush=True)
    print(json.dumps(cost(options.pairs, options.seconds)), flush=True)


if __name__ == "__main__":
    main()

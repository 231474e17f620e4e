"""How the cost of a tuple grows with simulated hosts: 1, 4 and 16 containers, each with the same small load and acks.

    .venv/bin/python -m benchmarks.growth hosts [--containers 1,4,16] [--rate 25] [--seconds 20]

Each container has a spout, a bolt (keyed by word) and a host of its own (``benchmarks.hosts``); so has the topology
master. *CPU* is that of all processes of the topology, *packets* and *bytes* what the hosts send to each other. The
same topology with nothing to do is measured first, on the same hosts: what a tuple costs beyond that is *more*. Every
tuple is counted at the end, as in ``benchmarks.run``.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.hosts_cluster import HostsCluster, figures, hosts_cluster, moment
from benchmarks.latency import percentiles
from benchmarks.run import WARM_UP_SECONDS, Options, drain, prepared, total
from benchmarks.topologies import EMITTED, MEASURE, STOP, Board
from benchmarks.zookeeper_server import ZookeeperServer

HEADS = (
    "containers", "tuples/s", "CPU µs/tuple", "more µs/tuple", "packets/tuple", "more packets/tuple", "bytes/tuple",
    "p50 / p99 ms", "cores", "load",
)  # fmt: skip


def main() -> int:
    """Measure each number of containers; print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth hosts", description=__doc__)
    parser.add_argument("--containers", default="1,4,16", help="numbers of containers")
    parser.add_argument("--rate", type=float, default=25, help="tuples/s for each container")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", type=Path, help="write every run there")
    options = parser.parse_args()
    everything = []
    print("\n| " + " | ".join(HEADS) + " |\n|" + " --- |" * len(HEADS), flush=True)
    for number in (int(part) for part in options.containers.split(",")):
        quiet = Options("idle", True, number, number, seconds=options.seconds)
        with hosts_cluster(number) as (cluster, server):
            idle = run_idle(cluster, server, quiet)
        with hosts_cluster(number) as (cluster, server):
            found = run_loaded(cluster, server, replace(quiet, case="wordcount", rate=options.rate * number))
        everything.append({"containers": number, "idle": idle, "loaded": found})
        print(row(number, found, idle), flush=True)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1) + "\n")
    return 0


def run_idle(cluster: HostsCluster, server: ZookeeperServer, options: Options) -> dict[str, Any]:
    """What a topology costs that has nothing to do. Raises CalledProcessError."""
    arguments, _ = prepared(cluster, options, cluster.home / "board")
    began = time.monotonic()
    cluster.submit(arguments, {})
    startup = time.monotonic() - began
    time.sleep(WARM_UP_SECONDS)
    first = moment(cluster, server)
    time.sleep(options.seconds)
    return {"startup_s": round(startup, 1), **figures(first, moment(cluster, server))}


def run_loaded(cluster: HostsCluster, server: ZookeeperServer, options: Options) -> dict[str, Any]:
    """The same under load. Raises TuplesLost, CalledProcessError."""
    arguments, _ = prepared(cluster, options, cluster.home / "board")
    board = Board(str(cluster.home / "board"))
    cluster.submit(arguments, {})
    instances = [p for p in cluster.processes() if p["kind"] == "heron_instance"]
    spouts = [p["task"] for p in instances if p["component"] == "spout"]
    time.sleep(WARM_UP_SECONDS)
    board.put(MEASURE, 1)
    first, emitted_first = moment(cluster, server), total(board, spouts, EMITTED)
    time.sleep(options.seconds)
    last, emitted_last = moment(cluster, server), total(board, spouts, EMITTED)
    board.put(MEASURE, 0)
    board.put(STOP, 1)
    counts = drain(board, spouts, [p for p in instances if p["component"] == "last"], options.acks)
    late = percentiles(cluster.home, "complete")
    rate = (emitted_last - emitted_first) / (last.at - first.at)
    return {"tuples_per_second": rate, **figures(first, last), "complete_latency_ms": late, **counts}


def row(number: int, found: dict[str, Any], idle: dict[str, Any]) -> str:
    """One line of the table."""
    rate, late = found["tuples_per_second"], found["complete_latency_ms"]

    def each(name: str, scale: float = 1.0) -> tuple[float, float]:
        return found[name] / rate * scale, (found[name] - idle[name]) / rate * scale

    (cpu, more_cpu), (packets, more_packets), (size, _) = each("cores", 1e6), each("packets"), each("bytes")
    cells = (
        number, f"{rate:,.0f}", f"{cpu:.0f}", f"{more_cpu:.0f}", f"{packets:.2f}", f"{more_packets:.2f}", f"{size:.0f}",
        f"{late['p50']:.0f} / {late['p99']:.0f}", f"{found['cores']:.2f}", found["load"],
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"

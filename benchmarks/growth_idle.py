"""What idle topologies of k containers cost on simulated hosts, fitted by a + b·k + c·k(k-1), and said for 200.

    .venv/bin/python -m benchmarks.growth idle [--containers 2,4,8,16,32] [--seconds 30] [--predict 200] [--try 200]

Each container is on a host of its own (``benchmarks.hosts``) and has one task, which has nothing to do. *c* is what a
pair of containers costs in one direction: k(k-1) streams of the mesh, each with a whole set of causes of backpressure
for every heartbeat. *b* is what a container costs by itself: heartbeats to the master, its processes, the state store.
The fit says which kind of process a part is spent in. ``--try`` starts one topology of that many containers, measures
it, tells how it came up, and ends it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cluster import Usage
from benchmarks.fit import Fit, fit
from benchmarks.growth_hosts import run_idle
from benchmarks.hosts_cluster import HostsCluster, TooLarge, hosts_cluster
from benchmarks.run import Options

WAIT_SECONDS_EACH = 6  # for a large topology to come up: so much for each container
HEADS = ("containers", "ms CPU/s", "stream managers", "packets/s", "bytes/s", "requests/s of the store", "up after s",
         "MB", "load")  # fmt: skip


def main() -> int:
    """Measure, fit, predict, try."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth idle", description=__doc__)
    parser.add_argument("--containers", default="2,4,8,16,32", help="numbers of containers; even, three at least")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--predict", type=int, default=200)
    parser.add_argument("--try", dest="tried", type=int, default=0, help="start one of so many containers")
    parser.add_argument("--json", type=Path, help="write every run there")
    options = parser.parse_args()
    everything: dict[str, Any] = {"runs": []}
    print("\n| " + " | ".join(HEADS) + " |\n|" + " --- |" * len(HEADS), flush=True)
    numbers = [int(part) for part in options.containers.split(",") if part]
    for number in [*numbers, *([options.tried] if options.tried else [])]:
        found = measured(number, options.seconds)
        everything["runs"].append(found)
        print(row(found), flush=True)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1) + "\n")
    if len(set(numbers)) >= 3:
        print(*fits(everything["runs"][: len(numbers)], options.predict), sep="\n")
    return 0


def measured(number: int, seconds: float) -> dict[str, Any]:
    """One idle topology of so many containers. What does not come up is told with how far it got."""
    with hosts_cluster(number) as (cluster, server):
        cluster.wait_seconds = max(cluster.wait_seconds, WAIT_SECONDS_EACH * number)
        try:
            found = run_idle(cluster, server, Options("idle", True, max(1, number // 2), number, seconds=seconds))
        except TooLarge as error:
            return {"containers": number, "failed": str(error)}
        except subprocess.CalledProcessError:
            return {"containers": number, "failed": f"it did not come up; logs: {cluster.keep_logs()}"}
        usage = cluster.usage(memory=True)
        return {
            "containers": number, **found, "memory_mb": round(sum(usage.pss_bytes.values()) / 1e6),
            "memory_mb_by_kind": by_kind(usage), "restarts": restarts(cluster),
        }  # fmt: skip


def by_kind(usage: Usage) -> dict[str, int]:
    """Megabytes of each kind of process."""
    kinds = sorted({usage.kinds[pid] for pid in usage.pss_bytes})
    return {
        kind: round(sum(size for pid, size in usage.pss_bytes.items() if usage.kinds[pid] == kind) / 1e6)
        for kind in kinds
    }


def restarts(cluster: HostsCluster) -> int | None:
    """Of all processes together, since the start; None where the topology does not answer in time."""
    try:
        return sum(int(process.get("restarts", 0)) for process in cluster.processes())
    except subprocess.CalledProcessError:
        return None


def row(found: dict[str, Any]) -> str:
    """One line of the table."""
    if found.get("failed"):
        return f"| {found['containers']} | {found['failed']} |" + " |" * (len(HEADS) - 2)
    cells = (
        found["containers"], f"{found['cores'] * 1e3:.1f}",
        f"{found['cores_by_kind'].get('stream_manager', 0.0) * 1e3:.1f}", f"{found['packets']:,.0f}",
        f"{found['bytes']:,.0f}", f"{found['store_requests']:.1f}", found["startup_s"], found["memory_mb"],
        found["load"],
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def fits(runs: Sequence[dict[str, Any]], predict: int) -> list[str]:
    """A table of the three parts of each cost, and what they make at ``predict`` containers."""
    lines = [
        "",
        f"| cost | a | b (each) | c (each pair) | off by | at {predict} | of that k(k-1) |",
        "|" + " --- |" * 7,
    ]

    def add(name: str, unit: str, points: list[tuple[int, float]]) -> None:
        found: Fit = fit(points)
        whole = found.at(predict)
        share = found.parts(predict)[2] / whole if whole else 0.0
        lines.append(
            f"| {name} | {found.fixed:.3g} | {found.each:.3g} | {found.pair:.3g} | {found.worst:.0%} "
            f"| {whole:,.0f} {unit} | {share:.0%} |"
        )

    add("CPU", "ms/s", [(r["containers"], r["cores"] * 1e3) for r in runs])
    for kind in sorted({kind for r in runs for kind in r["cores_by_kind"]}):
        points = [(r["containers"], r["cores_by_kind"].get(kind, 0.0) * 1e3) for r in runs]
        add(f"CPU of {kind}", "ms/s", points)
    for name in ("packets", "bytes", "store_requests"):
        add(name.replace("_", " "), "/s", [(r["containers"], r[name]) for r in runs])
    add("memory", "MB", [(r["containers"], float(r["memory_mb"])) for r in runs])
    return lines

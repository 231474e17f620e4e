"""One benchmark run: submit, warm up, measure a steady window, stop the source, drain, compare every count."""

from __future__ import annotations

import array
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.calibration import REFERENCE_NS, nanoseconds_per_step
from benchmarks.cluster import NAME, Cluster
from benchmarks.topologies import ACKED, DONE, EMITTED, EXECUTED, FAILED, ROW_BYTES, Board

WARM_UP_SECONDS = 3.0
DRAIN_SECONDS = 60.0


class TuplesLost(Exception):
    """The counts at the end do not agree with the source."""


def run(
    case: str, acks: bool, tasks: int, containers: int, rate: float, seconds: float, bolt: str, size: int,
    overrides: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Run one case; the figures as a plain dictionary. Raises TuplesLost."""
    before = nanoseconds_per_step()
    cluster = Cluster()
    try:
        board_file = cluster.home / "board"
        board_file.write_bytes(bytes(ROW_BYTES * 4096))
        config = {
            "topology.reliability.mode": "ATLEAST_ONCE" if acks else "ATMOST_ONCE",
            "topology.stmgrs": containers,
            "user.board": str(board_file), "user.folder": str(cluster.home),
            "user.acks": acks, "user.rate": rate, "user.size": size, **overrides,
        }  # fmt: skip
        began = time.monotonic()
        cluster.submit({"name": NAME, "case": case, "tasks": tasks, "bolt": bolt, "config": config})
        startup = time.monotonic() - began
        return {
            "case": case, "acks": acks, "tasks": tasks, "containers": containers, "rate": rate, "bolt": bolt,
            **_measure(cluster, Board(str(board_file)), board_file, acks, seconds),
            "startup_s": round(startup, 2),
            "calibration_ns": round((before + nanoseconds_per_step()) / 2, 1), "calibration_reference_ns": REFERENCE_NS,
            "versions": {name: version(name) for name in ("heronry", "grpcio", "protobuf", "numpy", "msgspec")},
            "machine": {"cpus": psutil.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        }  # fmt: skip
    finally:
        cluster.close()


def _measure(cluster: Cluster, board: Board, board_file: Path, acks: bool, seconds: float) -> dict[str, Any]:
    processes = [p for p in cluster.processes() if p["kind"] == "heron_instance"]
    spouts = [p["task"] for p in processes if p["component"] == "spout"]
    last = [p for p in processes if p["component"].startswith(("last", "distributor"))]
    time.sleep(WARM_UP_SECONDS)
    first, emitted_first, at_first = cluster.usage(), _sum(board, spouts, EMITTED), time.perf_counter()
    time.sleep(seconds)
    second, emitted_second, at_second = cluster.usage(), _sum(board, spouts, EMITTED), time.perf_counter()
    memory = cluster.usage(memory=True)
    emitted = emitted_second - emitted_first
    cpu = second.since(first)
    result = {
        "seconds": round(at_second - at_first, 2),
        "tuples_per_second": round(emitted / (at_second - at_first)),
        "cpu_us_per_tuple": round(cpu / emitted * 1e6, 3) if emitted else None,
        "cores": round(cpu / (at_second - at_first), 3),
        "cores_by_kind": {k: round(v / (at_second - at_first), 3) for k, v in second.by_kind_since(first).items()},
        "rss_mb": round(memory.rss_bytes / 1e6, 1),
        "pss_mb_per_process": round(sum(memory.pss_bytes.values()) / max(1, len(memory.pss_bytes)) / 1e6, 2),
    }
    with board_file.open("r+b") as file:
        file.write(b"\x01")
    result |= _drain(board, spouts, last, acks)
    result["complete_latency_ms" if acks else "latency_ms"] = _latencies(cluster.home)
    return result


def _drain(board: Board, spouts: list[int], last: list[dict[str, Any]], acks: bool) -> dict[str, Any]:
    """Wait until every tuple has arrived everywhere."""
    components = sorted({p["component"] for p in last})
    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        emitted = _sum(board, spouts, EMITTED)
        executed = {c: _sum(board, [p["task"] for p in last if p["component"] == c], EXECUTED) for c in components}
        finished = all(board.get(task, DONE) for task in spouts)
        if finished and all(count == emitted for count in executed.values()):
            break
        if time.monotonic() > deadline:
            raise TuplesLost(f"emitted {emitted}, acked {_sum(board, spouts, ACKED)}, executed {executed}")
        time.sleep(0.1)
    failed = _sum(board, spouts, FAILED)
    if acks and _sum(board, spouts, ACKED) != emitted:
        raise TuplesLost(f"emitted {emitted}, acked {_sum(board, spouts, ACKED)}, failed {failed}")
    return {"emitted": emitted, "executed": executed, "failed": failed}


def _latencies(folder: Path) -> dict[str, float]:
    values = array.array("d")
    for file in folder.glob("latency-*"):
        values.frombytes(file.read_bytes())
    if not values:
        return {}
    late = np.array(values) * 1000
    return {name: round(float(np.quantile(late, q)), 2) for name, q in
            (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))}  # fmt: skip


def _sum(board: Board, tasks: list[int], word: int) -> int:
    return sum(board.get(task, word) for task in tasks)

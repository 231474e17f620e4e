"""One benchmark run: submit, warm up, measure a steady window, stop the source, drain, compare every count."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.calibration import REFERENCE_NS, nanoseconds_per_step
from benchmarks.cluster import Cluster, Usage
from benchmarks.latency import percentiles
from benchmarks.topologies import ACKED, DONE, EMITTED, EXECUTED, FAILED, MEASURE, ROW_BYTES, STOP, Board

WARM_UP_SECONDS = 3.0
DRAIN_SECONDS = 60.0
PACKAGES = ("heronry", "grpcio", "protobuf", "numpy", "msgspec", "mmh3", "uvloop")


class TuplesLost(Exception):
    """Mismatch between the counts at the end and the source."""


@dataclass(frozen=True)
class Options:
    """Case to run.

    ``rate``: tuples/s over all spouts, 0 for full speed; ``spouts``: 0 for as many as ``tasks``; ``overrides``:
    topology.* and heron.* keys.
    """

    case: str
    acks: bool = False
    tasks: int = 1
    containers: int = 1
    rate: float = 0.0
    seconds: float = 10.0
    bolt: str = "process"
    size: int = 100
    branches: int = 4
    overrides: dict[str, Any] = field(default_factory=dict)
    spouts: int = 0

    def settings(self, family: str) -> dict[str, Any]:
        """Return the overrides of one family of keys, ``topology.`` or ``heron.``."""
        return {key: value for key, value in self.overrides.items() if key.startswith(family)}


def run_in_checkout(checkout: Path, options: Options) -> dict[str, Any]:
    """Run one case with the code of another checkout, in the same environment.

    Args:
        checkout: root of the other checkout.
        options: the case; ``spouts`` must be 0.

    Returns:
        The figures, as ``run`` returns them.

    Raises:
        subprocess.CalledProcessError: the run failed, or lost a tuple.
    """
    words = [options.case, "--tasks", options.tasks, "--containers", options.containers, "--rate", options.rate]
    words += ["--seconds", options.seconds, "--bolt", options.bolt, "--size", options.size]
    words += ["--branches", options.branches, *(["--acks"] if options.acks else [])]
    for key, value in options.overrides.items():
        words += ["--set", f"{key}={json.dumps(value)}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, words), "--json", "-"],
        cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def run(options: Options) -> dict[str, Any]:
    """Run one case; return the figures as a plain dictionary. Raises TuplesLost, CalledProcessError."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SIGTERM kills the topology
    before = nanoseconds_per_step()
    cluster = Cluster()
    try:
        board_file = cluster.home / "board"
        arguments, config = prepared(cluster, options, board_file)
        began = time.monotonic()
        cluster.submit(arguments, options.settings("heron."))
        startup = time.monotonic() - began
        measure = _idle if options.case == "idle" else _measure
        figures = measure(cluster, Board(str(board_file)), options)
        return {
            "case": options.case, "acks": options.acks, "tasks": options.tasks, "containers": options.containers,
            "rate": options.rate, "bolt": options.bolt, "size": config["user.size"], "set": options.overrides,
            **figures,
            "startup_s": round(startup, 2),
            "calibration_ns": round((before + nanoseconds_per_step()) / 2, 1), "calibration_reference_ns": REFERENCE_NS,
            "versions": {name: version(name) for name in PACKAGES},
            "machine": {"cpus": psutil.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        }  # fmt: skip
    except TuplesLost as error:
        kept = cluster.keep_logs()
        raise TuplesLost(f"{error}; logs and metrics: {kept}") from None
    finally:
        cluster.close()


def prepared(cluster: Cluster, options: Options, board_file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Create an empty board; return the arguments and the configuration of the benchmark topology."""
    board_file.write_bytes(bytes(ROW_BYTES * 4096))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE" if options.acks else "ATMOST_ONCE",
        "topology.stmgrs": options.containers,
        "user.board": str(board_file), "user.folder": str(cluster.home),
        "user.acks": options.acks, "user.rate": options.rate,
        "user.size": options.size if options.case == "payload" else 0,
        **options.settings("topology."), **options.settings("user."),
    }  # fmt: skip
    arguments = {
        "name": cluster.name, "case": options.case, "tasks": options.tasks, "bolt": options.bolt,
        "branches": options.branches, "spouts": options.spouts or options.tasks, "config": config,
    }  # fmt: skip
    return arguments, config


def _measure(cluster: Cluster, board: Board, options: Options) -> dict[str, Any]:
    processes = [p for p in cluster.processes() if p["kind"] == "heron_instance"]
    spouts = [p["task"] for p in processes if p["component"] == "spout"]
    counted = [p for p in processes if p["component"].startswith(("last", "distributor"))]
    time.sleep(WARM_UP_SECONDS)
    board.put(MEASURE, 1)
    first, emitted_first, at_first = cluster.usage(), total(board, spouts, EMITTED), time.perf_counter()
    load_first = _machine_cpu()
    time.sleep(options.seconds)
    second, emitted_second, at_second = cluster.usage(), total(board, spouts, EMITTED), time.perf_counter()
    load = (_machine_cpu() - load_first) / (at_second - at_first)
    board.put(MEASURE, 0)
    emitted, seconds = emitted_second - emitted_first, at_second - at_first
    figures = {
        "seconds": round(seconds, 2),
        "tuples_per_second": round(emitted / seconds),
        "cpu_us_per_tuple": round(second.since(first) / emitted * 1e6, 3) if emitted else None,
        **_cores(first, second, seconds),
        **_memory(cluster.usage(memory=True)),
    }
    figures["other_load_cores"] = round(max(0.0, load - figures["cores"]), 2)
    board.put(STOP, 1)
    figures |= drain(board, spouts, counted, options.acks)
    figures["latency_ms"] = percentiles(cluster.home, "latency")
    figures["complete_latency_ms"] = percentiles(cluster.home, "complete")
    return figures


def _idle(cluster: Cluster, board: Board, options: Options) -> dict[str, Any]:
    time.sleep(WARM_UP_SECONDS)
    first, at_first = cluster.usage(), time.perf_counter()
    time.sleep(options.seconds)
    second, seconds = cluster.usage(), time.perf_counter() - at_first
    return {"seconds": round(seconds, 2), **_cores(first, second, seconds), **_memory(cluster.usage(memory=True))}


def _machine_cpu() -> float:
    """Return the CPU seconds of all processes on this machine."""
    times = psutil.cpu_times()
    return float(times.user + times.system)


def _cores(first: Usage, second: Usage, seconds: float) -> dict[str, Any]:
    return {
        "cores": round(second.since(first) / seconds, 4),
        "cores_by_kind": {kind: round(used / seconds, 4) for kind, used in second.by_kind_since(first).items()},
    }


def _memory(usage: Usage) -> dict[str, Any]:
    def mean(pids: list[int]) -> float:
        return round(sum(usage.pss_bytes[pid] for pid in pids) / max(1, len(pids)) / 1e6, 2)

    kinds = sorted({usage.kinds[pid] for pid in usage.pss_bytes})
    return {
        "rss_mb": round(usage.rss_bytes / 1e6, 1),
        "pss_mb_per_process": mean(list(usage.pss_bytes)),
        "pss_mb_by_kind": {kind: mean([p for p in usage.pss_bytes if usage.kinds[p] == kind]) for kind in kinds},
        "processes": len(usage.pss_bytes),
    }


def drain(board: Board, spouts: list[int], counted: list[dict[str, Any]], acks: bool) -> dict[str, Any]:
    """Wait until every tuple has arrived everywhere."""
    components = sorted({p["component"] for p in counted})
    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        emitted = total(board, spouts, EMITTED)
        executed = {c: total(board, [p["task"] for p in counted if p["component"] == c], EXECUTED) for c in components}
        finished = all(board.get(task, DONE) for task in spouts)
        if finished and all(count == emitted for count in executed.values()):
            break
        if time.monotonic() > deadline:
            acked, failed = total(board, spouts, ACKED), total(board, spouts, FAILED)
            raise TuplesLost(f"emitted {emitted}, acked {acked}, failed {failed}, executed {executed}")
        time.sleep(0.1)
    failed = total(board, spouts, FAILED)
    if acks and total(board, spouts, ACKED) != emitted:
        raise TuplesLost(f"emitted {emitted}, acked {total(board, spouts, ACKED)}, failed {failed}")
    return {"emitted": emitted, "executed": executed, "failed": failed}


def total(board: Board, tasks: list[int], word: int) -> int:
    return sum(board.get(task, word) for task in tasks)

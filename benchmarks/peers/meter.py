"""Measurement of one peer's program: CPU of the program and all its descendants over the steady part of the run.

The program records its progress (``programs/peer_load.py``). The steady part is between 30 % and 95 % of all tuples, so
start, warm-up of a JVM and the end do not count. A program that measures itself prints a JSON object instead.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from benchmarks.calibration import REFERENCE_NS, nanoseconds_per_step

PROGRAMS = Path(__file__).resolve().parent / "programs"
SAMPLE_SECONDS = 0.05
STEADY = (0.30, 0.95)

Curve = list[tuple[float, float]]


class PeerFailed(Exception):
    """Failure or timeout of the program."""


def measure(command: list[str], tuples: int, parallel: int, limit_seconds: float, **variables: str) -> dict[str, Any]:
    """Run the program; return its figures. Raises PeerFailed."""
    folder = Path(tempfile.mkdtemp(prefix="heronry-peer-"))
    environment = {
        **os.environ, "PEER_FOLDER": str(folder), "PEER_TUPLES": str(tuples), "PEER_PARALLEL": str(parallel),
        "PYTHONPATH": str(PROGRAMS), "PYTHONDONTWRITEBYTECODE": "1", **variables,
    }  # fmt: skip
    before = nanoseconds_per_step()
    try:
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            process = subprocess.Popen(command, cwd=PROGRAMS, env=environment, stdout=out, stderr=err)
            used = watch(process, time.monotonic() + limit_seconds)
        if process.returncode != 0:
            raise PeerFailed(_tail(folder / "err") or f"exit code {process.returncode}")
        said = (folder / "out").read_text().strip().splitlines()
        if said and said[-1].startswith("{"):
            figures: dict[str, Any] = json.loads(said[-1])
        else:
            figures = _steady(used, _progress(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    after = nanoseconds_per_step()
    return figures | {"calibration_ns": round((before + after) / 2, 1), "calibration_reference_ns": REFERENCE_NS}


def watch(process: subprocess.Popen[bytes], deadline: float) -> Curve:
    """Return the CPU seconds of the program and its descendants over time, including ended ones.

    Raises PeerFailed at the deadline, and ends all processes.
    """
    root, used, curve = psutil.Process(process.pid), dict[int, float](), Curve()
    while process.poll() is None:
        family = _family(root)
        for member in family:
            try:
                times = member.cpu_times()
                used[member.pid] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
        curve.append((time.time(), sum(used.values())))
        if time.monotonic() > deadline:
            for member in family:
                try:
                    member.kill()
                except psutil.NoSuchProcess:
                    continue
            process.wait()
            raise PeerFailed("not through in time")
        time.sleep(SAMPLE_SECONDS)
    return curve


def _family(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _progress(folder: Path) -> Curve:
    """Return the tuples counted by all workers together over time."""
    notes: list[tuple[float, float]] = []
    for file in folder.glob("progress.*"):
        last = 0.0
        for line in file.read_text().splitlines():
            moment, count = map(float, line.split())
            notes.append((moment, count - last))
            last = count
    curve, total = Curve(), 0.0
    for moment, more in sorted(notes):
        total += more
        curve.append((moment, total))
    return curve


def _steady(used: Curve, progress: Curve) -> dict[str, Any]:
    if not progress or not used:
        raise PeerFailed("it has counted nothing")
    total = progress[-1][1]
    counts = [count for _, count in progress]
    start, stop = (progress[bisect_left(counts, share * total)] for share in STEADY)
    seconds, tuples = stop[0] - start[0], stop[1] - start[1]
    if seconds <= 0 or tuples <= 0:
        raise PeerFailed("the run was too short to measure")
    cpu = _at(used, stop[0]) - _at(used, start[0])
    return {
        "tuples_per_second": round(tuples / seconds), "cpu_us_per_tuple": round(cpu / tuples * 1e6, 3),
        "cores": round(cpu / seconds, 2), "tuples": int(total),
    }  # fmt: skip


def _at(curve: Curve, moment: float) -> float:
    for (t0, v0), (t1, v1) in pairwise(curve):
        if moment <= t1:
            return v0 + (v1 - v0) * max(0.0, moment - t0) / max(t1 - t0, 1e-9)
    return curve[-1][1]


def _tail(file: Path) -> str:
    lines = file.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""

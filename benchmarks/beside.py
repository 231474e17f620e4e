"""A program to be measured beside Heronry, in alternation: a folder with a ``proto.py`` that runs a topology by itself.

``python proto.py run '{"containers": 1, "comps": [["spout", 1], ["count", 1]], "acks": true, "dur": 6}'`` must print a
JSON object with ``cpu_us/tuple``, ``emit/s`` and ``cores``. The folder is given by ``--beside`` or by the environment
variable ``HERONRY_BENCH_BESIDE``; without it nothing is run and the table says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.calibration import REFERENCE_NS, nanoseconds_per_step
from benchmarks.run import Options

VARIABLE = "HERONRY_BENCH_BESIDE"
RTAC: dict[str, Any] = {
    "comps": ["spout", "dist", "ucount", "agg"],
    "edges": {"spout": ["dist", "shuffle"], "dist": ["ucount", "fields", 0], "ucount": ["agg", "shuffle"]},
    "bolt": {"dist": "dist", "ucount": "ucount", "agg": "agg"},
    "rtac": True,
}


def folder(option: str) -> Path | None:
    """Where the program is, if it is anywhere."""
    found = Path(option or os.environ.get(VARIABLE) or "/nonexistent")
    return found if (found / "proto.py").exists() else None


def run_beside(program: Path, options: Options) -> dict[str, Any] | None:
    """The same case by that program: figures, or None if it has no such case. Raises CalledProcessError."""
    if options.case not in ("wordcount", "rtac") or options.bolt != "process":
        return None
    asked: dict[str, Any] = {"containers": options.containers, "acks": options.acks, "dur": options.seconds}
    asked |= {"switch": 0.0005, "rate": options.rate}
    if options.case == "rtac":
        asked |= {**RTAC, "comps": [[name, options.tasks] for name in RTAC["comps"]]}
    else:
        asked["comps"] = [["spout", options.tasks], ["count", options.tasks]]
    scratch = tempfile.mkdtemp(prefix="heronry-beside-")
    before = nanoseconds_per_step()
    try:
        done = subprocess.run(
            [sys.executable, "proto.py", "run", json.dumps(asked)],
            cwd=program, env={**os.environ, "PDIR": scratch, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=60 + options.seconds,
        )  # fmt: skip
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    said = json.loads(done.stdout.strip().splitlines()[-1])
    spout = said["by"]["spout"].get("lat", {})
    return {
        "cpu_us_per_tuple": said["cpu_us/tuple"],
        "tuples_per_second": said["emit/s"],
        "cores": said["cores"],
        "complete_latency_ms": {"p50": spout.get("50"), "p99": spout.get("99")},
        "calibration_ns": round((before + nanoseconds_per_step()) / 2, 1),
        "calibration_reference_ns": REFERENCE_NS,
    }

"""Flame graphs of every kind of process during a word count with acks.

By default, it runs at full speed with two tasks of each component in two containers.

    pip install py-spy; .venv/bin/python -m benchmarks.flames docs/images

Requires the right to trace processes (root, or ``kernel.yama.ptrace_scope`` 0). Idle threads are left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from benchmarks.cluster import NAME, kind_of
from benchmarks.run import Options, run

TITLES = {"spout": "an instance, a spout", "last": "an instance, a bolt"}
READY_SECONDS = 60.0


def processes() -> dict[str, int]:
    """Return one process of each kind, once the topology runs."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        found: dict[str, int] = {}
        for process in psutil.process_iter(["pid", "cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if f"heron:{NAME}{os.getpid()}:" in line:
                found.setdefault(kind_of(line), process.pid)
        if {"spout", "last", "stream_manager"} <= set(found):
            return found
        time.sleep(0.5)
    raise TimeoutError("the benchmark topology does not run")


def main() -> int:
    """Record for some seconds, and write one SVG per kind."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flames", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the SVG files go")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0, help="tuples/s; 0: flat out")
    parser.add_argument("--tasks", type=int, default=2, help="tasks of each component, and containers")
    options = parser.parse_args()
    recorder = shutil.which("py-spy") or str(Path(sys.executable).parent / "py-spy")
    if not Path(recorder).exists():
        print("py-spy is not installed: pip install py-spy", file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    work = Options("wordcount", True, options.tasks, options.tasks, options.rate, options.seconds + 10.0)
    load = threading.Thread(target=run, args=(work,))
    load.start()
    found = processes()
    time.sleep(8)  # past the start
    recorders = [
        subprocess.Popen(
            [recorder, "record", "--pid", str(pid), "--duration", str(options.seconds), "--rate", "100",
             "--nonblocking", "--function", "--format", "flamegraph",
             "--output", str(options.folder / f"flame-{kind}.svg")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for kind, pid in found.items()
    ]  # fmt: skip
    for kind, process in zip(found, recorders, strict=True):
        done = process.wait() == 0
        print(f"{TITLES.get(kind, kind)}: {'recorded' if done else 'no samples: it was idle'}")
    load.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())

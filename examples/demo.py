"""``make demo``: word count over a novel on the embedded cluster for about 20 seconds.

Uses the ``heron`` command and a home folder of its own, which is removed at the end. Exits with 1 if a process or
folder of the topology remains, or if no word was counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import psutil

from heron_cli.clusters import connect_cluster
from heron_control.inspection.inspector import SINCE_THE_START
from heron_runtime.failures import Unavailable
from heron_runtime.launch import Launch

SECONDS = 20
EACH_SECONDS = 2
NAME = "DemoWordCount"
ROOT = Path(__file__).resolve().parent.parent


def heron(*arguments: str) -> str:
    """Run one command and return its standard output. Raises CalledProcessError."""
    print(f"$ heron {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "heron_cli", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def metrics() -> dict[str, Any] | None:
    """Return totals by component as in ``heron metrics -o json``, or None if the topology does not answer.

    Asks in this process, since a new command would compete with a topology that uses every core.
    """
    try:
        cluster, address = connect_cluster("local")
        found = cluster.metrics(address, NAME, "", SINCE_THE_START, ())
    except (Unavailable, grpc.RpcError):
        return None
    return dict(found["components"])


def total(components: dict[str, Any], component: str, metric: str) -> int:
    """Return the total of a metric over all its streams."""
    values = components.get(component, {})
    return int(sum(v["total"] for name, v in values.items() if name.split("/")[0] == metric))


def top_words(output: Path, number: int = 5) -> str:
    """Return the most frequent words of the counters' files."""
    counts: Counter[str] = Counter()
    for file in output.glob("counts-*.json"):
        counts.update(json.loads(file.read_text()))
    return ", ".join(f"{word} {count}" for word, count in counts.most_common(number))


def watch(output: Path) -> int:
    """Print a line every two seconds and return the number of words counted."""
    print(f"\n{'lines':>10} {'acked':>10} {'words':>12}   most frequent")
    counted = 0
    began = time.monotonic()
    for moment in range(EACH_SECONDS, SECONDS + 1, EACH_SECONDS):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        now = metrics()
        if now is None:
            continue
        counted = total(now, "counts", "__execute-count")
        print(
            f"{total(now, 'lines', '__emit-count'):>10} {total(now, 'lines', '__ack-count'):>10} {counted:>12}"
            f"   {top_words(output)}",
            flush=True,
        )
    print()
    return counted


def find_leftovers(runtime: Path) -> list[str]:
    """Return the processes of the topology that still run, and the folder of its sockets if it exists."""
    found = [f"folder {runtime}"] if runtime.exists() else []
    for process in psutil.process_iter(["cmdline"]):
        if any(f"heron:{NAME}:" in part for part in process.info["cmdline"] or ()):
            found.append(f"process {process.pid}: {' '.join(process.info['cmdline'])}")
    return found


def main() -> int:
    """Submit the topology, watch it, kill it and check that nothing remains."""
    home = Path(tempfile.mkdtemp(prefix="heronry-demo-"))
    output = home / "output"
    output.mkdir()
    os.environ["HERONRY_HOME"] = str(home)
    submitted = False
    try:
        began = time.monotonic()
        heron(
            "submit", "local", "examples/word_count.py", "WordCount", "--name", NAME,
            "--config-property", "heron.metrics.interval.secs=1",
            "--", str(ROOT / "examples/data/northanger_abbey.txt"), str(output), "0",
        )  # fmt: skip
        submitted = True
        print(f"every task runs after {time.monotonic() - began:.1f} s")
        (launch,) = home.glob(f"topologies/local/*/default/{NAME}/launch.json")
        runtime = Path(Launch.load(launch).runtime_dir)
        counted = watch(output)
        print(heron("status", "local", NAME))
        heron("kill", "local", NAME)
        submitted = False
    except subprocess.CalledProcessError as error:
        print(f"heron {error.cmd[3]} ended with {error.returncode}", file=sys.stderr)
        return 1
    finally:
        if submitted:
            subprocess.run([sys.executable, "-m", "heron_cli", "kill", "local", NAME], cwd=ROOT, check=False)
        shutil.rmtree(home, ignore_errors=True)
    leftovers = find_leftovers(runtime)
    for line in leftovers:
        print(f"remains: {line}", file=sys.stderr)
    if not counted:
        print("no word was counted", file=sys.stderr)
    print("no process or folder of the topology remains" if not leftovers else "")
    return 1 if leftovers or not counted else 0


if __name__ == "__main__":
    sys.exit(main())

"""``make demo``: word count over a novel on the embedded cluster, through the front door, for about 20 seconds.

It uses the ``heron`` command: submit, status, kill, and what ``heron metrics`` asks, in a home of its own that is
removed at the end. It exits with 1 if anything of the topology is left behind, or if nothing was counted.
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
    """Run one command; its standard output. Raises CalledProcessError."""
    print(f"$ heron {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "heron_cli", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def metrics() -> dict[str, Any] | None:
    """Totals by component, as ``heron metrics -o json`` gives them; None if nobody can tell at this moment.

    Asked for in this process: a new command each time would take its turn behind a topology that uses every core.
    """
    try:
        cluster, address = connect_cluster("local")
        found = cluster.metrics(address, NAME, "", SINCE_THE_START, ())
    except (Unavailable, grpc.RpcError):
        return None
    return dict(found["components"])


def total(components: dict[str, Any], component: str, metric: str) -> int:
    """The total of one metric over all its streams."""
    values = components.get(component, {})
    return int(sum(v["total"] for name, v in values.items() if name.split("/")[0] == metric))


def top_words(output: Path, number: int = 5) -> str:
    """The most frequent words so far, from what the counters wrote."""
    counts: Counter[str] = Counter()
    for file in output.glob("counts-*.json"):
        counts.update(json.loads(file.read_text()))
    return ", ".join(f"{word} {count}" for word, count in counts.most_common(number))


def watch(output: Path) -> int:
    """A line every two seconds; the number of words counted."""
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


def left_behind(runtime: Path) -> list[str]:
    """Processes of the topology that still live, and the folder of its sockets."""
    found = [f"folder {runtime}"] if runtime.exists() else []
    for process in psutil.process_iter(["cmdline"]):
        if any(f"heron:{NAME}:" in part for part in process.info["cmdline"] or ()):
            found.append(f"process {process.pid}: {' '.join(process.info['cmdline'])}")
    return found


def main() -> int:
    """Submit, watch, kill, look for leftovers."""
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
    leftovers = left_behind(runtime)
    for line in leftovers:
        print(f"left behind: {line}", file=sys.stderr)
    if not counted:
        print("nothing was counted", file=sys.stderr)
    print("nothing is left behind" if not leftovers else "")
    return 1 if leftovers or not counted else 0


if __name__ == "__main__":
    sys.exit(main())

"""``make demo``: word count over a novel on the embedded cluster, through the front door, for about 20 seconds.

It uses nothing but the ``heron`` command: submit, metrics, status, kill, in a home of its own that is removed at the
end. It exits with 1 if anything of the topology is left behind, or if nothing was counted.
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

import psutil

SECONDS = 20
NAME = "DemoWordCount"
ROOT = Path(__file__).resolve().parent.parent


def heron(*arguments: str, home: Path, quiet: bool = False) -> str:
    """Run one command; its standard output. Raises CalledProcessError."""
    if not quiet:
        print(f"$ heron {' '.join(arguments)}", flush=True)
    environment = {**os.environ, "HERONRY_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-m", "heronry.cli", *arguments],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def metrics(home: Path) -> dict[str, Any]:
    """Totals by component, as ``heron metrics -o json`` gives them."""
    reply = json.loads(heron("metrics", "local", NAME, "-o", "json", home=home, quiet=True))
    return dict(reply["components"])


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


def watch(home: Path, output: Path) -> int:
    """A line every two seconds; the number of words counted."""
    print(f"\n{'lines':>10} {'acked':>10} {'words':>12}   most frequent")
    counted = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(2)
        now = metrics(home)
        counted = total(now, "counts", "__execute-count")
        print(
            f"{total(now, 'lines', '__emit-count'):>10} {total(now, 'lines', '__ack-count'):>10} {counted:>12}"
            f"   {top_words(output)}",
            flush=True,
        )
    print()
    return counted


def left_behind() -> list[str]:
    """Processes of the topology that still live."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(f"heron:{NAME}:" in part for part in process.info["cmdline"] or ()):
            found.append(f"process {process.pid}: {' '.join(process.info['cmdline'])}")
    return found


def main() -> int:
    """Submit, watch, kill, look for leftovers."""
    home = Path(tempfile.mkdtemp(prefix="heronry-demo-"))
    output = home / "output"
    output.mkdir()
    submitted = False
    try:
        began = time.monotonic()
        heron(
            "submit", "local", "examples/word_count.py", "WordCount", "--name", NAME,
            "--config-property", "heron.metrics.interval.secs=1",
            "--", str(ROOT / "examples/data/northanger_abbey.txt"), str(output), "0",
            home=home,
        )  # fmt: skip
        submitted = True
        print(f"every task runs after {time.monotonic() - began:.1f} s")
        counted = watch(home, output)
        print(heron("status", "local", NAME, home=home))
        heron("kill", "local", NAME, home=home)
        submitted = False
    except subprocess.CalledProcessError as error:
        print(f"heron {error.cmd[3]} ended with {error.returncode}", file=sys.stderr)
        return 1
    finally:
        if submitted:
            subprocess.run([sys.executable, "-m", "heronry.cli", "kill", "local", NAME], cwd=ROOT,
                           env={**os.environ, "HERONRY_HOME": str(home)}, check=False)  # fmt: skip
        shutil.rmtree(home, ignore_errors=True)
    leftovers = left_behind()
    for line in leftovers:
        print(f"left behind: {line}", file=sys.stderr)
    if not counted:
        print("nothing was counted", file=sys.stderr)
    print("nothing is left behind" if not leftovers else "")
    return 1 if leftovers or not counted else 0


if __name__ == "__main__":
    sys.exit(main())

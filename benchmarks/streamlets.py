"""Streamlet word count compared with the hand-written topology, in CPU per word (``python -m benchmarks.streamlets``).

Both are the shipped examples over the same repeated text. Both are submitted paused, so that the measurement starts
with the first line and ends when every count is on disk and correct. CPU is that of all processes of the topology.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.calibration import REFERENCE_NS, nanoseconds_per_step
from benchmarks.cluster import ROOT, Cluster
from heronry.streamlet.results import finished, latest, read

TEXT = ROOT / "examples" / "data" / "northanger_abbey.txt"
DEADLINE_SECONDS = 240.0


class CountsDiffer(Exception):
    """Result with wrong counts."""


def handwritten(folder: Path) -> Counter[str]:
    """Return the counts that the hand-written counters have written so far."""
    found: Counter[str] = Counter()
    for file in folder.glob("counts-*.json"):
        found.update(json.loads(file.read_text()))
    return found


def streamlet(folder: Path) -> Counter[str]:
    """Return the counts of the Streamlet program once they are final."""
    return Counter(dict(latest(read(folder)))) if finished(folder) else Counter()


CASES: dict[str, tuple[str, str, Callable[[Path], Counter[str]]]] = {
    "hand-written": ("examples/word_count.py", "WordCount", handwritten),
    "streamlet": ("examples/streamlet_word_count.py", "words", streamlet),
}


def run(case: str, rounds: int) -> dict[str, Any]:
    """Run one case; return its figures. Raises CountsDiffer."""
    file, identifier, counted = CASES[case]
    truth = Counter(re.findall(r"[a-z']+", TEXT.read_text().lower()))
    words = rounds * truth.total()
    truth = Counter({word: rounds * n for word, n in truth.items()})
    before = nanoseconds_per_step()
    cluster = Cluster()
    try:
        text, output = cluster.home / "text.txt", cluster.home / "output"
        text.write_text(TEXT.read_text() * rounds)
        output.mkdir()
        submit = ["submit", "local", "--deploy-deactivated", "--name", cluster.name, file, identifier]
        cluster.heron(*submit, "--", str(text), str(output))
        first, began = cluster.usage(), time.monotonic()
        cluster.heron("activate", "local", cluster.name)
        while counted(output) != truth:
            if time.monotonic() - began > DEADLINE_SECONDS:
                raise CountsDiffer(f"{case}: {counted(output).total()} of {words} words after {DEADLINE_SECONDS:g} s")
            time.sleep(0.25)
        seconds, last = time.monotonic() - began, cluster.usage()
        cpu = last.since(first)
        scale = REFERENCE_NS / ((before + nanoseconds_per_step()) / 2)
        return {
            "case": case, "words": words, "seconds": round(seconds, 2), "cpu_us_per_word": round(cpu / words * 1e6, 3),
            "cpu_us_calibrated": round(cpu / words * 1e6 * scale, 3),
            "cpu_s_by_kind": {kind: round(s, 2) for kind, s in last.by_kind_since(first).items()},
        }  # fmt: skip
    finally:
        cluster.close()


def main() -> int:
    """Run both cases; the target is that the program is not more expensive per word."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streamlets", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how often the text is repeated")
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    figures = [run(case, options.rounds) for case in CASES if options.only in (None, case)]
    for row in figures:
        print(json.dumps(row), flush=True)
    if len(figures) == 2:
        by_hand, program = (row["cpu_us_calibrated"] for row in figures)
        verdict = "met" if program <= by_hand else "NOT MET"
        print(f"CPU per word: by hand {by_hand} µs, streamlet {program} µs ({by_hand / program:.1f} times): {verdict}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the lessons of Storm's redesign are worth here: each taken away and given back in alternation.

.venv/bin/python -m benchmarks.lessons [--runs 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.run import Options, TuplesLost, run

WITHOUT = Path(__file__).resolve().parent / "without.py"


@dataclass(frozen=True)
class Lesson:
    """A case, and what is set to go without the lesson."""

    name: str
    options: Options
    without: tuple[tuple[str, Any], ...] = ()

    def both(self, seconds: float) -> tuple[Options, Options]:
        """With the lesson, and without."""
        given = dict(self.without) or {"user.without": self.name, "user.without.file": str(WITHOUT)}
        options = replace(self.options, seconds=seconds)
        return options, replace(options, overrides=given)


LESSONS = (
    Lesson("one level of batches", Options("wordcount", True)),
    Lesson("flush when idle", Options("wordcount", True, rate=1_000)),
    Lesson("no wake-up per tuple", Options("wordcount", True)),
    Lesson("skip the empty ack queue", Options("wordcount", False)),
    Lesson("a wake-up preempts nobody", Options("wordcount", True, 2, 2), (("heron.process.scheduling", "normal"),)),
)


def line(lesson: Lesson, results: list[list[dict[str, Any]]]) -> str:
    """One row: with and without."""
    cells = [lesson.name]
    for name in ("cpu_us_per_tuple", "p50", "p99"):
        for side in results:
            values = [r["complete_latency_ms"].get(name) if name[0] == "p" else r[name] for r in side]
            found = [value for value in values if value is not None]
            cells.append(str(round(statistics.median(found), 2)) if found else "")
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Measure each lesson; print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lessons", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", default="", help="lessons whose name contains this")
    parser.add_argument("--json", type=Path, help="write every run there")
    options = parser.parse_args()
    heads = ("lesson", "CPU µs/tuple with", "without", "p50 ms with", "without", "p99 ms with", "without")
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads), flush=True)
    everything = {}
    for lesson in LESSONS:
        if options.only not in lesson.name:
            continue
        sides: list[list[dict[str, Any]]] = [[], []]
        try:
            for number in range(options.runs):
                for side in (0, 1) if number % 2 == 0 else (1, 0):
                    sides[side].append(run(lesson.both(options.seconds)[side]))
        except TuplesLost as error:
            print(f"{lesson.name}: {error}", file=sys.stderr)
            return 1
        everything[lesson.name] = sides
        print(line(lesson, sides), flush=True)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

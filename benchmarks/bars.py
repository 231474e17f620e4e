"""``make bench``: the table of cases and bars, each case several times, medians, raw and divided by the calibration.

A figure divided by (calibration / reference) says what the case would have cost on the reference machine when quiet. A
bar counts as met within 15 %. Nothing here fails on time: it prints and records.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.run import TuplesLost, run

TOLERANCE = 1.15


@dataclass(frozen=True)
class Case:
    """One row: what to run, and the CPU microseconds per spout tuple it should not exceed."""

    name: str
    case: str
    acks: bool
    tasks: int
    containers: int
    bar_us: float | None
    rate: float = 0.0
    bolt: str = "process"


CASES = (
    Case("word count 1/1, no acks", "wordcount", False, 1, 1, 1.8),
    Case("word count 1/1, acks", "wordcount", True, 1, 1, 3.0),
    Case("word count 1/1, no acks, batch bolt", "wordcount", False, 1, 1, None, bolt="batch"),
    Case("word count 1/1, acks, batch bolt", "wordcount", True, 1, 1, None, bolt="batch"),
    Case("word count 2/2, 2 containers, no acks", "wordcount", False, 2, 2, 2.5),
    Case("word count 2/2, 2 containers, acks", "wordcount", True, 2, 2, 4.2),
    Case("RTAC saturated, acks", "rtac", True, 1, 1, 5.0),
    Case("RTAC at 100 000/s, acks", "rtac", True, 1, 1, None, rate=100_000),
    Case("RTAC at 100 000/s, acks, 2 containers", "rtac", True, 1, 2, None, rate=100_000),
    Case("word count at 1 000/s, acks", "wordcount", True, 1, 1, None, rate=1_000),
)


def measure(case: Case, runs: int, seconds: float) -> dict[str, Any]:
    """Run a case and take medians. Raises TuplesLost."""
    results = [
        run(case.case, case.acks, case.tasks, case.containers, case.rate, seconds, case.bolt, 100, {})
        for _ in range(runs)
    ]

    def median(*path: str) -> float | None:
        values = []
        for result in results:
            value: Any = result
            for key in path:
                value = value.get(key) if value else None
            if value is not None:
                values.append(float(value))
        return round(statistics.median(values), 3) if values else None

    scaled = [r["cpu_us_per_tuple"] * r["calibration_reference_ns"] / r["calibration_ns"] for r in results]
    return {
        "name": case.name,
        "bar_us": case.bar_us,
        "tuples_per_second": median("tuples_per_second"),
        "cpu_us_per_tuple": median("cpu_us_per_tuple"),
        "cpu_us_calibrated": round(statistics.median(scaled), 3),
        "cores": median("cores"),
        "p50_ms": median("complete_latency_ms", "p50"),
        "p99_ms": median("complete_latency_ms", "p99"),
        "startup_s": median("startup_s"),
        "runs": results,
    }


def row(figures: dict[str, Any]) -> str:
    """One line of the table."""
    bar = figures["bar_us"]
    verdict = "" if bar is None else ("met" if figures["cpu_us_calibrated"] <= bar * TOLERANCE else "NOT MET")
    cells = (
        figures["name"], f"{figures['tuples_per_second']:,.0f}", figures["cpu_us_per_tuple"],
        figures["cpu_us_calibrated"], bar or "", verdict, figures["cores"],
        figures["p50_ms"] or "", figures["p99_ms"] or "",
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main() -> int:
    """Run every case; print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bars", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", type=Path, help="write every run there")
    options = parser.parse_args()
    print("| case | tuples/s | CPU µs/tuple | calibrated | bar | | cores | p50 ms | p99 ms |", flush=True)
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    everything = []
    for case in CASES:
        if options.only not in case.name:
            continue
        try:
            figures = measure(case, options.runs, options.seconds)
        except TuplesLost as error:
            print(f"{case.name}: tuples lost: {error}", file=sys.stderr)
            return 1
        everything.append(figures)
        print(row(figures), flush=True)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

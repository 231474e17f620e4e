"""Table of benchmark cases and their targets (``make bench``).

Each case runs several times; the table shows medians, raw and divided by the calibration. With ``--against CHECKOUT``
the same cases run in another checkout of Heronry, in alternation, so that both run under the same conditions.

A figure divided by (calibration / reference) is an estimate for the idle reference machine. A target counts as met
within 15 %. A slow run does not fail; a lost tuple does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.run import Options, TuplesLost, run, run_in_checkout

TOLERANCE = 1.15


@dataclass(frozen=True)
class Case:
    """Row of the table: the case to run, and limits by the name of the figure."""

    name: str
    options: Options
    bars: tuple[tuple[str, float], ...] = ()
    then: tuple[tuple[str, float], ...] = ()  # further targets


def _case(name: str, case: str, acks: bool, tasks: int, containers: int, bar: Any, then: Any, **more: Any) -> Case:
    return Case(name, Options(case, acks, tasks, containers, **more), _bars(bar), _bars(then))


def _bars(given: Any) -> tuple[tuple[str, float], ...]:
    return (("cpu_us_per_tuple", given),) if isinstance(given, int | float) else tuple((given or {}).items())


CASES = (
    _case("word count 1/1, no acks", "wordcount", False, 1, 1, 1.8, 1.2),
    _case("word count 1/1, acks", "wordcount", True, 1, 1, 3.0, 2.0),
    _case("word count 1/1, no acks, batch bolt", "wordcount", False, 1, 1, None, None, bolt="batch"),
    _case("word count 1/1, acks, batch bolt", "wordcount", True, 1, 1, None, None, bolt="batch"),
    _case("word count 2/2, 2 containers, no acks", "wordcount", False, 2, 2, 2.5, 1.8),
    _case("word count 2/2, 2 containers, acks", "wordcount", True, 2, 2, 4.2, 3.0),
    _case("RTAC saturated, acks", "rtac", True, 1, 1, 5.0, 4.0),
    _case("RTAC at 100 000/s, acks", "rtac", True, 1, 1, {"cores": 1.1, "p50": 12, "p99": 24}, {"cores": 0.7},
          rate=100_000),
    _case("RTAC at 100 000/s, acks, 2 containers", "rtac", True, 1, 2, {"cores": 1.4, "p99": 40},
          {"cores": 0.9, "p99": 24}, rate=100_000),
    _case("word count at 1 000/s, acks", "wordcount", True, 1, 1, {"p50": 5, "p99": 12}, None, rate=1_000),
    _case("idle, 20 tasks", "idle", True, 10, 1, {"cores": 0.03}, None, seconds=30.0),
    _case("start of 100 tasks", "idle", True, 50, 2, {"startup_s": 12, "pss_mb_per_task": 10}, None, seconds=5.0),
)  # fmt: skip


def figures_of(result: dict[str, Any]) -> dict[str, float]:
    """Return the figures with targets, raw and (``…_calibrated``: CPU only) as on the idle reference machine."""
    late = result.get("complete_latency_ms") or {}
    found = {name: result.get(name) for name in ("cpu_us_per_tuple", "tuples_per_second", "cores", "startup_s")}
    found |= {"p50": late.get("p50"), "p99": late.get("p99")}
    tasks = {kind: mb for kind, mb in result.get("pss_mb_by_kind", {}).items() if kind.startswith(("spout", "last"))}
    if tasks:
        found["pss_mb_per_task"] = sum(tasks.values()) / len(tasks)
    slower = result["calibration_ns"] / result["calibration_reference_ns"]
    for name in ("cpu_us_per_tuple", "cores"):
        if found[name] is not None:
            found[f"{name}_calibrated"] = found[name] / slower
    return {name: float(value) for name, value in found.items() if value is not None}


def medians(results: list[dict[str, Any]]) -> dict[str, float]:
    """Return the median of each figure."""
    all_figures = [figures_of(result) for result in results]
    names = {name for figures in all_figures for name in figures}
    return {name: round(statistics.median([f[name] for f in all_figures if name in f]), 3) for name in sorted(names)}


def measure(case: Case, runs: int, seconds: float, checkout: Path | None) -> dict[str, Any]:
    """Run a case, in alternation with the same case in ``checkout``. Raises TuplesLost."""
    options = case.options if case.options.case == "idle" else replace(case.options, seconds=seconds)
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for number in range(runs):
        for turn in (0, 1) if number % 2 == 0 else (1, 0):
            if turn == 0:
                ours.append(run(options))
            elif checkout is not None:
                theirs.append(run_in_checkout(checkout, options))
    figures = medians(ours)
    return {
        "name": case.name,
        "figures": figures,
        "against": medians(theirs) if theirs else None,
        "bars": {name: [bar, _met(figures, name, bar)] for name, bar in case.bars},
        "then": {name: [bar, _met(figures, name, bar)] for name, bar in case.then},
        "other_load_cores": [result.get("other_load_cores") for result in ours],
        "runs": ours,
        "runs_against": theirs,
    }


def _met(figures: dict[str, float], name: str, bar: float) -> bool:
    found = figures.get(f"{name}_calibrated", figures.get(name))
    return found is not None and found <= bar * TOLERANCE


HEADER = ("case", "tuples/s", "CPU µs/tuple", "calibrated", "other checkout", "ratio", "cores", "p50 / p99 ms", "bars")


def row(found: dict[str, Any]) -> str:
    """Return one line of the table."""
    f, other = found["figures"], found["against"] or {}
    ours, theirs = f.get("cpu_us_per_tuple"), other.get("cpu_us_per_tuple")
    bars = [f"{name} {bar} {'met' if met else '**not met**'}" for name, (bar, met) in found["bars"].items()]
    more = [f"{name} {f[name]}" for name in ("startup_s", "pss_mb_per_task") if name in found["bars"] and name in f]
    cells = (
        found["name"], f"{f['tuples_per_second']:,.0f}" if "tuples_per_second" in f else "", ours or "",
        f.get("cpu_us_per_tuple_calibrated", ""), theirs or "", round(ours / theirs, 2) if ours and theirs else "",
        f"{f['cores']} ({f['cores_calibrated']})", f"{f['p50']} / {f['p99']}" if "p50" in f else "",
        "; ".join(more + bars),
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main() -> int:
    """Run every case and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bars", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="run the same cases there, in alternation")
    parser.add_argument("--json", type=Path, help="write every run there")
    options = parser.parse_args()
    print("| " + " | ".join(HEADER) + " |\n|" + " --- |" * len(HEADER), flush=True)
    everything = []
    for case in CASES:
        if options.only not in case.name:
            continue
        try:
            everything.append(measure(case, options.runs, options.seconds, options.against))
        except (TuplesLost, subprocess.CalledProcessError) as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            return 1
        print(row(everything[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

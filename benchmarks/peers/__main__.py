"""Comparison with other engines (``make bench-peers``): runs in alternation, with medians and ratios.

The ratio is the peer's CPU per tuple divided by Heronry's in the same case, both divided by the calibration around each
run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.install import PEERS, NotInstalled, python_of
from benchmarks.peers.meter import PeerFailed, measure
from benchmarks.run import Options, TuplesLost, run


@dataclass(frozen=True)
class Row:
    """Peer's program and the corresponding case. ``arguments`` go to its Python; ``tuples`` are per source."""

    name: str
    peer: str
    arguments: tuple[str, ...]
    ours: Options
    tuples: int
    variables: tuple[tuple[str, str], ...] = ()
    limit_seconds: float = 80.0


def _wordcount(acks: bool, width: int) -> Options:
    return Options("wordcount", acks, width, width)


BYTEWAX_2 = ("-m", "bytewax.testing", "-p2", "-w1")
ROWS = (
    Row("by hand, multiprocessing, 1/1", "by hand", ("by_hand_wordcount.py",), _wordcount(False, 1), 4_000_000),
    Row("by hand, multiprocessing, 2/2", "by hand", ("by_hand_wordcount.py",), _wordcount(False, 2), 2_000_000),
    Row("Bytewax, one worker", "bytewax", ("-m", "bytewax.run", "bytewax_wordcount:flow"),
        _wordcount(False, 1), 3_000_000),
    Row("Bytewax, two processes", "bytewax", (*BYTEWAX_2, "bytewax_wordcount:flow"), _wordcount(False, 2), 1_500_000),
    Row("streamparse's pipe, acks", "streamparse", ("storm_pipe.py",), _wordcount(True, 1), 60_000),
    Row("PyFlink, process mode, 1/1", "pyflink", ("flink_wordcount.py",), _wordcount(False, 1), 400_000,
        (("FLINK_MODE", "process"),), 300.0),
    Row("PyFlink, thread mode, 1/1", "pyflink", ("flink_wordcount.py",), _wordcount(False, 1), 400_000,
        (("FLINK_MODE", "thread"),), 300.0),
    Row("RTAC by hand, no acks", "by hand", ("by_hand_rtac.py",), Options("rtac"), 3_000_000),
    Row("RTAC on Bytewax, one worker", "bytewax", ("-m", "bytewax.run", "bytewax_rtac:flow"),
        Options("rtac"), 3_000_000),
)  # fmt: skip


def compare(row: Row, runs: int, seconds: float) -> dict[str, Any]:
    """Run both in alternation. Raises NotInstalled, PeerFailed, TuplesLost."""
    python = python_of(PEERS[row.peer])
    theirs: list[dict[str, Any]] = []
    ours: list[dict[str, Any]] = []
    options = Options(row.ours.case, row.ours.acks, row.ours.tasks, row.ours.containers, seconds=seconds)
    width = row.ours.tasks
    for number in range(runs):
        for turn in (0, 1) if number % 2 == 0 else (1, 0):
            if turn == 0:
                command = [str(python), *row.arguments]
                theirs.append(measure(command, row.tuples, width, row.limit_seconds, **dict(row.variables)))
            else:
                ours.append(run(options))
    return {
        "name": row.name, "theirs": _median(theirs), "ours": _median(ours),
        "theirs_calibrated": _calibrated(theirs), "ours_calibrated": _calibrated(ours),
        "tuples_per_second": statistics.median(r.get("tuples_per_second", 0) for r in theirs),
        "ours_tuples_per_second": statistics.median(r["tuples_per_second"] for r in ours),
        "runs": theirs, "runs_ours": ours,
    }  # fmt: skip


def _median(results: list[dict[str, Any]]) -> float:
    return round(float(statistics.median(r["cpu_us_per_tuple"] for r in results)), 2)


def _calibrated(results: list[dict[str, Any]]) -> float:
    scaled = [r["cpu_us_per_tuple"] * r["calibration_reference_ns"] / r["calibration_ns"] for r in results]
    return round(float(statistics.median(scaled)), 2)


def line(found: dict[str, Any]) -> str:
    """Return one row of the table."""
    rate = f"{found['tuples_per_second']:,.0f}" if found["tuples_per_second"] else ""
    cells = (
        found["name"], rate, found["theirs"], found["theirs_calibrated"], f"{found['ours_tuples_per_second']:,.0f}",
        found["ours"], found["ours_calibrated"], f"{found['theirs_calibrated'] / found['ours_calibrated']:.2f}",
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main() -> int:
    """Compare with every peer; print the table, and the peers that could not be measured with the reason."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6, help="our measured window")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--json", type=Path, help="write every run there")
    parser.add_argument("--install", action="store_true", help="install the peers and do no more")
    options = parser.parse_args()
    if options.install:
        return _install(options.only)
    heads = ("peer", "tuples/s", "CPU µs/tuple", "calibrated", "ours tuples/s", "CPU µs/tuple", "calibrated", "ratio")
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads), flush=True)
    everything, missing = [], []
    for row in ROWS:
        if options.only not in row.name:
            continue
        try:
            everything.append(compare(row, options.runs, options.seconds))
            print(line(everything[-1]), flush=True)
        except (NotInstalled, PeerFailed) as error:
            missing.append(f"{row.name}: {error}")
        except (TuplesLost, subprocess.CalledProcessError) as error:
            print(f"{row.name}: our side: {error}", file=sys.stderr)
            return 1
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1) + "\n")
    for text in missing:
        print(f"not measured: {text}")
    return 0


def _install(only: str) -> int:
    for name, peer in PEERS.items():
        if only in name:
            try:
                print(f"{name}: {python_of(peer)}")
            except NotInstalled as error:
                print(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Five programs on Heronry's three engines, beside hand-written PySpark, DuckDB and polars.

``python -m benchmarks.engines``. Every figure is that of a whole command, as a user types it: start, reading, result in
files. Seconds are elapsed time; CPU seconds are those of the command and all its descendants (online: of the topology's
processes and of the commands that submit and kill it). All results of a program must be the same rows, or the run
fails. The commands run one after another.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cluster import ROOT, Cluster
from benchmarks.engines.answers import ROWS, Differs, answer
from benchmarks.engines.data import prepare
from benchmarks.peers.install import PEERS, NotInstalled, python_of
from benchmarks.peers.meter import PeerFailed, watch
from heronry.streamlet.results import finished

PROGRAMS = "benchmarks/engines/programs.py"
HERE = ROOT / "benchmarks" / "engines"
LIMIT_SECONDS = 900.0
CORES = "2"
#:  Engine to the hand-written program that it is compared with.
RIVALS = {"batch": "PySpark", "streaming": "PySpark streaming"}
BARS = {"batch": 1.15, "streaming": 1.20}

Cost = tuple[float, float]  # seconds, CPU seconds


def by_command(command: list[str], **variables: str) -> Cost:
    """Return the cost of a whole command. Raises PeerFailed."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said, env={**os.environ, **variables})
        curve = watch(process, began + LIMIT_SECONDS)
        if process.returncode != 0:
            said.seek(0)
            raise PeerFailed(f"{' '.join(command)} exits with {process.returncode}: {said.read()[-2000:]}")
    return time.monotonic() - began, curve[-1][1]


def online(case: str, data: Path, work: Path) -> Cost:
    """Return the cost from the submit until every result is on disk. Raises PeerFailed."""
    cluster, began, before = Cluster(), time.monotonic(), _children()
    try:
        cluster.heron("submit", "local", "--name", cluster.name, PROGRAMS, case, "--", str(data), str(work))
        while not finished(work / "output"):
            if time.monotonic() - began > LIMIT_SECONDS:
                raise PeerFailed(f"{case} online is not through after {LIMIT_SECONDS:g} s")
            time.sleep(0.1)
        seconds = time.monotonic() - began
        return seconds, sum(cluster.usage().cpu_seconds.values()) + _children() - before
    finally:
        cluster.close()


def _children() -> float:
    """Return the CPU seconds of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def on_spark(mode: str) -> Callable[[str, Path, Path], Cost]:
    """Return a batch or micro-batch run, as ``heron submit spark`` runs it."""

    def run(case: str, data: Path, work: Path) -> Cost:
        more = ("--mode", "streaming", "--checkpoint", str(work.with_name("checkpoint"))) if mode == "streaming" else ()
        submit = ("submit", "spark", "--master", f"local[{CORES}]", "--output-path", str(work), *more)
        with tempfile.TemporaryDirectory(prefix="heronry-bench-") as home:
            return by_command(
                [sys.executable, "-m", "heron_cli", *submit, PROGRAMS, case, "--", str(data), str(work)],
                HERONRY_HOME=home,
            )

    return run


def by_hand(mode: str, name: Callable[[str], str] = str) -> Callable[[str, Path, Path], Cost]:
    """Return the same in hand-written PySpark."""

    def run(case: str, data: Path, work: Path) -> Cost:
        arguments = (name(case), mode, str(data), str(work / "output"))
        return by_command([sys.executable, "-m", "benchmarks.engines.by_hand", *arguments])

    return run


def other(peer: str) -> Callable[[str, Path, Path], Cost]:
    """Return a run of a single-machine engine in a separate environment. Raises NotInstalled, PeerFailed."""

    def run(case: str, data: Path, work: Path) -> Cost:
        work.mkdir()
        command = [str(python_of(PEERS[peer])), str(HERE / f"on_{peer}.py"), case, str(data), str(work / "all.json")]
        return by_command(command, POLARS_MAX_THREADS=CORES)

    return run


WAYS: dict[str, Callable[[str, Path, Path], Cost]] = {
    "online": online,
    "batch": on_spark("batch"),
    "PySpark": by_hand("batch"),
    "PySpark, no Python": by_hand("batch", lambda case: f"{case}_in_sql"),
    "streaming": on_spark("streaming"),
    "PySpark streaming": by_hand("streaming"),
    "DuckDB": other("duckdb"),
    "polars": other("polars"),
}
#:  These must not fail; a failure of another engine is reported, and the rest continues.
OURS = ("online", "batch", "streaming")
#:  Missing programs by engine: streaming Spark has no rank; only Heronry and PySpark split words in Python.
ABSENT = {("topk", "PySpark streaming"), *((case, "PySpark, no Python") for case in ROWS if case != "words")}


def measure(case: str, ways: list[str], data: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Return the medians of each engine. Raises Differs for different rows, PeerFailed if Heronry fails."""
    costs: dict[str, list[Cost]] = {way: [] for way in ways if (case, way) not in ABSENT}
    answers: dict[tuple[int, int], list[str]] = {}
    for _ in range(rounds):
        for way, found in list(costs.items()):
            with tempfile.TemporaryDirectory(prefix="heronry-bench-") as folder:
                work = Path(folder) / "work"
                try:
                    found.append(WAYS[way](case, data, work))
                except (NotInstalled, PeerFailed) as error:
                    if way in OURS and isinstance(error, PeerFailed):
                        raise
                    print(f"{case}, {way}: {error}", file=sys.stderr)
                    del costs[way]
                    continue
                answers.setdefault(answer(case, work), []).append(way)
    if len(answers) > 1:
        raise Differs(f"{case}: not the same rows: {answers}")
    return {way: dict(zip(("seconds", "cpu_s"), map(statistics.median, zip(*found, strict=True)), strict=True))
            for way, found in costs.items()}  # fmt: skip


def bars(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return the CPU seconds of our batch and streaming relative to those by hand."""
    return {way: found[way]["cpu_s"] / found[rival]["cpu_s"]
            for way, rival in RIVALS.items() if way in found and rival in found}  # fmt: skip


def main() -> int:
    """Print a row for each program; return 1 if results differ or a run fails, never for being slow."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", action="append", choices=list(ROWS), help="a program; may be repeated")
    parser.add_argument("--ways", action="append", choices=list(WAYS), help="may be repeated")
    parser.add_argument("--data", type=Path, help="keep the data there")
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    cases, ways = options.only or list(ROWS), options.ways or list(WAYS)
    kept = options.data is not None
    data = options.data.absolute() if kept else Path(tempfile.mkdtemp(prefix="heronry-bench-"))
    everything: dict[str, Any] = {}
    try:
        prepare(data, options.records)
        print(f"{options.records:,} records; seconds / CPU seconds of whole commands, load {os.getloadavg()[0]:.1f}")
        print("\n| program | " + " | ".join(ways) + " |\n|" + " --- |" * (len(ways) + 1), flush=True)
        for case in cases:
            found = everything[case] = measure(case, ways, data, options.rounds)
            cells = [
                f"{found[way]['seconds']:.1f} / {found[way]['cpu_s']:.1f}" if way in found else "–" for way in ways
            ]
            print(f"| {case} | " + " | ".join(cells) + " |", flush=True)
            if options.json:
                options.json.write_text(json.dumps(everything, indent=1) + "\n")
    except (PeerFailed, Differs) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if not kept:
            shutil.rmtree(data, ignore_errors=True)
    for case, found in everything.items():
        for way, ratio in bars(found).items():
            word = "within" if ratio <= BARS[way] else "OVER"
            print(f"{case}, {way}: {ratio:.2f} of the CPU by hand, {word} the bar of {BARS[way]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

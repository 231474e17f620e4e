"""``python -m tests.mutation [FILES…] [--each N] [--seed S] [--minutes M]``: would the tests notice?

Without files: every core of the data plane, its master and its containers. Ends with 1 if a mutant survives that is
not in ``known.json``, the list of those that mean nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from .mutants import ROOT, Mutant, sample, unchanged
from .runs import AT_LENGTH, BRIEFLY, Baseline, judge, read_known

ROOMS = ("topology_master", "stream_manager", "heron_instance", "heron_container")
KNOWN = Path(__file__).with_name("known.json")
SLOWER = 6.0  # than in the measurement: so much longer may a mutant take, and the seconds of starting
STARTING_SECONDS = 60.0
CONTROLS = 20


def cores() -> list[str]:
    """The files of all cores."""
    found = (path for room in ROOMS for path in (ROOT / room / "core").rglob("*.py") if path.name != "__init__.py")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def main() -> int:
    """Try mutants of each file and print a table row for each; then the survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("files", nargs="*", metavar="FILE", help="core files; all of them by default")
    parser.add_argument("--each", type=int, default=8, help="mutants of each file (default 8)")
    parser.add_argument("--seed", type=int, default=1, help="says which (default 1)")
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no file after so many (default 30)")
    given = parser.parse_args()
    known = read_known(KNOWN)
    until = time.monotonic() + 60 * given.minutes
    left: list[Mutant] = []
    total: Counter[str] = Counter()
    baselines: dict[str, Baseline] = {}
    print("| file | mutants | noticed | mean nothing | survived |\n|---|---|---|---|---|", flush=True)
    for file in given.files or cores():
        if time.monotonic() > until:
            print(f"the time is used up: {file} and what follows was not tried", flush=True)
            break
        room = file.partition("/")[0]
        baseline = baselines.get(room) or baselines.setdefault(room, Baseline(room))
        counts: Counter[str] = Counter()
        control(file, baseline)
        for mutant in sample(file, given.each, given.seed):
            counts[verdict(mutant, baseline, known, left)] += 1
        total += counts
        print(row(f"`{file}`", counts), flush=True)
    print(row("all", total))
    for mutant in left:
        print(f"\n{mutant.file}:{mutant.line} {mutant.operator}\n  {mutant.change}")
    return 1 if left else 0


def verdict(mutant: Mutant, baseline: Baseline, known: dict[tuple[str, str], str], left: list[Mutant]) -> str:
    """Judge one; what survives and means something is also added to ``left``."""
    if (mutant.file, mutant.change) in known:
        return "mean nothing"
    tests = baseline.tests_of(mutant)
    seconds = STARTING_SECONDS + SLOWER * sum(baseline.seconds.get(test, 0.0) for test in tests)
    if any(judge(mutant, tests, seconds, laws) != "survived" for laws in (BRIEFLY, AT_LENGTH)):
        return "noticed"
    left.append(mutant)
    print(f"  survived: {mutant.file}:{mutant.line} {mutant.operator} {mutant.change}", file=sys.stderr, flush=True)
    return "survived"


def control(file: str, baseline: Baseline) -> None:
    """The file without a change has to survive some tests, or no verdict on its mutants means anything."""
    mutant = unchanged(file)
    found = judge(mutant, baseline.tests_of(mutant)[:CONTROLS], 10 * STARTING_SECONDS, BRIEFLY)
    if found != "survived":
        raise SystemExit(f"{file}: its tests fail without any change; run them first")


def row(name: str, counts: Counter[str]) -> str:
    """A row of the table."""
    figures = [sum(counts.values()), *(counts[kind] for kind in ("noticed", "mean nothing", "survived"))]
    return f"| {name} | {' | '.join(map(str, figures))} |"


if __name__ == "__main__":
    sys.exit(main())

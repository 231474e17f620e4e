"""Run mutants of the cores: ``python -m tests.mutation [FILES…] [--each N] [--seed S] [--minutes M]``.

Without files: every core of the data plane, its master and its containers; a package name stands for its core. The exit
code is 1 if a mutant survives that is not in ``known.json``, the list of equivalent mutants. ``--keep FILE`` adds each
killed mutant to that file and skips it while it is listed: a run then continues where another has ended, and after a
test was added only survivors are tried. (Use a new file when tests were changed or removed.)

``--named [NAME…]`` runs the mutants of ``named.toml`` instead, all of them by default.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .mutant import ROOT, Mutant, unchanged
from .named import run_named
from .runs import AT_LENGTH, BRIEFLY, Baseline, judge, read_known

ROOMS = ("topology_master", "stream_manager", "heron_instance", "heron_container")
KNOWN = Path(__file__).with_name("known.json")
SLOWER = 6.0  # time limit of a mutant relative to the measurement, besides the start-up time
STARTING_SECONDS = 60.0
CONTROLS = 20


def cores(rooms: Sequence[str] = ROOMS) -> list[str]:
    """Return the files of all cores."""
    found = (path for room in rooms for path in (ROOT / room / "core").rglob("*.py") if path.name != "__init__.py")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def main() -> int:
    """Try mutants of each file and print a table row for each; then the survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("files", nargs="*", metavar="FILE", help="core files; all of them by default")
    parser.add_argument("--each", type=int, default=8, help="mutants of each file (default 8)")
    parser.add_argument("--seed", type=int, default=1, help="says which (default 1)")
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no file after so many (default 30)")
    parser.add_argument("--keep", type=Path, help="do not try again what was noticed and is in this file")
    parser.add_argument("--brief", action="store_true", help="do not try on many examples what survives few")
    parser.add_argument("--named", nargs="*", metavar="NAME", help="run these mutants of named.toml, or all of them")
    given = parser.parse_args()
    if given.named is not None:
        return run_named(given.named)
    from .mutants import sample  # needs Cosmic Ray, and named mutants do not

    lengths = (BRIEFLY,) if given.brief else (BRIEFLY, AT_LENGTH)
    noticed = Noticed(given.keep)
    known = read_known(KNOWN)
    until = time.monotonic() + 60 * given.minutes
    left: list[Mutant] = []
    total: Counter[str] = Counter()
    baselines: dict[str, Baseline] = {}
    print("| file | mutants | noticed | mean nothing | survived |\n|---|---|---|---|---|", flush=True)
    for file in [f for name in given.files or ROOMS for f in (cores([name]) if name in ROOMS else [name])]:
        if time.monotonic() > until:
            print(f"the time is used up: {file} and what follows was not tried", flush=True)
            break
        room = file.partition("/")[0]
        baseline = baselines.get(room) or baselines.setdefault(room, Baseline(room))
        counts: Counter[str] = Counter()
        mutants = sample(file, given.each, given.seed)
        if any(mutant not in noticed for mutant in mutants):
            control(file, baseline)
        for mutant in mutants:
            found = "noticed" if mutant in noticed else verdict(mutant, baseline, known, left, lengths)
            if found == "noticed":
                noticed.add(mutant)
            counts[found] += 1
        total += counts
        print(row(f"`{file}`", counts), flush=True)
    print(row("all", total))
    for mutant in left:
        print(f"\n{mutant.file}:{mutant.line} {mutant.operator}\n  {mutant.change}")
    return 1 if left else 0


class Noticed:
    """File of killed mutants (optional): a line for each, with the digest of the whole mutant."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lines = set(file.read_text().splitlines()) if file is not None and file.exists() else set()

    def __contains__(self, mutant: Mutant) -> bool:
        return self._line(mutant) in self._lines

    def add(self, mutant: Mutant) -> None:
        """Add a killed mutant."""
        line = self._line(mutant)
        if self._file is not None and line not in self._lines:
            self._lines.add(line)
            with self._file.open("a") as kept:
                kept.write(line + "\n")

    @staticmethod
    def _line(mutant: Mutant) -> str:
        return f"{hashlib.blake2b(mutant.source.encode(), digest_size=8).hexdigest()} {mutant.file}:{mutant.line}"


def verdict(
    mutant: Mutant, baseline: Baseline, known: dict[tuple[str, str], str], left: list[Mutant], lengths: Sequence[str]
) -> str:
    """Judge one mutant; add it to ``left`` if it survives and is not a known equivalent."""
    if (mutant.file, mutant.change) in known:
        return "mean nothing"
    tests = baseline.tests_of(mutant)
    seconds = STARTING_SECONDS + SLOWER * sum(baseline.seconds[test] for test in tests)
    if any(judge(mutant, tests, seconds, laws) != "survived" for laws in lengths):
        return "noticed"
    left.append(mutant)
    print(f"  survived: {mutant.file}:{mutant.line} {mutant.operator} {mutant.change}", file=sys.stderr, flush=True)
    return "survived"


def control(file: str, baseline: Baseline) -> None:
    """Check that the unchanged file survives some tests; otherwise verdicts on its mutants are meaningless."""
    mutant = unchanged(file)
    found = judge(mutant, baseline.tests_of(mutant)[:CONTROLS], 10 * STARTING_SECONDS, BRIEFLY)
    if found != "survived":
        raise SystemExit(f"{file}: its tests fail without any change; run them first")


def row(name: str, counts: Counter[str]) -> str:
    """Return a row of the table."""
    figures = [sum(counts.values()), *(counts[kind] for kind in ("noticed", "mean nothing", "survived"))]
    return f"| {name} | {' | '.join(map(str, figures))} |"


if __name__ == "__main__":
    sys.exit(main())

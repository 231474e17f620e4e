"""Named mutants: faults written as source replacements in ``named.toml``, each with the tests that must fail.

They cover faults that operators do not produce: dropped lines, swapped order, forgotten state.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .mutant import ROOT, Mutant, unchanged
from .runs import FULLY, judge

NAMED = Path(__file__).with_name("named.toml")
SECONDS = 300.0  # for the tests of one mutant


@dataclass(frozen=True)
class NamedMutant:
    """One replacement of source text, and the test files that must fail with it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def mutant(self) -> Mutant:
        """Return the file with the replacement. Raises ValueError if the old text is not in it exactly once."""
        path = ROOT / self.file
        if not path.is_file():
            raise ValueError(f"{self.name}: {self.file} does not exist")
        missing = [test for test in self.tests if not (ROOT / test).is_file()]
        if missing or not self.tests:
            raise ValueError(f"{self.name}: test files do not exist: {', '.join(missing) or 'none is named'}")
        source = path.read_text()
        count = source.count(self.old)
        if count != 1 or self.old == self.new:
            raise ValueError(f"{self.name}: the old text is {count} times in {self.file}, and not once")
        line = source[: source.index(self.old)].count("\n") + 1
        return Mutant(self.file, line, self.name, source.replace(self.old, self.new), self.name)


def read_named(names: Collection[str] = (), path: Path = NAMED) -> list[NamedMutant]:
    """Return the named mutants, all of them by default. Raises ValueError for a name that is unknown or repeated."""
    rows: list[dict[str, Any]] = tomllib.loads(path.read_text())["mutant"]
    known = {row["name"]: NamedMutant(**{**row, "tests": tuple(row["tests"])}) for row in rows}
    if len(known) != len(rows):
        raise ValueError(f"{path.name}: two mutants have the same name")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{path.name}: unknown mutants: {', '.join(unknown)}")
    return [mutant for name, mutant in known.items() if not names or name in names]


def run_named(names: Collection[str]) -> int:
    """Run each named mutant and print its verdict. Returns 1 if one survives or cannot be applied."""
    named, failed = read_named(names), 0
    tests = sorted({test for one in named for test in one.tests if (ROOT / test).is_file()})
    if tests and judge(unchanged(named[0].file), tests, 10 * SECONDS, FULLY) != "survived":
        raise SystemExit("the tests of the named mutants fail without any change; run them first")
    for one in named:
        try:
            found = judge(one.mutant(), one.tests, SECONDS, FULLY)
            verdict = "survived" if found == "survived" else "noticed"
        except ValueError as error:
            verdict = f"error: {error}"
        failed += verdict != "noticed"
        print(f"{one.name}: {verdict}", flush=True)
    print(f"{len(named) - failed} of {len(named)} noticed")
    return 1 if failed else 0

"""One change of one product file, whether an operator or ``named.toml`` made it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """One change of one file. ``line`` counts from 1."""

    file: str
    line: int
    operator: str
    source: str  # of the whole file
    change: str  # the lines it changes: ``- old + new``

    @property
    def module(self) -> str:
        """The dotted name of what it is a mutant of."""
        return self.file.removesuffix(".py").replace("/", ".")


def unchanged(file: str) -> Mutant:
    """Return the file without a change: its tests must pass, or no verdict on its mutants means anything."""
    return Mutant(file, 1, "nothing", (ROOT / file).read_text(), "")

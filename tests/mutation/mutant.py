"""Change of one product file, by an operator or by ``named.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """Change of one file. ``line`` counts from 1."""

    file: str
    line: int
    operator: str
    source: str  # of the whole file
    change: str  # the lines it changes: ``- old + new``

    @property
    def module(self) -> str:
        """Return the dotted name of the changed module."""
        return self.file.removesuffix(".py").replace("/", ".")


def unchanged(file: str) -> Mutant:
    """Return the file without a change: its tests must pass, or verdicts on its mutants are meaningless."""
    return Mutant(file, 1, "nothing", (ROOT / file).read_text(), "")

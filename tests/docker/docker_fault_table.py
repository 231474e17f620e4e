"""Table of a run's faults: repeated tuples, and seconds until 90 % of the earlier rate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Fault that the topology survived. Seconds count from the start of the fault; None: not observed."""

    fault: str
    lasted: float
    lines_failed: int
    words_again: int
    whole_again: float
    full_rate: float | None


ROWS: list[Row] = []
HEADER = ("fault", "lasted, s", "lines replayed", "words twice", "all processes run, s", "90 % of the rate, s")


def table() -> list[str]:
    """Return the table in Markdown."""
    text = [f"| {' | '.join(HEADER)} |", f"|{'|'.join('---' for _ in HEADER)}|"]
    for row in ROWS:
        full = "–" if row.full_rate is None else f"{row.full_rate:.1f}"
        cells = (
            row.fault, f"{row.lasted:.1f}", f"{row.lines_failed:,}", f"{row.words_again:,}", f"{row.whole_again:.1f}",
            full,
        )  # fmt: skip
        text.append(f"| {' | '.join(cells)} |")
    return text

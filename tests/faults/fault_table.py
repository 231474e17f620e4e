"""Table of a run's faults: repeated tuples, and recovery times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Fault that the topology survived. Times are seconds; None: not observed."""

    fault: str
    containers: int
    lines: int
    failed: str
    words_again: int
    runs_again: float
    full_rate: float | None


ROWS: list[Row] = []
HEADER = (
    "fault",
    "containers",
    "lines",
    "failed lines",
    "words twice",
    "flows again, s",
    "90 % of the rate, s",
)


def table() -> list[str]:
    """Return the table in Markdown."""
    text = [f"| {' | '.join(HEADER)} |", f"|{'|'.join('---' for _ in HEADER)}|"]
    for row in ROWS:
        full = "–" if row.full_rate is None else f"{row.full_rate:.1f}"
        cells = (
            row.fault, str(row.containers), f"{row.lines:,}", row.failed or "0", f"{row.words_again:,}",
            f"{row.runs_again:.1f}", full,
        )  # fmt: skip
        text.append(f"| {' | '.join(cells)} |")
    return text

"""Compare what the sinks have written with the words of the text.

Rows are compared as columns, because a run at full speed writes millions. Each pair (line number, word index) has an
index in one dense range, so a count per index shows missing, repeated and invented words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.fault_topology import ROW, words_of

CHUNK = 1 << 18  # lines or rows at a time; a run writes tens of millions


def progress(output: Path) -> dict[int, dict[str, Any]]:
    """Return the saved progress by spout task."""
    return {int(p.stem.split("-")[1]): json.loads(p.read_text()) for p in sorted(output.glob("progress-*.json"))}


def all_acked(output: Path, spouts: int) -> bool:
    """Return True when every spout has ended and all its lines are acked."""
    found = progress(output)
    return len(found) == spouts and all(p["end"] is not None and p["done"] == p["end"] for p in found.values())


def written_bytes(output: Path) -> int:
    """Return the bytes written by all sinks so far."""
    return sum(p.stat().st_size for p in output.glob("sink-*"))


@dataclass(frozen=True)
class Account:
    """Outcome of a run in words, except ``lines`` and ``failed`` (lines that failed at the spouts)."""

    lines: int
    words: int
    missing: int
    wrong: int
    unknown: int
    again: int
    failed: dict[str, int]
    torn_rows: int

    def complete(self) -> bool:
        """Return True if no word is missing or invented."""
        return self.missing == 0 and self.wrong == 0 and self.unknown == 0


class Text:
    """Words of the text: positions of each line's words."""

    def __init__(self, path: Path) -> None:
        lines = [words_of(line) for line in path.read_text().splitlines()]
        self.lines = len(lines)
        self.widths = np.array([len(words) for words in lines])
        self.starts = np.concatenate([[0], np.cumsum(self.widths)[:-1]])
        self.words = np.array([word for words in lines for word in words], dtype=bytes)
        self.count = len(self.words)
        assert self.words.dtype.itemsize <= ROW["word"].itemsize, "a word of the text is too long for a row"

    def places(self, numbers: Any) -> Any:
        """Return the position of each line's first word."""
        return numbers // self.lines * self.count + self.starts[numbers % self.lines]

    def account(self, output: Path) -> Account:
        """Compare the output with the text. Call it when all is acked."""
        spouts = progress(output)
        highest = max((p["end"] for p in spouts.values()), default=0)
        rounds = highest // self.lines + 1
        wanted = np.zeros(rounds * self.count, dtype=bool)
        lines = 0
        for spout in spouts.values():
            lines += len(range(spout["share"], spout["end"], spout["of"]))
            for first in range(spout["share"], spout["end"], spout["of"] * CHUNK):
                last = min(spout["end"], first + spout["of"] * CHUNK)
                wanted[self._all_places(np.arange(first, last, spout["of"]))] = True
        counts = np.zeros(len(wanted), dtype=np.int32)
        wrong = unknown = torn = 0
        for path in output.glob("sink-*"):
            torn += path.stat().st_size % ROW.itemsize > 0
            for rows in _rows_of(path):
                numbers, index = rows["number"].astype(np.int64), rows["index"].astype(np.int64)
                good = (numbers < rounds * self.lines) & (index < self.widths[numbers % self.lines])
                unknown += int((~good).sum())
                places = self.places(numbers[good]) + index[good]
                wrong += int((rows["word"][good] != self.words[places % self.count]).sum())
                np.add.at(counts, places, 1)
        failed: dict[str, int] = {}
        for spout in spouts.values():
            for kind, n in spout["failed"].items():
                failed[kind] = failed.get(kind, 0) + n
        return Account(
            lines,
            int(wanted.sum()),
            int((wanted & (counts == 0)).sum()),
            wrong,
            unknown + int(counts[~wanted].sum()),
            int(np.maximum(counts - 1, 0)[wanted].sum()),
            failed,
            torn,
        )

    def _all_places(self, numbers: Any) -> Any:
        """Return the positions of all words of these lines."""
        widths = self.widths[numbers % self.lines]
        within = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
        return np.repeat(self.places(numbers), widths) + within


def _rows_of(path: Path) -> Iterator[Any]:
    """Yield the rows of one process in pieces, without a torn last row."""
    with path.open("rb") as file:
        while data := file.read(CHUNK * ROW.itemsize):
            yield np.frombuffer(data[: len(data) // ROW.itemsize * ROW.itemsize], dtype=ROW)

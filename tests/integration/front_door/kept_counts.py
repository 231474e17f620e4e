"""Reader of the output of ``update_topology.Kept``, which shows each count of each number once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.support.waiting import wait_until


class KeptCounts:
    """Mixin that checks the sink's output in the ``out`` folder of its ``folder``."""

    folder: Path

    def written(self) -> Counter[tuple[int, int]]:
        """Return how often the sink shows each pair of number and count."""
        rows: Counter[tuple[int, int]] = Counter()
        for path in (self.folder / "out").glob("[!.]*"):
            rows.update((row["number"], row["count"]) for row in map(json.loads, path.read_text().splitlines()))
        return rows

    def every_count_is_there_once(self) -> int:
        """Check that the counts of each number run from 1 to the last without a gap; return how many there are.

        The tasks of the sink publish the files of a checkpoint one after the other, so a gap may close again.
        """
        return wait_until(self._counts_without_gap, "the counts of each number run from 1 without a gap")[0]

    def _counts_without_gap(self) -> tuple[int] | None:
        rows = self.written()
        twice = sorted(row for row, times in rows.items() if times > 1)
        assert not twice, f"{twice}: {sorted(path.name for path in (self.folder / 'out').iterdir())}"
        highest: dict[int, int] = {}
        for number, count in rows:
            highest[number] = max(count, highest.get(number, 0))
        complete = set(rows) == {(n, c) for n, most in highest.items() for c in range(1, most + 1)}
        return (len(rows),) if complete else None

"""Staged commands by micro-batches (``staged_engine.py``), with a driver that can die after any step.

The stub of Spark plans micro-batches and may have to repeat its last one. Each micro-batch appends its records to two
sinks, and each result replaces the rows of a third by key.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.core.plan import CannotPlan, Output, Plan, Scan
from data_pipeline.core.portions import digest
from data_pipeline.core.staged import Report
from data_pipeline.shell.output import OutputFolder, local_path
from data_pipeline.shell.portions import Portions
from data_pipeline.shell.staged import Staging, clear_journal, settle, settle_for
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.server_sinks import ServerSink
from tests.support.streamlets.staged_engine import LIVES, PROGRAM, STEPS, SUMS, StagedEngine

JOIN_ABOVE = 2  # portions
Reports = dict[str, list[Report]]


class StreamEngine(StagedEngine):
    """Engine with a growing sequence of numbers; ``planned`` and ``done`` are what Spark keeps on disk."""

    def __init__(self, attempts: list[list[str]], deaths: list[int], folder: Path) -> None:
        super().__init__(attempts, deaths, folder)
        self.checkpoint = str(folder / "checkpoint")
        self.arrived = 0
        self.planned: list[list[int]] = []
        self.done = 0
        self.plan = Plan(PROGRAM, (Scan("in", FileSource("/in", "text"), None, None),), (), self.plan.outputs)
        self.sums = Output(SUMS, ServerSink("memory", ("k", "v"), ()), ())

    def portions(self) -> Portions:
        """Return the current portions."""
        return Portions(None, self.checkpoint, self.plan, self.plan.outputs, bool, pytest.fail)

    def arrive(self, number: int) -> None:
        """Add this many numbers."""
        self.arrived += number
        self.expected = {step: Counter((n,) for n in range(self.arrived)) for step in STEPS}

    def totals(self) -> dict[int, int]:
        """Return the rows that a batch over all input so far would write."""
        return dict(Counter(n % 2 for n in range(self.arrived)))

    def check(self) -> None:
        """Check that nothing is visible without a portion, and nothing is visible twice."""
        given = Counter((n,) for n in self.kept())
        for step in STEPS:
            assert self.server.seen[step] <= self.expected[step], "seen twice"
            assert self.server.seen[step] <= given, "seen without a portion"
        assert all(self.server.rows[key] <= self.totals()[key] for key in self.server.rows)

    def kept(self) -> list[int]:
        """Return the contents of all portions."""
        held: list[int] = []
        left, self.left = self.left, LIVES  # this read does not count as a step
        for portion in self.portions().found():
            (folder,) = Path(self.checkpoint).glob(f"portions-*/{portion.name}/rows")
            held += json.loads((folder / "part").read_text())
        self.left = left
        return held

    def command(self) -> str:
        """Run the command; return its outcome."""
        try:
            return super().command()
        except CannotPlan as error:
            raise AssertionError(f"it is the same program, and the same input: {error}") from error

    def _command(self) -> str:
        """Run as with ``processing-time``: a result precedes Spark's record of the micro-batch."""
        settle_for(self.place, PROGRAM)
        portions = self.portions()
        portions.settle()
        while self.done < len(self.planned) or sum(map(len, self.planned)) < self.arrived:
            if self.done == len(self.planned):
                with self.driver_step():
                    self.planned.append(list(range(sum(map(len, self.planned)), self.arrived)))
            self._take(portions, self.done)
            self._publish(portions)
            with self.driver_step():
                self.done += 1
        self._publish(portions)
        return "written"

    def _take(self, portions: Portions, number: int) -> None:
        numbers = self.planned[number]

        def fill(place: str, staging: Staging) -> tuple[dict[str, Any], Reports]:
            about = _written(place, numbers)
            parts = [[{"n": n} for n in numbers[part :: len(self.attempts)]] for part in range(len(self.attempts))]
            return about, {output.step: self.tasks(output, staging.journal, parts) for output in self.plan.outputs}

        portions.write(number, digest(("in", str(n)) for n in numbers), fill)

    def _publish(self, portions: Portions) -> None:
        found = portions.found()
        if len(found) > JOIN_ABOVE:
            held = self.kept()
            portions.replace(found, lambda place, _: (_written(place, held), {}))
        staging = Staging(PROGRAM, [self.sums], bool)
        with (
            OutputFolder(None, self.url, replace=True, clear=partial(clear_journal, out=pytest.fail)) as folder,
            staging.into(folder, pytest.fail),
        ):
            rows = [{"k": key, "v": value} for key, value in Counter(n % 2 for n in self.kept()).items()]
            reports = {SUMS: self.tasks(self.sums, staging.journal, [rows])}
            folder.commit({"program": PROGRAM, "checkpoint": self.checkpoint} | staging.counted(reports))
        settle(folder.place)


def _written(place: str, numbers: list[int]) -> dict[str, Any]:
    folder: Any = local_path(f"{place}/rows")
    folder.mkdir()
    (folder / "part").write_text(json.dumps(numbers))
    return {"rows": len(numbers)}

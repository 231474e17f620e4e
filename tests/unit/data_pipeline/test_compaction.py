"""Compaction: each row exists once across faults, concurrent readers and changing files.

Files contain the names of the raw files whose rows they hold, so a read is verified by names alone.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.core.history import Day, work
from data_pipeline.shell import compaction
from heron_runtime.history_folder import dates, files, files_of, superseded, taken
from heron_runtime.model.history import (
    DAY_MS,
    MANIFEST,
    METRICS,
    RAW,
    ROLLED,
    SUFFIX,
    TAKEN,
    compacted_name,
    covering,
    day_folder,
    file_name,
    held_as,
    span_of,
)
from metrics_manager.sinks.history import remove_old

TODAY, OVER = "2026-01-03", ("2026-01-01", "2026-01-02")
LEVELS = ROLLED[:2]
FROM_MS, TO_MS = 1_767_139_200_000, 1_767_139_200_000 + 5 * DAY_MS  # 2025-12-31


class Died(Exception):
    """Death of the driver at this step."""


class World:
    """Raw files of a submission with two roll-up levels, and the expected contents of each."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "local/me/default/words/words-1"
        self.raw = self.folder / METRICS / RAW
        self.numbers: Counter[int] = Counter()
        self.there: set[str] = set()
        self.rolled: dict[str, set[str]] = {level: set() for level in LEVELS}
        self.listed: list[tuple[str, list[Path]]] = []  # of readers that have not read yet

    def comes(self, container: int, day: int) -> None:
        """Add a raw file of this day."""
        self.numbers[container] += 1
        name = file_name(container, self.numbers[container])
        place = self.raw / day_folder((*OVER, TODAY)[day])
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)
        self.there.add(name)

    def rolls(self, levels: int) -> None:
        """Run a roll-up that dies after some days of levels."""
        compaction.clear(self.root)
        days = [
            Day("p", date, frozenset(held_as(f.name) for f in files(self.raw, date)), {
                level: taken(self.folder / METRICS / level, date)
                for level in LEVELS if (self.folder / METRICS / level / day_folder(date)).is_dir()
            })
            for date in dates(self.raw)
        ]  # fmt: skip
        for item in [w for w in work(days) if w.level in LEVELS][:levels]:
            fresh = [f for f in files(self.raw, item.date) if held_as(f.name) in item.files]
            place = self.folder / METRICS / item.level / day_folder(item.date)
            place.mkdir(parents=True, exist_ok=True)
            part = place / f"part-0{SUFFIX}"
            had = part.read_text().split() if part.exists() else []
            news = [name for file in fresh for name in file.read_text().split()]
            part.write_text(" ".join(had + news))
            (place / MANIFEST).write_text(f'{{"{TAKEN}": [{", ".join(map(_quoted, sorted(item.taken)))}]}}')
            self.rolled[item.level] |= set(news)

    def compacts(self, steps: int) -> None:
        """Run a compaction that dies after some steps."""
        compaction.clear(self.root)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("rename", "unlink"):
                patch.setattr(os, name, self._step(getattr(os, name), steps))
            self.steps = 0
            try:
                for join in compaction.found(self.root, TODAY):
                    made = self.root / "made"
                    made.write_text(" ".join(_read(Path(join.folder, day_folder(join.date), n)) for n in join.files))
                    assert compaction.publish(join, made)
            except Died:
                pass

    def _step(self, does: Callable[..., None], most: int) -> Callable[..., None]:
        def step(*arguments: object) -> None:
            if self.steps >= most:
                raise Died
            self.steps += 1
            self.look()
            does(*arguments)
            self.look()

        return step

    def goes(self) -> None:
        """Delete the oldest file of container 1, as its metrics manager does when full."""
        every = [f for d in dates(self.raw) for f in (*files(self.raw, d), *superseded(self.raw, d))]
        own = [f for f in every if (span_of(f.name) or (0,))[0] == 1]
        remove_old(self.raw, 1, sum(f.stat().st_size for f in own) - 1, "")
        left = {name for d in dates(self.raw) for f in files(self.raw, d) for name in f.read_text().split()}
        self.there = {name for name in self.there if not name.startswith("c1-")} | {n for n in left if n in self.there}

    def look(self) -> None:
        """Let pending readers read, and start others."""
        for level, found in self.listed:
            try:
                rows = [name for file in found for name in file.read_text().split()]
            except FileNotFoundError:
                continue  # they start over
            if found == files_of(self.folder, level, FROM_MS, TO_MS):
                self.right(level, rows)
        self.listed = self.listed[-6:] + [
            (level, files_of(self.folder, level, FROM_MS, TO_MS)) for level in (RAW, *LEVELS)
        ]

    def check(self) -> None:
        """Check that a reader sees each row once."""
        self.listed = []
        for level in (RAW, *LEVELS):
            found = files_of(self.folder, level, FROM_MS, TO_MS)
            self.right(level, [name for file in found for name in file.read_text().split()])

    def right(self, level: str, rows: list[str]) -> None:
        assert Counter(rows) == Counter(self.there | self.rolled.get(level, set())), level


def _read(path: Path) -> str:
    return path.read_text()


def _quoted(name: str) -> str:
    return f'"{name}"'


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.integers(1, 2), st.integers(0, 2)),
        st.tuples(st.just("rolls"), st.sampled_from([1, 2, 99]), st.just(0)),
        st.tuples(st.just("compacts"), st.sampled_from([0, 1, 2, 3, 5, 99]), st.just(0)),
        st.tuples(st.just("goes"), st.just(0), st.just(0)),
    ),
    min_size=8, max_size=30,
)  # fmt: skip
BEGIN = [("comes", 1, 0)] * 3 + [("rolls", 99, 0), ("comes", 1, 2), ("comes", 1, 2), ("compacts", 2, 0)]
END = [("rolls", 99, 0), ("comes", 1, 0), ("comes", 1, 0), ("compacts", 99, 0), ("rolls", 99, 0), ("compacts", 99, 0)]


@settings(report_multiple_bugs=False, max_examples=20, deadline=None)
@given(STEPS)
def test_each_row_exists_once_for_any_faults(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        world = World(Path(place))
        for step, one, other in [*BEGIN, *steps, *END]:
            getattr(world, step)(*(one, other)[: {"comes": 2, "goes": 0}.get(step, 1)])
            world.check()


@settings(report_multiple_bugs=False, max_examples=12, deadline=None)
@given(STEPS)
def test_past_days_end_as_one_file_per_container(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        world = World(Path(place))
        for step, one, other in [*BEGIN, *steps, *END]:
            getattr(world, step)(*(one, other)[: {"comes": 2, "goes": 0}.get(step, 1)])
        for date in OVER:
            containers = [(span_of(file.name) or (0,))[0] for file in files(world.raw, date)]
            assert len(containers) == len(set(containers))
            assert not superseded(world.raw, date)
        before = sorted(world.root.rglob(f"*{SUFFIX}"))
        world.compacts(99)
        assert sorted(world.root.rglob(f"*{SUFFIX}")) == before, "a second run finds nothing to do"
        assert all("-" not in f.stem.partition("-")[2] for f in files(world.raw, TODAY)), "today goes on"


def test_file_names_are_parsed() -> None:
    assert span_of("c3-7.parquet") == (3, 7, 7)
    assert span_of(compacted_name(3, 7, 90)) == (3, 7, 90)
    assert [span_of(name) for name in ("part-0.parquet", "c3-7-.parquet", "c3-7-9-11.parquet", "c3-٣.parquet")] == [
        None
    ] * 4
    assert held_as("c3-7-90.parquet") == "c3-90.parquet"
    assert held_as("part-0.parquet") == "part-0.parquet"
    assert covering(["c1-2.parquet", "c1-1-2.parquet", "c1-1-3.parquet", "c1-4.parquet", "c2-2.parquet"]) == [
        "c1-1-3.parquet", "c1-4.parquet", "c2-2.parquet",
    ]  # fmt: skip

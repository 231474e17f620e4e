"""History of topologies: each row and audit line is stored once, in any order of arrival and across deaths."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install heronry[archive]")

import pyarrow as pa
import pyarrow.parquet as pq

from data_pipeline.core.history import KEEP_DAYS, Day, outdated, work
from data_pipeline.shell import audit, compaction, history_rows
from heron_control.schedulers.log_files import RotatingFile
from heron_runtime.history_folder import dates, files, files_of, superseded, taken
from heron_runtime.model.history import (
    AUDIT_FOLDER,
    DAY_MS,
    LEVEL_MS,
    MANIFEST,
    METRICS,
    RAW,
    ROLLED,
    SUFFIX,
    TAKEN,
    MetricRow,
    compacted_name,
    covering,
    day_folder,
    file_name,
    held_as,
    roll_up,
    span_of,
)
from metrics_manager.sinks.history import remove_old, row_table

SIXTEENTHS = st.integers(-(10**6), 10**6).map(lambda n: n / 16)  # exact sums in any order


@st.composite
def a_row(draw: st.DrawFn) -> MetricRow:
    kind = draw(st.sampled_from(["counter", "gauge", "latency"]))
    start = draw(st.integers(0, 40)) * LEVEL_MS["10s"]
    place = (draw(st.integers(0, 1)), draw(st.sampled_from("wx")), draw(st.sampled_from("yz")), f"__{kind}")
    row = MetricRow(start, *place, kind, float(draw(st.integers(1, 9))), draw(SIXTEENTHS))
    if kind == "gauge":
        row.low, row.high = draw(SIXTEENTHS), draw(SIXTEENTHS)
        row.last, row.last_ms = draw(SIXTEENTHS), start + draw(st.integers(0, 3))  # often equal
    if kind == "latency":
        row.bins = draw(st.dictionaries(st.integers(-50, 50), st.integers(1, 9).map(float), min_size=1, max_size=5))
    return row


def rows_of(table: Any) -> list[MetricRow]:
    found = []
    for row in table.to_pylist():
        row.pop("day", None)
        bins, counts = row.pop("bins"), row.pop("counts")
        assert bins == sorted(set(bins)), "bins are in order, each once"
        found.append(MetricRow(**row, bins=dict(zip(bins, counts, strict=True))))
    return found


def copies(rows: list[MetricRow]) -> list[MetricRow]:
    return [dataclasses.replace(row, bins=dict(row.bins)) for row in rows]


@given(st.lists(a_row(), max_size=40), st.sampled_from(ROLLED), st.sampled_from([1, 7, 100]))
def test_pieces_add_up_to_the_plain_sum(rows: list[MetricRow], level: str, piece: int) -> None:
    """The partial sums of pieces of files add up to the sum of all rows; a single piece needs no further sum."""
    length = LEVEL_MS[level]
    with tempfile.TemporaryDirectory() as folder:
        halves = rows[::2], rows[1::2]
        for number, half in enumerate(halves):
            pq.write_table(row_table(pa, half), Path(folder, f"{number}.parquet"), store_schema=False)
        asked = pa.table({"day": [3, 4], "path": [str(Path(folder, f"{n}.parquet")) for n in (0, 1)]})
        batches = list(history_rows.reader(length, piece)(asked.to_batches()))
    assert {day for batch in batches for day in batch["day"].to_pylist()} <= {3, 4}
    parts = [row for batch in batches for row in rows_of(batch)]
    assert roll_up(parts, level) == roll_up(copies(rows), level)
    whole = history_rows.added_up(row_table(pa, rows), length)
    assert sorted(rows_of(whole), key=lambda row: row.key) == roll_up(copies(rows), level)


ARRIVALS = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.integers(0, 99), st.sampled_from(["2026-01-01", "2026-01-02"])),
        st.tuples(st.just("goes"), st.integers(0, 99), st.just("")),
        st.tuples(st.just("runs"), st.integers(0, 8), st.just("")),
    ),
    max_size=25,
)


@given(ARRIVALS)
def test_each_file_is_taken_once_by_each_level(steps: list[tuple[str, int, str]]) -> None:
    """``runs``: a job that dies after some days of levels."""
    raw: dict[str, set[str]] = {}
    held: dict[tuple[str, str], frozenset[str]] = {}
    counted: dict[tuple[str, str], int] = {}
    number = 0
    for step, how, date in [*steps, ("runs", 99, "")]:
        if step == "comes":
            number += 1
            raw.setdefault(date, set()).add(f"c1-{number}")
        elif step == "goes":
            for names in raw.values():
                names -= {name for name in names if name == f"c1-{how}" and all((lv, name) in counted for lv in ROLLED)}
        else:
            days = [
                Day("p", date, frozenset(names), {lv: held[lv, date] for lv in ROLLED if (lv, date) in held})
                for date, names in raw.items()
            ]
            for item in work(days)[:how]:
                assert item.files <= raw[item.date]
                assert item.merges == ((item.level, item.date) in held)
                held[item.level, item.date] = item.taken
                for name in item.files:
                    counted[item.level, name] = counted.get((item.level, name), 0) + 1
    assert counted == {(level, f"c1-{n}"): 1 for level in ROLLED for n in range(1, number + 1)}


def test_coarser_levels_are_kept_longer() -> None:
    assert list(KEEP_DAYS) == list(LEVEL_MS)
    assert sorted(KEEP_DAYS.values()) == list(KEEP_DAYS.values())
    dates = ["1970-01-01", "1970-01-02", "1970-01-31"]
    assert outdated("1m", dates, 31 * DAY_MS) == ["1970-01-01"]
    assert outdated("1d", dates, 31 * DAY_MS) == []


WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("written"), st.integers(1, 3)),
        st.tuples(st.just("taken"), st.sampled_from([0, 1, 99])),
    ),
    max_size=25,
)
FIRST_WRITES = [("written", 3), ("written", 3), ("taken", 99), *[("written", 3)] * 4, ("taken", 1), ("taken", 99)]


def lines_of(root: Path) -> Counter[str]:
    return sum((audit.bag(path) for path in (root / AUDIT_FOLDER).rglob(f"*{SUFFIX}")), Counter[str]())


@settings(report_multiple_bugs=False, max_examples=25, deadline=None)
@given(WRITES)
def test_each_line_is_stored_as_often_as_written(steps: list[tuple[str, int]]) -> None:
    """``written``: a line several times in a millisecond; ``taken``: a job that dies after some days.

    A file holds four lines, and three files are kept.
    """
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        record = RotatingFile(root / "audit.jsonl", 4 * 120, 2)
        (root / "audit.jsonl").touch()
        number, expected, written = 0, Counter[str](), Counter[str]()
        for step, many in [*FIRST_WRITES, *steps, ("taken", 99)]:
            if step == "written":
                number += 1
                at = f"2026-11-{10 + number // 4:02d}T00:00:{number:02d}.000+00:00"
                line = json.dumps({"at": at, "what": "kill", "who": "admin", "from": "", "result": 200}).ljust(119)
                for _ in range(many):
                    record.write(f"{line}\n".encode())
                    written[line] += 1
                continue
            kept = Counter(line for file in sorted(root.glob("audit.jsonl*")) for line in file.read_text().splitlines())
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(audit, "replace_file", _dying(audit.replace_file, many))
                try:
                    audit.take(root, root / "audit.jsonl")
                except KeyboardInterrupt:
                    continue
            expected |= kept
            found = lines_of(root)
            assert found >= expected, "nothing that a job has seen is missing"
            assert found <= written, "and nothing is there more often than it was written"
        record.close()


def _dying(right: object, days: int) -> object:
    left = [days]

    def write(*arguments: object) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        right(*arguments)  # type: ignore[operator]  # reason: it is replace_file

    return write


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


@settings(report_multiple_bugs=False, max_examples=30, deadline=None)
@given(STEPS, st.booleans())
def test_each_row_exists_once_and_past_days_end_as_one_file(steps: list[tuple[str, int, int]], checked: bool) -> None:
    """``checked``: all readers end after each step, instead of reading on while files change."""
    with tempfile.TemporaryDirectory() as place:
        world = World(Path(place))
        for step, one, other in [*BEGIN, *steps, *END]:
            getattr(world, step)(*(one, other)[: {"comes": 2, "goes": 0}.get(step, 1)])
            if checked:
                world.check()
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

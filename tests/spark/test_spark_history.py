"""Roll-up of the history of topologies on Spark: totals equal the plain sum of all rows, in any order of arrival."""

from __future__ import annotations

import dataclasses
import io
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from data_pipeline.core.history import work
from data_pipeline.shell import compaction, history
from heron_control.history.reading import History, Question
from heron_runtime.history_folder import dates, files
from heron_runtime.model.history import (
    DAY_MS,
    LEVEL_MS,
    METRICS,
    RAW,
    ROLLED,
    MetricRow,
    bucket,
    compacted_name,
    date_of,
    day_folder,
    file_name,
    roll_up,
)
from heron_runtime.model.sketch import Sketch
from metrics_manager.sinks.history import row_table
from tests.support.servers.spark import run_heron

START = bucket(1_764_028_800_000, "1d")
PLACES = ("local/me/default/words/words-1", "local/me/a b%20c/lines/lines-2")


def generated(seed: int, count: int) -> list[MetricRow]:
    """Return rows of three kinds over two days."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        start = START + chance.randrange(0, 2 * DAY_MS, LEVEL_MS[RAW])
        kind = chance.choice(["counter", "gauge", "latency"])
        row = MetricRow(start, chance.randint(0, 1), "word", f"word_{chance.randint(0, 2)}", f"__{kind}", kind, 1.0)
        if kind == "latency":
            row.bins = dict(Sketch.of(chance.lognormvariate(2, 1) for _ in range(chance.randint(1, 9))).bins)
            row.count = sum(row.bins.values())
        else:
            row.sum = chance.randint(0, 10**9) / 1024
        if kind == "gauge":
            row.low, row.high, row.last = -row.sum, row.sum, chance.random()
            row.last_ms = start + chance.randint(0, 9_999)
        rows.append(row)
    return rows


def written(root: Path, place: str, rows: list[MetricRow], number: int) -> None:
    """Write a file for each day of the rows."""
    for date in {date_of(row.start_ms) for row in rows}:
        folder = root / place / METRICS / RAW / day_folder(date)
        folder.mkdir(parents=True, exist_ok=True)
        table = row_table(pa, [row for row in rows if date_of(row.start_ms) == date])
        pq.write_table(table, folder / file_name(1, number), store_schema=False)


def read(root: Path, place: str, level: str) -> list[MetricRow]:
    folder = root / place / METRICS / level
    found = []
    for row in (r for d in dates(folder) for file in files(folder, d) for r in pq.ParquetFile(file).read().to_pylist()):
        bins = dict(zip(row.pop("bins"), row.pop("counts"), strict=True))
        found.append(MetricRow(**row, bins=bins))
    return sorted(found, key=lambda row: row.key)


def copies(rows: list[MetricRow]) -> list[MetricRow]:
    return [dataclasses.replace(row, bins=dict(row.bins)) for row in rows]


def same(found: list[MetricRow], truth: list[MetricRow]) -> bool:
    """Compare counters and bins exactly, and sums of gauges as floats."""
    as_gauge = [dataclasses.replace(row, sum=pytest.approx(row.sum)) if row.kind == "gauge" else row for row in truth]
    return found == as_gauge


def ran(spark: SparkSession, root: Path) -> int:
    return history.roll_up(spark, root, work(history.found_days(root)), io.StringIO())


def test_levels_are_the_sum_of_all_rows_in_any_order_of_arrival(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "his tory+%41"
    rows = {place: generated(number, 400) for number, place in enumerate(PLACES)}
    for place, every in rows.items():
        for number in range(3):
            written(root, place, every[number * 100 : number * 100 + 100], number + 1)
    assert ran(spark, root) == 16, "two topologies, two days, four levels"
    for place, every in rows.items():
        for level in ROLLED:
            assert same(read(root, place, level), roll_up(copies(every[:300]), level)), level
            assert len(files(root / place / METRICS / level, date_of(START))) == 1
    late = PLACES[0]
    written(root, late, rows[late][300:], 9)
    for file in files(root / late / METRICS / RAW, date_of(START)):
        if file.name == file_name(1, 1):
            file.unlink()  # the metrics manager has removed it for lack of space
    assert ran(spark, root) == 8, "one topology has news"
    for level in ROLLED:
        assert same(read(root, late, level), roll_up(copies(rows[late]), level)), level
    assert ran(spark, root) == 0, "nothing is new"
    question = Question(START, START + 2 * DAY_MS, LEVEL_MS["1d"])
    points = History(root / late).points(question)
    total = sum(row.sum for row in rows[late] if row.kind == "counter")
    assert sum(point.total for point in points if point.series[3] == "counter") == total
    merged = Sketch()
    for row in rows[late]:
        merged += Sketch(row.bins)
    assert sum((p.sketch for p in points if p.sketch is not None), Sketch()) == merged


def test_next_run_finishes_a_run_that_died_between_levels(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = generated(3, 60)
    written(tmp_path, PLACES[0], rows[:30], 1)
    publish = history._publish

    def dies(*arguments: object) -> None:
        if arguments[2] == "1h":
            raise KeyboardInterrupt
        publish(*arguments)

    monkeypatch.setattr(history, "_publish", dies)
    with pytest.raises(KeyboardInterrupt):
        ran(spark, tmp_path)
    monkeypatch.undo()
    written(tmp_path, PLACES[0], rows[30:], 2)
    ran(spark, tmp_path)
    for level in ROLLED:
        assert same(read(tmp_path, PLACES[0], level), roll_up(copies(rows), level)), level


def test_retention_removes_old_topologies_and_keeps_new_ones(tmp_path: Path) -> None:
    for place, start in ((PLACES[0], START), (PLACES[1], START + 100 * DAY_MS)):
        written(tmp_path, place, [MetricRow(start, 1, "word", "a", "m", "counter", 1.0, 1.0)], 1)
    (tmp_path / "local/me/default/new/new-1").mkdir(parents=True)
    assert history.retain(tmp_path, START + 100 * DAY_MS, history.KEEP_DAYS) == 1
    assert not (tmp_path / PLACES[0]).exists()
    assert (tmp_path / PLACES[1]).exists()
    assert (tmp_path / "local/me/default/new/new-1").exists()


def test_compaction_joins_files_of_past_days_and_keeps_rows(spark: SparkSession, tmp_path: Path) -> None:
    place, rows = PLACES[1], generated(7, 300)
    for number in range(5):
        written(tmp_path, place, rows[number * 50 : number * 50 + 50], number + 1)
    raw, days = tmp_path / place / METRICS / RAW, (date_of(START), date_of(START + DAY_MS))
    assert compaction.found(tmp_path, days[1])[0].files == tuple(file_name(1, n) for n in range(1, 6))
    ran(spark, tmp_path)
    joins = compaction.found(tmp_path, days[1])
    assert compaction.compact(spark, tmp_path / history.WORK, joins) == (5, 1)
    assert [[file.name for file in files(raw, date)] for date in days] == [
        [compacted_name(1, 1, 5)], [file_name(1, n) for n in range(1, 6)],
    ], "the second of the days goes on"  # fmt: skip
    assert read(tmp_path, place, RAW) == sorted(rows[:250], key=lambda row: row.key)
    assert ran(spark, tmp_path) == 0, "levels know what it holds"
    written(tmp_path, place, rows[250:], 6)
    ran(spark, tmp_path)
    joins = compaction.found(tmp_path, date_of(START + 2 * DAY_MS))
    assert compaction.compact(spark, tmp_path / history.WORK, joins) == (8, 2)
    assert [[file.name for file in files(raw, date)] for date in days] == [[compacted_name(1, 1, 6)]] * 2
    assert read(tmp_path, place, RAW) == sorted(rows, key=lambda row: row.key)
    for level in ROLLED:
        assert same(read(tmp_path, place, level), roll_up(copies(rows), level)), level
    assert compaction.found(tmp_path, date_of(START + 2 * DAY_MS)) == []


def test_compaction_is_skipped_if_a_file_disappears(spark: SparkSession, tmp_path: Path) -> None:
    for number in (1, 2):
        written(tmp_path, PLACES[0], [MetricRow(START, 1, "word", "a", "m", "counter", 1.0, 1.0)], number)
    joins = compaction.found(tmp_path, date_of(START + DAY_MS))
    raw = tmp_path / PLACES[0] / METRICS / RAW
    files(raw, date_of(START))[0].unlink()
    assert compaction.compact(spark, tmp_path / history.WORK, joins) == (0, 0)
    assert [file.name for file in files(raw, date_of(START))] == [file_name(1, 2)]


def test_command_rolls_up_the_history(tmp_path: Path) -> None:
    root = tmp_path / "home" / "history"
    missing = run_heron(tmp_path / "home", "pipeline", "roll-up")
    assert (missing.returncode, b"heron.history.enabled=true" in missing.stderr) == (3, True)
    rows = generated(5, 30)
    written(root, PLACES[0], rows[:20], 1)
    written(root, PLACES[0], rows[20:], 2)
    record = tmp_path / "audit.jsonl"
    record.write_text(
        '{"at": "2026-11-25T00:00:01.000+00:00", "what": "kill", "who": "admin", "from": "", "result": 200}\n'
    )
    done = run_heron(
        tmp_path / "home", "pipeline", "roll-up", "--keep", "10s=9999", "--keep", "1m=9999", "--audit", str(record)
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"rolled up 6 days of levels" in done.stdout, "10m is not kept so long"
    assert b"4 files of days that are over became 2" in done.stdout
    assert b"1 new lines" in done.stderr
    assert same(read(root, PLACES[0], "1d"), roll_up(copies(rows), "1d"))
    assert read(root, PLACES[0], RAW) == sorted(rows, key=lambda row: row.key)
    again = run_heron(tmp_path / "home", "pipeline", "roll-up", "--keep", "10s=9999", "--keep", "1m=9999")
    assert b"rolled up 0 days of levels" in again.stdout
    assert not list(root.glob(".roll-up.tmp"))
    refused = run_heron(tmp_path / "home", "pipeline", "roll-up", "--keep", "2m=9")
    assert refused.returncode == 2

"""Micro-batches: their portions and ranges cover all input once, and sinks that cannot follow them are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.core import portions
from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.planner import Choice, plan
from data_pipeline.core.portions import Kept, Portion, by_parts, cover, former_identity, identity, streamed, without
from data_pipeline.core.ranges import between, end_of, latest, range_in, text_of
from data_pipeline.core.stream_sinks import appended, check, describe_sinks
from heronry.connect.polling import Range
from heronry.streamlet import (
    Builder,
    Context,
    Process,
    archive,
    files,
    sequence,
    session,
    sliding,
    to_delta,
    to_files,
    to_kafka,
    to_nats,
    to_redis_stream,
    to_table,
)


@given(st.integers(0, 12), st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12), st.booleans())
def test_every_micro_batch_is_covered_once(batches: int, joined: set[tuple[int, int]], gone: bool) -> None:
    """Merged portions begin at 0; the ones they cover may still exist, and other names are ignored."""
    wholes = [last for first, last in joined if first == 0 and last < batches]
    names = {f"0-{last}" for last in wholes} | {"rows", "7", "3-1", "-1-2", ".0-99.host.1.tmp"}
    covered = max(wholes, default=-1)
    names |= {f"{n}-{n}" for n in range(batches) if n > covered or not gone}
    found = portions.cover(names)
    held = [number for portion in found for number in range(portion.first, portion.last + 1)]
    assert held == list(range(batches))
    assert {portion.name for portion in found} <= names


REDUCERS = "abc"
KEPT = st.builds(
    Kept,
    st.dictionaries(st.sampled_from(REDUCERS), st.sampled_from(["key string", "key int"])),
    st.sets(st.sampled_from(REDUCERS)),
)


@given(st.lists(KEPT, max_size=5))
def test_sql_adds_up_only_complete_parts(kept: list[Kept]) -> None:
    """SQL reads a reducer only if all of it is in parts with the same columns; without input it has none."""
    found = portions.columns_of_parts(kept)
    for name in REDUCERS:
        columns = {portion.parts[name] for portion in kept if name in portion.parts}
        is_sql = len(columns) == 1 and not any(name in portion.merged for portion in kept)
        assert found.get(name) == (columns.pop() if is_sql else None)


def test_portions_after_a_gap_are_ignored() -> None:
    assert cover(["0-0", "2-2"]) == [Portion(0, 0)]
    assert cover(["1-1"]) == []


def program(path: str = "/in", more: bool = False):
    builder = Builder("p")
    lines = builder.source(files(path, "text"))
    lines.key_by().count_by_key(name="count").sink(to_files("/out"))
    if more:
        lines.sink(to_files("/more"))
    return plan(builder.build())


def test_plan_identity_depends_on_steps_and_sources() -> None:
    assert identity(program()) == identity(program())
    assert len({identity(program()), identity(program("/other")), identity(program(more=True))}) == 3


def test_plan_identity_is_stable_for_existing_checkpoints() -> None:
    builder = Builder("golden")
    lines = builder.source(files("/in", "text"), name="lines").map(str.lower, name="lower")
    lines.key_by().count_by_key(name="count").sink(to_files("/out"), name="out")
    assert identity(plan(builder.build(), Choice(sql=False))) == "9b77e0d0282cf939"


def test_the_former_identity_of_a_plan_stays_what_it_was() -> None:
    builder = Builder("golden")
    lines = builder.source(files("/in", "text"), name="lines", event_time=len)
    lines.sink(archive("/archive"), name="keep")
    counts = lines.key_by().count_by_key(name="count")
    counts.sink(to_table("host=h", "t", ["key", "value"], key="key"), name="out")
    assert former_identity(plan(builder.build(), Choice(sql=False))) == "df32a14fa62cfb57"


@pytest.mark.parametrize(
    ("form", "says"), [("archive", "may hold duplicates"), ("", "reads neither files nor servers")]
)
def test_source_that_cannot_be_streamed_is_rejected(form: str, says: str) -> None:
    builder = Builder("p")
    given = files("/in", form) if form else sequence(5)
    builder.source(given).sink(to_files("/out"))
    with pytest.raises(CannotPlan, match=says):
        streamed(plan(builder.build()))


def test_scan_without_sql_reducers_keeps_its_tags_and_taps() -> None:
    builder = Builder("p")
    lines = builder.source(files("/in", "text"), name="lines")
    every = lines.union(lines, name="twice").tap(print, name="tap")
    every.key_by().count_by_key(name="count").sink(to_files("/out"), name="counts")
    lines.map(str.lower, name="lower").key_by().count_by_key(name="low").sink(to_files("/low"), name="lows")
    (scan,) = plan(builder.build()).scans
    left = without(scan, {"count"})
    assert left.unit is not None
    assert scan.unit is not None
    assert [output for output in scan.unit.outputs if output.step == "low"] == list(left.unit.outputs)
    told = str(left.unit)
    assert "'tap'" in told
    assert "'count'" not in told
    nothing = without(left, {"low"}).unit
    assert nothing is not None
    assert "'lower'" not in str(nothing), "it led nowhere else"
    builder = Builder("q")
    builder.source(files("/in", "text")).key_by().count_by_key(name="count").sink(to_files("/out"))
    (scan,) = plan(builder.build()).scans
    assert without(scan, {"count"}).unit is None


def test_plan_by_parts_changes_only_its_sql_reducers() -> None:
    builder = Builder("p")
    lines = builder.source(files("/in", "text"))
    for name in ("one", "two"):
        lines.key_by().count_by_key(name=name).sink(to_files(f"/{name}"))
    before = plan(builder.build(), Choice(sql=False))
    after = by_parts(before, {"one"})
    assert [found.sql for found in after.reductions] == [True, False]
    assert [replace(found, sql=False) for found in after.reductions] == list(before.reductions)
    assert after.scans == before.scans


SPLITS = ("a", "b é", "c")
growth = st.lists(st.fixed_dictionaries({split: st.integers(0, 3) for split in SPLITS}), max_size=8)


def ranges_of(offset: dict[str, str], ends: dict[str, int]) -> dict[str, Range | None]:
    """Return ranges as readers do: positions of two parts, the first split beginning at 5."""
    asked: dict[str, Range | None] = {}
    for split, end in ends.items():
        begin = end_of(offset, split) or [5 if split == "a" else 0, "made"]
        asked[split] = Range(split, begin, [end, "made"]) if end > begin[0] else None
    return asked


@given(growth)
def test_micro_batches_are_contiguous(grown: list[dict[str, int]]) -> None:
    offset: dict[str, str] = {}
    ends = {"a": 5, "b é": 0, "c": 0}
    read: dict[str, list[int]] = {split: [] for split in SPLITS}
    for more in grown:
        ends = {split: end + more[split] for split, end in ends.items()}
        following = json.loads(json.dumps(latest(offset, ranges_of(offset, ends))))  # by way of Spark's checkpoint
        batch = between(offset, following)
        assert batch == between(offset, following)
        assert {wanted.split for wanted in batch} == {split for split, count in more.items() if count}
        for wanted in map(range_in, map(text_of, batch)):
            read[wanted.split] += range(wanted.begin[0], wanted.end[0])
        assert between(following, following) == []
        assert latest(following, ranges_of(following, ends)) == following, "nothing is new"
        offset = following
    assert read == {split: list(range(5 if split == "a" else 0, end)) for split, end in ends.items()}


DSN = "host=db dbname=shop"
SUMS, ROWS = ["key", "value"], ["key", "start", "end", "value"]


def planned(build: Callable[[Any], Any]) -> Any:
    builder = Builder("p")
    build(builder.source(files("/in", "json"), event_time="t", name="in"))
    return plan(builder.build(), Choice(sql=False))


def by_key(records: Any) -> Any:
    return records.key_by("k").count_by_key(name="count")


def windows(records: Any, window: Any) -> Any:
    return records.key_by("k").window(window).count_by_key(name="count")


def of_all(records: Any) -> None:
    """Add sinks that append and sinks that replace."""
    kept = records.filter(lambda record: record["n"] > 1, name="kept")
    kept.sink(to_table(DSN, "t", ["n"]), name="table")
    records.flat_map(lambda record: [record] * 2).sink(to_redis_stream("redis://h", "s", ["n"]), name="entries")
    kept.union(records).sink(to_kafka("b:9", "t", ["n"], spool="/spool", key="n"), name="topic")
    kept.sink(to_nats("nats://h", "s", ["n"], spool="/spool"), name="subject")
    kept.sink(to_delta("/lake", ["n"]), name="lake")
    kept.sink(to_table(DSN, "t", ["n"], key="n"), name="last")
    by_key(records).tap(print).sink(to_table(DSN, "sums", SUMS, key="key"), name="sums")
    for number, key in enumerate((["key", "start"], ["end", "key"], ["key", "start", "end"])):
        found = records.key_by("k").window(sliding(10, 5)).count_by_key(name=f"count{number}")
        found.sink(to_table(DSN, "rows", ROWS, key=key), name=f"rows{number}")
    records.sink(to_files("/out"), name="files")


def test_sinks_without_a_reducer_append_and_keyed_sinks_replace() -> None:
    found = planned(of_all)
    check(found)
    assert [output.step for output in appended(found)] == ["table", "entries", "topic", "subject", "lake", "last"]
    lines = list(describe_sinks(found))
    assert [line.split()[2] for line in lines if "appends its records, once" in line] == [
        "table:", "entries:", "topic:", "subject:", "lake:", "last:",
    ]  # fmt: skip
    assert [line.split()[2] for line in lines if "replaces its rows, by key" in line] == [
        "sums:", "rows0:", "rows1:", "rows2:",
    ]  # fmt: skip


class Silent(Process):
    def on_record(self, context: Context, record: Any) -> None:
        pass


def joined(records: Any) -> Any:
    other = records.map(dict, name="other").key_by("k").window(sliding(10, 5))
    return records.key_by("k").window(sliding(10, 5)).join(other, name="pairs")


@pytest.mark.parametrize(
    ("reads", "sink", "says"),
    [
        (by_key, to_delta("/lake", SUMS), r"results of 'count' change .* to_table\(…, key=…\)"),
        (by_key, to_table(DSN, "t", SUMS), r"results of 'count' change .* to_table\(…, key=…\)"),
        (by_key, to_kafka("b:9", "t", SUMS, spool="/s", key="key"), r"results of 'count' change"),
        (by_key, to_table(DSN, "t", SUMS, key=["key", "value"]), r"its key is key, value, .* each key; .* key='key'"),
        (lambda r: windows(r, sliding(10, 5)), to_table(DSN, "t", ROWS, key="key"), r"key and window; .*'start'\]"),
        (lambda r: windows(r, session(5)), to_table(DSN, "t", ROWS, key=["key", "start"]), r"sessions of 'count' grow"),
        (lambda r: by_key(r).map(lambda x: x), to_table(DSN, "t", SUMS, key="key"), r"are steps, .* in a view"),
        (lambda r: by_key(r).filter(lambda x: x), to_table(DSN, "t", SUMS, key="key"), r"are steps, .* in a view"),
        (joined, to_table(DSN, "t", SUMS, key="key"), r"are steps|change"),
        (lambda r: r.key_by("k").process(Silent, name="x"), to_table(DSN, "t", SUMS, key="key"), "'x' emits"),
        (lambda r: by_key(r).union(r), to_table(DSN, "t", SUMS, key="key"), r"takes records of .* together"),
    ],
)  # fmt: skip
def test_sink_that_would_leave_stale_rows_is_rejected(reads: Any, sink: Any, says: str) -> None:
    with pytest.raises(CannotPlan, match=rf"step 'out', .*, by micro-batches: .*{says}.*; or leave --mode streaming"):
        check(planned(lambda records: reads(records).sink(sink, name="out")))


def test_source_that_is_reread_for_each_result_is_not_appended() -> None:
    builder = Builder("p")
    builder.source(files("/in", "text"), name="in").sink(to_files("/out"))
    builder.source(sequence(3), name="few").sink(to_table(DSN, "t", ["n"]), name="out")
    with pytest.raises(CannotPlan, match=r"step 'out'.*records of few are read again for each result"):
        check(plan(builder.build()))

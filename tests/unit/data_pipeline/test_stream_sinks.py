"""Server sinks of a stream: when they write, and which combinations are rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.planner import Choice, plan
from data_pipeline.core.stream_sinks import appended, check, describe_sinks
from heronry.streamlet import (
    Builder,
    Context,
    Process,
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

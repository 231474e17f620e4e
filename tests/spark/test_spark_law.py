"""Equality of batch, reference and online results on Spark, for random programs and random typed files."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from data_pipeline.core.combine import Limits
from data_pipeline.core.planner import Choice, plan
from heronry.streamlet import (
    Builder,
    collect,
    count,
    files,
    max_,
    mean,
    min_,
    sequence,
    session,
    sliding,
    sum_,
    tumbling,
)
from heronry.streamlet.program import KeyValue, Program
from heronry.streamlet.reference import run
from heronry.streamlet.results import latest
from tests.support.streamlets import random_programs  # the test without Spark is there
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable
from tests.support.streamlets.random_programs import RECIPES, Recipe
from tests.support.streamlets.spark_engine import read_back, run_all

# Its functions are pickled by value: workers could not import them by name.
cloudpickle.register_pickle_by_value(random_programs)

# A job takes seconds: few examples of many programs each, and no shrinking.
FEW = settings(
    max_examples=3, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
SCHEMA = {"k": "str", "n": "int", "x": "float", "b": "bool", "t": "int"}
ARROW = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("b", pa.bool_()), ("t", pa.int64())])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from([None, "a", "b", "ä b", "c,d", 'e"f']),
            "n": st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63), 2**62])),
            "x": st.one_of(st.none(), st.floats(-1e6, 1e6)),
            "b": st.one_of(st.none(), st.booleans()),
            "t": st.integers(-100, 300),
        }
    ),
    max_size=30,
)
REDUCERS = st.tuples(
    st.sampled_from(["k", "n", "x", "b"]),
    st.one_of(
        st.tuples(st.just(count()), st.none()),
        st.tuples(st.sampled_from([sum_(), mean()]), st.sampled_from(["n", "x", "b"])),
        st.tuples(st.sampled_from([min_(), max_()]), st.sampled_from(["k", "n", "x", "b", "t"])),
    ),
    st.sampled_from([None, tumbling(60), sliding(90, 40), session(20)]),
)


@pytest.mark.core
@FEW
@given(recipes=st.lists(RECIPES, min_size=5, max_size=5), small=st.booleans(), seed=st.integers(0, 1000))
def test_random_programs_give_equal_results_on_spark_online_and_by_the_reference(
    spark: SparkSession, recipes: list[Recipe], small: bool, seed: int
) -> None:
    programs = [recipe.build().build() for recipe in recipes]
    limits = Limits(max_keys=2, max_bytes=50, chunk_records=3) if small else None
    for recipe, program, found in zip(recipes, programs, run_all(spark, programs, limits), strict=True):
        expected = run(program)
        for sink, records in expected.items():
            assert difference(records, found[sink]) == "", f"Spark: {sink} of {program.describe()}"
        for number, (sink, records) in enumerate(zip(expected.values(), online(recipe, seed), strict=True)):
            assert difference(sink, records) == "", f"online: end {number} of {program.describe()}"


def test_results_read_back_equal_those_of_the_workers(spark: SparkSession, tmp_path: Path) -> None:
    days = [dt.date(2026, 1, 1 + n % 3) for n in range(20)]
    times = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=7 * n, microseconds=n) for n in range(20)]
    table = {"day": days, "at": times, "k": [None, "a", "b", "c"] * 5, "n": [2**62, -1, None, 5] * 5}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    builder = Builder("read-back")
    source = builder.source(files(tmp_path, "parquet"), event_time="at")
    for key in ("day", "at", "k", "n"):
        source.count_by_key(key).sink(collect(), name=f"plain-{key}")
    source.key_by("k").reduce_by_key(max_(), "at").sink(collect(), name="latest")
    source.key_by("k").window(tumbling(1800)).sum_by_key("n").sink(collect(), name="windows")
    source.key_by("k").window(session(1800)).sum_by_key("n").sink(collect(), name="sessions")
    days_of = source.count_by_key("day", name="two")
    days_of.sink(collect(), name="first-of-two")
    days_of.map(str, name="text").sink(collect(), name="second-of-two")
    builder.source(sequence(50)).map(str).key_by(len).count_by_key().sink(collect(), name="python")
    program = builder.build()
    found = read_back(spark, program)
    for sink, expected in run(program).items():
        assert difference(expected, found[sink]) == "", sink


def test_sessions_by_sql_start_after_more_than_the_gap(spark: SparkSession, tmp_path: Path) -> None:
    """Also if files are unordered, times are equal, or times are too far apart for 64 bits."""
    times = {"a": [40, 0, 20, 20, 41, 62, 90, 110, -20], None: [60, 20, 41, 0], "far": [2**62, -(2**62) - 1]}
    rows = [{"k": key, "t": time} for key in times for time in times[key]]
    for number in (0, 1):
        pq.write_table(pa.Table.from_pylist(rows[number::2]), tmp_path / f"{number}.parquet")
    builder = Builder("gaps")
    source = builder.source(files(tmp_path, "parquet"), event_time="t", unit="ms", name="source")
    keyed = source.key_by("k").window(session(0.020))
    keyed.count_by_key().sink(collect(), name="counted")
    keyed.reduce_by_key(mean(), "t").sink(collect(), name="meant")
    program = builder.build()
    assert all(r.sql for r in plan(program, Choice(columns={"source": {"k": "string", "t": "bigint"}})).reductions)
    (found,) = run_all(spark, [program])
    expected = run(program)
    counts = {key: sorted(w.value for w in expected["counted"] if w.key == key) for key in times}
    assert counts == {"a": [1, 2, 6], None: [2, 2], "far": [1, 1]}
    for sink, records in expected.items():
        assert difference(records, found[sink]) == "", sink


def online(recipe: Recipe, seed: int) -> list[list[Any]]:
    """Return the results of each end of the compiled topology, in order; of running results, the last ones."""
    ends: list[list[Any]] = []

    def end(stream: Any) -> None:
        ends.append([])
        stream.tap(ends[-1].append, name=f"end-{len(ends)}")

    with tempfile.TemporaryDirectory() as folder:
        builder = recipe.build(end, **{"user.streamlet.folder": folder})
        with importable(builder):
            world = OnlineEngine(definition_of(builder), Path(folder), seed)
            world.until_final()
            world.stop()
    return [latest(records) if records and isinstance(records[0], KeyValue) else records for records in ends]


@FEW
@given(rows=ROWS, reducers=st.lists(REDUCERS, min_size=3, max_size=3))
def test_sql_over_typed_files_equals_the_reference(
    spark: SparkSession, rows: list[dict[str, Any]], reducers: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        programs = [over_files(Path(folder), form, rows, reducers) for form in ("json", "csv", "parquet")]
        columns = {"source": {name: str(SPARK_TYPES[kind]) for name, kind in SCHEMA.items()}}
        for program in programs:
            planned = plan(program, Choice(columns=columns))
            assert [reduction.sql for reduction in planned.reductions] == [
                value != "x" or monoid.builtin not in ("sum", "mean")  # Python adds floats exactly
                for _, (monoid, value), _ in reducers
            ]
        for program, found in zip(programs, run_all(spark, programs), strict=True):
            for sink, expected in run(program).items():
                assert difference(expected, found[sink]) == "", f"{sink} of {program.describe()}"


SPARK_TYPES = {"str": "string", "int": "bigint", "float": "double", "bool": "boolean"}


def over_files(folder: Path, form: str, rows: list[dict[str, Any]], reducers: list[Any]) -> Program:
    """Return a program that reduces the rows in several ways, written in two files of the format."""
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        place = folder / form / f"part-{number}.{form}"
        place.parent.mkdir(exist_ok=True)
        if form == "parquet":
            pq.write_table(pa.Table.from_pylist(part, schema=ARROW), place)
        else:
            place.write_text(as_json(part) if form == "json" else as_csv(part), newline="")
    builder = Builder(form)
    schema = None if form == "parquet" else SCHEMA
    source = builder.source(files(folder / form, form, schema=schema), event_time="t", name="source")
    for key, (monoid, value), window in reducers:
        keyed = source.key_by(key)
        (keyed if window is None else keyed.window(window)).reduce_by_key(monoid, value).sink(collect())
    return builder.build()


def as_json(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Return the rows as CSV; str fields cannot be None in CSV, so they are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(SCHEMA))
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value is None else value for name, value in row.items()})
    return text.getvalue()

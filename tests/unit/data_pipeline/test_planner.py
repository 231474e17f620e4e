"""Planner: cuts, SQL translation, and messages for unsupported programs."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.core.describe import described
from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.planner import Choice, plan
from heronry.streamlet import (
    Builder,
    archive,
    collect,
    count,
    distinct,
    files,
    max_,
    mean,
    sequence,
    session,
    sliding,
    sum_,
    to_files,
    tumbling,
    view,
)
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.program import Program, ReduceStep, Ref

TYPED = {"k": "str", "n": "int", "x": "float", "t": "int"}


def json_source(**options: Any) -> FileSource:
    return files("/in", "json", schema=TYPED, **options)


def reduced(
    key: Any, monoid: Any, value: Any = None, window: Any = None, source: Any = None, **options: Any
) -> Program:
    builder = Builder("p")
    keyed = builder.source(source or json_source(), **options).key_by(key)
    (keyed if window is None else keyed.window(window)).reduce_by_key(monoid, value).sink(collect())
    return builder.build()


def test_chain_is_one_unit_before_and_one_after_the_reducer() -> None:
    builder = Builder("p")
    lines = builder.source(files("/in", "text"), name="lines")
    lines.flat_map(str.split, name="split").map(str.lower, name="lower").key_by().count_by_key(name="count").filter(
        bool, name="some"
    ).sink(to_files("/out"), name="out")
    found = plan(builder.build())
    (scan,), (reduction,), (output,) = found.scans, found.reductions, found.outputs
    assert scan.unit is not None
    assert [(e.step, e.kind) for e in scan.unit.outputs] == [("count", "reduce")]
    assert reduction.inputs == (("lines", 0),)
    assert not reduction.sql
    assert [(e.step, e.kind) for e in reduction.unit.outputs] == [("out", "sink")]
    assert output.inputs == (("count", 0),)
    text = described(found)
    for part in ("scan lines: text files at /in", "split: flat_map", "count: reduce, combined on the spot", "merge"):
        assert part in text


def test_stream_with_several_readers_is_computed_once() -> None:
    builder = Builder("p")
    numbers = builder.source(sequence(10), name="numbers").map(abs, name="abs")
    numbers.sink(collect(), name="all")
    odd, _ = numbers.branch(bool, name="parts")
    odd.union(numbers, name="both").key_by().count_by_key(name="count").sink(collect(), name="counts")
    _.sink(collect(), name="rest")
    found = plan(builder.build())
    (scan,) = found.scans
    assert scan.unit is not None
    assert {e.step for e in scan.unit.outputs} == {"all", "count", "rest"}
    assert len(scan.unit.nodes) == 1


@pytest.mark.parametrize(
    ("program", "is_sql"),
    [
        (reduced("k", count()), True),
        (reduced("n", max_(), "x"), True),
        (reduced("n", sum_(), "x"), False),  # SQL rounds each sum of floats, so the order would matter
        (reduced("n", mean(), "x"), False),
        (reduced("k", mean(), "n", tumbling(60), event_time="t"), True),
        (reduced("k", sum_(), "n", sliding(60, 10), event_time="t"), True),
        (reduced("k", max_(), "n", session(60), event_time="t"), True),
        (reduced("k", distinct(), "n", session(60), event_time="t"), False),
        (reduced("k", sum_(), "k"), False),  # Python joins str where SQL does not define a sum
        (reduced("k", distinct(), "n"), False),
        (reduced("absent", count()), False),
        (reduced(lambda record: record["k"], count()), False),
        (reduced("k", sum_(), lambda record: record["n"]), False),
        (reduced("k", count(), window=tumbling(60), event_time=lambda record: record["t"]), False),
        (reduced("k", count(), window=tumbling(60), event_time="k"), False),  # Python parses text
        (reduced("k", count(), source=files("/in", "json")), False),  # without types
        (reduced(None, count(), source=files("/in", "text")), True),
        (reduced(None, count(), source=sequence(5)), False),
        (reduced("k", count(), source=files("/in", "archive")), False),
    ],
)  # fmt: skip
def test_built_in_reducers_over_typed_fields_become_sql(program: Program, is_sql: bool) -> None:
    (reduction,) = plan(program).reductions
    assert reduction.sql is is_sql
    assert (plan(program).scans[0].unit is None) is is_sql


def test_parquet_becomes_sql_if_its_column_types_allow() -> None:
    program = reduced("k", sum_(), "n", source=files("/in", "parquet"))
    for types, is_sql in (
        ({}, False), ({"k": "string", "n": "bigint"}, True), ({"k": "string", "n": "decimal(10,2)"}, False),
        ({"k": "struct<a:int>", "n": "bigint"}, False), ({"k": "string"}, False),
        ({"k": "string", "n": "bigint", "sp ace, Käse": "int"}, True),
        ({"k": "string", "n": "bigint", "file": "string"}, True), ({"k": "string", "n": "bigint", "`": "int"}, False),
    ):  # fmt: skip
        found = plan(program, Choice(columns={"source": types}))
        assert found.reductions[0].sql is is_sql, types


def test_orc_becomes_sql_except_dates_and_partition_fields() -> None:
    types, more = {"k": "string", "n": "bigint"}, {"day": "date"}
    for source, columns, is_sql in (
        (files("/in", "orc"), types, True), (files("/in", "orc"), types | more, False),
        (files("/in", "parquet"), types | more, True), (files("/in", "parquet", partitions=["k"]), types, False),
        (files("/in", "json", schema=TYPED, partitions=["day"]), {}, False),
    ):  # fmt: skip
        (reduction,) = plan(reduced("k", sum_(), "n", source=source), Choice(columns={"source": columns})).reductions
        assert reduction.sql is is_sql, (source, columns)


def test_function_prevents_sql_and_a_union_of_tables_does_not() -> None:
    builder = Builder("p")
    one, two = (builder.source(json_source(), name=name) for name in ("one", "two"))
    one.union(two).key_by("k").count_by_key(name="sql").sink(collect())
    one.filter(bool).key_by("k").count_by_key(name="python").sink(collect())
    found = {reduction.step.name: reduction for reduction in plan(builder.build()).reductions}
    assert found["sql"].sql
    assert [table.scan for table in found["sql"].tables] == ["one", "two"]
    assert not found["python"].sql


@pytest.mark.parametrize(
    ("one", "two", "is_sql"),
    [
        ("bigint", "int", True),
        ("float", "double", True),
        ("bigint", "string", False),
        ("bigint", "double", False),
        ("bigint", "boolean", False),
        ("date", "timestamp", False),
    ],
)
@pytest.mark.parametrize("field", ["k", "n"])
def test_union_of_tables_is_sql_if_no_value_changes_its_type(field: str, one: str, two: str, is_sql: bool) -> None:
    builder = Builder("p")
    sources = [builder.source(files(f"/{name}", "parquet"), name=name) for name in ("one", "two")]
    sources[0].union(sources[1]).key_by("k").reduce_by_key(max_(), "n", name="r").sink(collect())
    other = {"k": "string", "n": "string"}
    columns = {"one": other | {field: one}, "two": other | {field: two}}
    (reduction,) = plan(builder.build(), Choice(columns=columns)).reductions
    assert reduction.sql is is_sql


def test_view_of_a_reducer_without_windows_gets_buckets() -> None:
    builder = Builder("p")
    source = builder.source(json_source(), event_time="t")
    source.key_by("k").count_by_key(name="count").sink(view("v", "/view", bucket=60), name="view")
    found = plan(builder.build())
    (reduction,) = found.reductions
    assert isinstance(reduction.step, ReduceStep)
    assert reduction.step.windowing is not None
    assert reduction.step.windowing.window.length_ms == 60_000
    assert found.outputs[0].reduce == reduction.step


def test_archive_replaces_the_step_it_recorded() -> None:
    builder = Builder("p")
    parsed = builder.source(files("/in", "text"), name="lines", event_time=len).map(str.split, name="parse")
    parsed.sink(archive("/archive"), name="keep")
    parsed.key_by(0).count_by_key(name="count").sink(collect(), name="out")
    found = plan(builder.build(), Choice(archive=FileSource("/archive", "archive", by_hour=True)))
    (scan,) = found.scans
    assert (scan.step, scan.source.path) == ("parse", "/archive")  # type: ignore[union-attr]  # a file source
    assert [output.step for output in found.outputs] == ["out"]
    without = plan(builder.build())
    assert without.scans[0].step == "lines"
    assert any("archive" in note for note in without.notes)


def endless(source: Any) -> Program:
    builder = Builder("p")
    builder.source(source, name="numbers").sink(collect())
    return builder.build()


def test_unsupported_program_is_rejected_by_name() -> None:
    with pytest.raises(CannotPlan, match=r"'numbers'.*infinite"):
        plan(endless(sequence()))
    with pytest.raises(CannotPlan, match=r"'numbers'.*no"):
        plan(endless(sequence(5)), Choice(to_ms=5))
    with pytest.raises(CannotPlan, match="unknown source step 'nothing'"):
        plan(endless(sequence(5)), Choice(inputs={"nothing": FileSource("/in", "json")}))

    class Join:
        name, kind, inputs = "both", "join", (Ref("numbers"),)

    strange = Program("p", (*endless(sequence(5)).steps, Join()))  # type: ignore[arg-type]  # an operator of the future
    with pytest.raises(CannotPlan, match=r"'both'.*Join"):
        plan(strange)


def test_command_line_input_replaces_the_declared_one() -> None:
    program = endless(sequence())
    found = plan(program, Choice(inputs={"numbers": FileSource("/history", "json")}))
    assert found.scans[0].source == FileSource("/history", "json")


def test_planning_does_not_read_files(tmp_path: Path) -> None:
    plan(endless(files(tmp_path / "not there", "json")))


@dataclass
class Typed:
    k: str
    n: int
    x: float | None
    price: Decimal | None = None


def typed(form: str, key: Any, monoid: Any, value: Any = None, schema: Any = Typed) -> Program:
    builder = Builder("p")
    stream = builder.source(files("/in", form), name="source").with_schema(schema, name="typed")
    stream.key_by(key).reduce_by_key(monoid, value, name="reduced").sink(collect())
    return builder.build()


@dataclass
class Small:
    n: int
    x: float


@pytest.mark.parametrize(
    ("columns", "alone"),
    [
        ({"n": "bigint", "x": "double"}, True), ({"n": "smallint", "x": "int", "more": "array<int>"}, True),
        ({"n": "bigint", "x": "bigint"}, False),  # not every bigint is a float
        ({"n": "string", "x": "double"}, False), ({"x": "double"}, False), ({"N": "bigint", "x": "double"}, False),
        ({"n": "bigint", "x": "double", "`": "int"}, False), ({}, False),
    ],
)  # fmt: skip
def test_catalyst_types_columns_that_always_fit(columns: dict[str, str], alone: bool) -> None:
    found = plan(typed("parquet", "n", max_(), "x", Small), Choice(columns={"source": columns}))
    (table,) = found.reductions[0].tables
    assert table.alone is alone
    how = "by Catalyst alone" if alone else "in one mapInArrow, by the Python rule"
    assert f"columns for the SQL of reduced, typed {how}: typed: schema Small (n int, x float)" in described(found)


def test_reducers_after_a_schema_are_sql_if_its_types_allow() -> None:
    for form in ("json", "csv", "parquet"):
        for key, monoid, value, is_sql in (
            ("k", count(), None, True), ("n", max_(), "x", True), ("n", sum_(), "x", False), ("k", max_(), "k", True),
            ("k", sum_(), "price", False), ("price", count(), None, False), ("absent", count(), None, False),
            ("k", distinct(), "n", False),
        ):  # fmt: skip
            (reduction,) = plan(typed(form, key, monoid, value)).reductions
            assert reduction.sql is is_sql, (form, key)
    assert not plan(typed("text", "k", count())).reductions[0].sql
    (python,) = plan(typed("json", "k", count()), Choice(sql=False)).reductions
    assert "typed: schema Typed (k str, n int" in described(plan(typed("json", "k", count()), Choice(sql=False)))
    assert python.tables == ()

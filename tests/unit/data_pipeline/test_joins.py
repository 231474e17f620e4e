"""Joins that become SQL, and the plan's reason for those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from data_pipeline.core.describe import described
from data_pipeline.core.plan import JoinSide, Plan, Table
from data_pipeline.core.planner import Choice, plan
from heronry.streamlet import Builder, Window, collect, files, sequence, session, sliding, tumbling

PLAIN = {"k": "string", "n": "bigint", "x": "double", "b": "boolean", "day": "date", "t": "bigint"}


@dataclass
class Click:
    k: str
    t: int
    x: float | None = None


@dataclass
class Timeless:
    k: str


def joined(
    left: Any = "k", right: Any = "k", *, window: Window | None = None, source: Any = None, before: str = "",
    schema: type | None = None, own: Any = None, columns: Mapping[str, str] | None = PLAIN, how: str = "inner",
    choice: Choice | None = None, event_time: Any = "t",
) -> Plan:  # fmt: skip
    """Plan a join of the sources one and two; the options apply to the left side."""
    builder = Builder("p")
    one = builder.source(source or files("/one", "parquet"), event_time=event_time, name="one")
    two = builder.source(files("/two", "parquet"), event_time="t", name="two")
    stream = one.with_schema(schema, name="typed") if schema else one
    stream = getattr(stream, before)(bool, name="before") if before else stream
    stream = stream.union(two, name="united") if own == "union" else stream
    time = {"event_time": own, "unit": "ms"} if own and own != "union" else {}
    keyed = stream.key_by(left).window(window or tumbling(60), **time)
    other = two.key_by(right).window(window or tumbling(60), **({"event_time": "t", "unit": "ms"} if time else {}))
    keyed.join(other, how, name="pairs").sink(collect(), name="out")
    types = {name: found for name, found in (("one", columns), ("two", PLAIN)) if found is not None}
    return plan(builder.build(), choice or Choice(columns=types))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (joined(), ""),
        (joined(how="outer", window=sliding(90, 40)), ""),
        (joined("n", "x"), ""),
        (joined("b", "n"), ""),
        (joined("day", "day"), ""),
        (joined(own="t"), ""),
        (joined(schema=Click), ""),
        (joined(columns=PLAIN | {"price": "decimal(10,2)", "raw": "binary", "at": "timestamp"}), ""),
        (joined(window=session(60)), "its windows are sessions"),
        (joined("k", "n"), "the keys are of different kinds, string and number, so only None can match"),
        (joined("day", "k"), "the keys are of different kinds, date and string"),
        (joined(lambda record: record["k"]), "the left side's key is not a column"),
        (joined("k", lambda record: record["k"]), "the right side's key is not a column"),
        (joined("absent"), "the left side's key is 'absent', which is not a column"),
        (joined("price", columns=PLAIN | {"price": "decimal(10,2)"}), "column 'price' of type decimal(10,2)"),
        (joined(None), "the left side's key is not a column"),
        (joined(columns=PLAIN | {"list": "array<int>"}), "the left side's column 'list' is of type array<int>"),
        (joined(columns=PLAIN | {"K": "string"}), "SQL does not know the columns, does not tell their names apart"),
        (joined(source=files("/one", "orc")), "or would not look at dates of ORC"),
        (joined(source=files("/one", "orc"), columns={"k": "string", "t": "int"}), ""),
        (joined(source=files("/one", "parquet", partitions=["k"])), "source 'one' has fields in its folders"),
        (joined(columns=None), "SQL does not know the columns"),
        (joined(columns=PLAIN | {"t": "string"}), "the left side's event time is column 't' of type string"),
        (joined(own="k"), "the left side's event time is column 'k' of type string"),
        (joined(own=lambda record: record["t"]), "the left side's event time is not a column"),
        (joined(schema=Timeless, own="t"), "the left side's event time is 't', which is not a column"),
        (joined(before="filter"), "step 'before' (filter) precedes the left side"),
        (joined(schema=Click, before="filter"), "step 'before' (filter) precedes the left side"),
        (joined(own="union"), "step 'united' (union) precedes the left side"),
        (joined(source=files("/one", "json", schema={"k": "str", "t": "int"})), "is not of Parquet or ORC files"),
        (joined(source=sequence(5), event_time=abs), "the left side's source 'one' is not of Parquet or ORC files"),
        (joined(schema=Click, columns=PLAIN | {"x": "string"}), "Python types the columns, in step 'typed'"),
    ],
)  # fmt: skip
def test_join_is_sql_or_the_plan_gives_a_reason(found: Plan, why: str) -> None:
    (reduction,) = found.reductions
    assert why in reduction.why_python
    assert reduction.sql is (reduction.join is not None) is (why == "")
    assert (f"(no SQL: {reduction.why_python})" in described(found)) is (why != "")
    assert [scan.unit is None for scan in found.scans] == [reduction.sql] * 2
    assert [node.kind for node in reduction.unit.nodes] == (["sink"] if reduction.sql else ["flat_map"])


def test_join_sides_are_columns_of_tables() -> None:
    (reduction,) = joined("n", "x", schema=None, how="left").reductions
    assert reduction.join is not None
    assert reduction.join.how == "left"
    assert reduction.join.sides == (JoinSide("pairs-left", "n", None), JoinSide("pairs-right", "x", None))
    assert reduction.tables == (Table("one"), Table("two"))
    (typed,) = joined(schema=Click).reductions
    assert typed.tables[0].alone
    assert [step.name for step in typed.tables[0].schemas] == ["typed"]
    (own,) = joined(own="t").reductions
    assert own.join is not None
    assert own.join.sides[0].time is not None


def test_time_range_requires_the_source_time_as_a_column() -> None:
    bounds = Choice(from_ms=0, columns={"one": PLAIN | {"at": "string"}, "two": PLAIN})
    assert joined(choice=bounds).reductions[0].sql
    (reduction,) = joined(choice=bounds, event_time="at", own="t").reductions
    assert reduction.why_python == "the left side's event time is column 'at' of type string"


def test_join_with_dead_letters_is_python_without_a_note() -> None:
    found = joined(choice=Choice(columns={"one": PLAIN, "two": PLAIN}, sql=False))
    assert not found.reductions[0].sql
    assert "SQL" not in described(found)  # identifies the portions of a streaming run

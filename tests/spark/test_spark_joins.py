"""Joins computed by SQL on Spark: results equal the reference for unusual keys, and every record is validated."""

from __future__ import annotations

import datetime as dt
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce as fold
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.failure import failure_in
from data_pipeline.core.planner import Choice, plan
from data_pipeline.core.render import to_json
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.fields import as_json
from data_pipeline.shell.resolved_request import with_columns
from data_pipeline.shell.scan import Tables
from heronry.streamlet import Builder, collect, files, sliding, tumbling
from heronry.streamlet.joins import KINDS
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.windows import Window
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.spark_engine import run_all

FEW = settings(
    max_examples=1, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
NOON = dt.datetime(2026, 3, 29, 0, 30, tzinfo=dt.UTC)
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "small": (pa.int16(), [0, 1, 2]),
    "float": (pa.float64(), [0.0, -0.0, 1.0, 1.5, math.nan, math.inf, -math.inf, 2.0**53, 2.0**63, -(2.0**63)]),
    "single": (pa.float32(), [0.0, -0.0, 1.0, 1.5, math.nan, math.inf, 2.0**53]),
    "bool": (pa.bool_(), [True, False]),
    "str": (pa.string(), ["", "a", "A", "ä", "\U0001f600", 'q"\\\n\x01', "null"]),
    "bytes": (pa.binary(), [b"", b"a", b"\xff"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 3, 29), dt.date(9999, 12, 31)]),
    "aware": (pa.timestamp("us", "UTC"), [NOON, NOON + dt.timedelta(microseconds=1)]),
    "naive": (pa.timestamp("us"), [NOON.replace(tzinfo=None)]),
}
NUMBERS = ("int", "small", "float", "single", "bool")
PAIRS = [(one, two) for one in NUMBERS for two in NUMBERS] + [(one, one) for one in KEYS if one not in NUMBERS]


@dataclass(frozen=True)
class Recipe:
    """Sides as (key, time in seconds) lists, and their join. ``alone``: a self-join that ignores the right side."""

    kinds: tuple[str, str]
    sides: tuple[list[tuple[Any, int]], list[tuple[Any, int]]]
    how: str
    window: Window
    own: bool
    alone: bool

    def program(self, folder: Path, low: int, high: int) -> Program:
        """Return a program over two-part files with the records from ``low`` up to ``high`` seconds."""
        builder, streams = Builder("joins"), []
        for number, (kind, rows) in enumerate(zip(self.kinds, self.sides, strict=True)):
            place = folder / str(number)
            place.mkdir(parents=True)
            kept = [{"k": key, "t": time, "n": n} for n, (key, time) in enumerate(rows) if low <= time < high]
            shape = pa.schema([("k", KEYS[kind][0]), ("t", pa.int64()), ("n", pa.int64())])
            form = "orc" if number and kind in NUMBERS else "parquet"
            for part in (0, 1):
                table = pa.Table.from_pylist(kept[part::2], schema=shape)
                (orc if form == "orc" else pq).write_table(table, place / f"{part}.{form}")
            streams.append(builder.source(files(place, form), event_time="t", name=f"source-{number}"))
        left, right = streams[0], streams[0] if self.alone else streams[1]
        if self.alone:
            streams[1].sink(collect(), name="unjoined")
        time = {"event_time": "t"} if self.own else {}
        pairs = left.key_by("k").window(self.window, **time).join(
            right.key_by("k").window(self.window, **time), self.how, name="pairs"
        )  # fmt: skip
        pairs.sink(collect(), name="all")
        return builder.build()


@st.composite
def recipes(draw: Callable[[Any], Any]) -> Recipe:
    kinds = draw(st.sampled_from(PAIRS))
    sides = []
    for kind in kinds:
        keys = st.one_of(st.none(), st.sampled_from(KEYS[kind][1]))
        sides.append(draw(st.lists(st.tuples(keys, st.integers(-60, 120)), max_size=14)))
    return Recipe(
        kinds, (sides[0], sides[1]), draw(st.sampled_from(KINDS)),
        draw(st.sampled_from([tumbling(60), sliding(90, 40)])), draw(st.booleans()), draw(st.booleans()),
    )  # fmt: skip


def every_key(one: str, two: str, how: str) -> Recipe:
    """Return a recipe with each key twice in one window and once in the next one, on both sides."""
    sides = [[(key, time) for key in [None, *KEYS[kind][1]] for time in (7, 8, 67)] for kind in (one, two)]
    return Recipe((one, two), (sides[0], sides[1]), how, tumbling(60), own=False, alone=False)


EVERY = [
    every_key("int", "float", "outer"), every_key("single", "bool", "left"), every_key("float", "single", "inner"),
    every_key("bool", "small", "right"), every_key("str", "str", "outer"), every_key("aware", "aware", "inner"),
]  # fmt: skip


@FEW
@example(drawn=EVERY, bounds=None)
@given(drawn=st.lists(recipes(), min_size=5, max_size=5), bounds=st.sampled_from([None, (-20, 70)]))
def test_joins_by_sql_equal_the_reference(
    spark: SparkSession, drawn: list[Recipe], bounds: tuple[int, int] | None
) -> None:
    low, high = bounds or (-1000, 1000)
    choice = Choice() if bounds is None else Choice(from_ms=low * 1000, to_ms=high * 1000)
    with tempfile.TemporaryDirectory() as folder:
        programs = [recipe.program(Path(folder) / str(n), -1000, 1000) for n, recipe in enumerate(drawn)]
        within = [recipe.program(Path(folder) / f"{n}-within", low, high) for n, recipe in enumerate(drawn)]
        expected = [run(program)["all"] for program in within]
        lines = lines_of(spark, programs, choice)
        for number, found in enumerate(run_all(spark, programs, choice=choice)):
            assert difference(expected[number], found["all"]) == "", drawn[number]
            if number in lines:
                told = [json.loads(to_json(pair)) for pair in expected[number]]
                assert difference(told, lines[number]) == "", drawn[number]


def lines_of(spark: SparkSession, programs: list[Program], choice: Choice) -> dict[int, list[Any]]:
    """Return the pairs, written by Spark itself where it can; every join must be computed by SQL."""
    frames: list[DataFrame] = []
    for number, program in enumerate(programs):
        tables = Tables(spark)
        found = plan(program, with_columns(tables, program, choice))
        assert [reduction.sql for reduction in found.reductions] == [True], found.reductions[0].why_python
        fields = Execution(spark, found, tables=tables).fields("all")
        if fields is not None:
            frames.append(as_json(fields).select(sql.lit(number).alias("program"), "data"))
    lines: dict[int, list[Any]] = {}
    for row in fold(DataFrame.union, frames).collect() if frames else []:
        lines.setdefault(row["program"], []).append(json.loads(row["data"]))
    return lines


@dataclass
class Click:
    k: str
    t: int


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"k": "a", "t": None}, "EventTimeError: the field 't' is not an event time"),
        ({"k": None, "t": 1}, "SchemaError: the record does not fit Click: field 'k' is None, and not optional"),
        ({"k": b"\xed\xa0\x80", "t": 1}, "ValueError: the record cannot be read: field 'k' is not valid UTF-8"),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_invalid_record_is_reported_if_the_other_side_is_empty(
    spark: SparkSession, tmp_path: Path, wrong: dict[str, Any], told: str, side: int
) -> None:
    """An inner join alone would not read the record."""
    builder, streams = Builder("wrong"), []
    for number in (0, 1):
        rows = [{"k": b"a", "t": 1}, {**wrong, "k": wrong["k"].encode() if isinstance(wrong["k"], str) else wrong["k"]}]
        columns = {"k": pa.array([r["k"] for r in rows], pa.binary()).view(pa.string())}
        table = pa.table(columns | {"t": pa.array([r["t"] for r in rows], pa.int64())})
        pq.write_table(table if number == side else table.slice(0, 0), tmp_path / f"{number}.parquet")
        source = builder.source(files(tmp_path / f"{number}.parquet", "parquet"), event_time="t", name=f"in-{number}")
        streams.append(source.with_schema(Click, name=f"typed-{number}") if "Schema" in told else source)
    pairs = streams[0].key_by("k").window(tumbling(60)).join(streams[1].key_by("k"), "inner", name="pairs")
    pairs.sink(collect(), name="all")
    with pytest.raises(Exception, match="USER_RAISED") as raised:
        run_all(spark, [builder.build()])
    failure = failure_in(str(raised.value))
    assert failure is not None
    assert (failure.error, failure.step) == (told, f"{'typed' if 'Schema' in told else 'in'}-{side}")
    assert failure.file.endswith(f"/{side}.parquet")

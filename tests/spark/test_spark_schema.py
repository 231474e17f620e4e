"""``with_schema`` on Spark: types by Catalyst, alone or after the Python rule, equal those of the reference."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import io
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from data_pipeline.core.describe import described
from data_pipeline.core.failure import failure_in
from data_pipeline.core.planner import Choice, plan
from heronry.streamlet import Builder, collect, count, files, max_, mean, min_, sliding, sum_, tumbling
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.spark_engine import run_all

FEW = settings(
    max_examples=2, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


@dataclass
class Reading:
    n: int
    x: float
    ok: bool | None
    at: dt.datetime
    day: dt.date | None
    raw: bytes
    k: str | None = None


COLUMNS = {
    "n": "bigint", "x": "double", "ok": "boolean", "at": "timestamp", "day": "date", "raw": "binary", "k": "string",
    "other": "decimal(4,1)",
}  # fmt: skip
ARROW = pa.schema(
    [
        ("n", pa.int64()), ("x", pa.float64()), ("ok", pa.bool_()), ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()), ("raw", pa.binary()), ("k", pa.string()), ("other", pa.decimal128(4, 1)),
    ]
)  # fmt: skip
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.one_of(st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63)])),
            "x": st.floats(-1e6, 1e6),
            "ok": st.one_of(st.none(), st.booleans()),
            "at": st.datetimes(dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 3), timezones=st.just(dt.UTC)),
            "day": st.one_of(st.none(), st.dates(dt.date(1, 1, 1), dt.date(1, 1, 3)), st.just(dt.date(9999, 12, 31))),
            "raw": st.binary(max_size=2),
            "k": st.sampled_from([None, "a", "b", "ä b", "c,d", 'e"f', "'", "\\"]),
        }
    ),
    max_size=30,
)
REDUCERS = st.tuples(
    st.sampled_from(["n", "x", "ok", "at", "day", "raw", "k"]),
    st.one_of(
        st.tuples(st.just(count()), st.none()),
        st.tuples(st.sampled_from([sum_(), mean()]), st.sampled_from(["n", "ok"])),
        st.tuples(st.sampled_from([min_(), max_()]), st.sampled_from(["n", "x", "ok", "at", "day", "raw", "k"])),
    ),
    st.sampled_from([None, tumbling(3600), sliding(9000, 4000)]),
    st.sampled_from(["at", "n", None]),
)


@FEW
@given(rows=ROWS, reducers=st.lists(REDUCERS, min_size=2, max_size=2))
def test_typed_columns_reduce_to_the_results_of_the_reference(
    spark: SparkSession, rows: list[dict[str, Any]], reducers: list[Any]
) -> None:
    if any(own == "n" for *_, window, own in reducers if window is not None):
        rows = [{**row, "n": row["n"] % 99_999} for row in rows]  # as an event time
    with tempfile.TemporaryDirectory() as folder:
        programs = [over_files(Path(folder), form, rows, reducers) for form in ("json", "csv", "parquet")]
        for program, alone in zip(programs, (False, False, True), strict=True):
            found = plan(program, Choice(columns={"source": COLUMNS}) if alone else Choice())
            assert [[table.alone for table in one.tables] for one in found.reductions] == [[alone]] * len(reducers)
            assert ("typed by Catalyst alone: readings: schema Reading (n int, x" in described(found)) is alone
        for program, found_there in zip(programs, run_all(spark, programs), strict=True):
            for sink, expected in run(program).items():
                assert difference(expected, found_there[sink]) == "", f"{sink} of {program.describe()}"


def over_files(folder: Path, form: str, rows: list[dict[str, Any]], reducers: list[Any]) -> Program:
    """Return a program that types rows of two files of the format and reduces them in several ways."""
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        place = folder / form / f"part-{number}.{form}"
        place.parent.mkdir(exist_ok=True)
        if form == "parquet":
            pq.write_table(pa.Table.from_pylist(part, schema=ARROW), place)
        else:
            place.write_text(as_json(part) if form == "json" else as_csv(part), newline="")
    builder = Builder(form)
    source = builder.source(files(folder / form, form), event_time="at", name="source")
    typed = source.with_schema(Reading, name="readings")
    typed.sink(collect(), name="all")
    for key, (monoid, value), window, own in reducers:
        keyed = typed.key_by(key)
        keyed = keyed if window is None else keyed.window(window, event_time=own)
        keyed.reduce_by_key(monoid, value).sink(collect())
    return builder.build()


def as_text(value: Any) -> str:
    """Return a string for a value that JSON cannot represent."""
    return value.isoformat() if isinstance(value, dt.date) else base64.b64encode(value).decode()


def as_json(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps({**row, "more": 1}, default=as_text) + "\n" for row in rows)


def as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), restval="x")
    writer.writeheader()
    for row in rows:
        cells = {**row, "raw": as_text(row["raw"]), "at": row["at"].isoformat()}  # a float is its repr
        writer.writerow({name: "" if value is None else value for name, value in cells.items()})
    return text.getvalue()


def test_schema_errors_of_catalyst_equal_those_of_the_rule(spark: SparkSession, tmp_path: Path) -> None:
    good = {"n": 1, "x": 1.0, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "raw": b""}
    for field in ("n", "raw"):
        table = pa.Table.from_pylist([good, {**good, field: None}], schema=ARROW)
        pq.write_table(table, tmp_path / f"{field}.parquet")
        builder = Builder("wrong")
        source = builder.source(files(tmp_path / f"{field}.parquet", "parquet"))
        source.with_schema(Reading, name="readings").count_by_key("k").sink(collect())
        with pytest.raises(Exception, match="USER_RAISED") as raised:
            run_all(spark, [builder.build()])
        failure = failure_in(str(raised.value))
        assert failure is not None
        letters: list[dict[str, Any]] = []
        run(builder.build(), failed=letters)
        assert [failure.step] == [letter["step"] for letter in letters] == ["readings"]
        assert failure.error.removeprefix("SchemaError: ") in letters[0]["error"]
        assert failure.file.endswith(f"{field}.parquet")

"""File sources on Spark read the same records as the reference, in every format, and only the requested hours."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from data_pipeline.core.decode import plain_path
from data_pipeline.core.failure import failure_in
from data_pipeline.core.planner import Choice, plan
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.job import with_file
from data_pipeline.shell.output import spark_url
from data_pipeline.shell.resolved_request import with_columns
from data_pipeline.shell.scan import Tables, footers, seen_files
from heronry.streamlet import Builder, collect, files, sequence
from heronry.streamlet.packed import ReadError
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.windows import hour_folder, tumbling
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.spark_engine import run_all

TEXT = Path(__file__).parents[2] / "examples" / "data" / "northanger_abbey.txt"
HOUR = 3_600_000
MAP = pa.map_(pa.string(), pa.int64())


def through(source: Any, **options: Any) -> Program:
    builder = Builder("through")
    builder.source(source, name="source", **options).sink(collect(), name="out")
    return builder.build()


def counted(source: Any) -> Program:
    builder = Builder("counted")
    words = builder.source(source).flat_map(str.split).map(str.lower)
    words.key_by().count_by_key().sink(collect(), name="out")
    return builder.build()


def test_every_format(spark: SparkSession, tmp_path: Path) -> None:
    files_of = {
        "text/a b.txt": b"one\r\n\ntwo \xff\xfe x\nthree", "text/deeper/c.txt": b"four\n", "text/_no.txt": b"no\n",
        "json/a.json": b'{"a": 1, "b": [1, {"c": null}]}\n \n"text"\n12345678901234567890123\n',
        "json/.no.json": b"x\n",
        "csv/a.csv": b'k,v\r\nx,"1,5"\r\n\r\n"q ""r""",\r\n', "csv/b %20ä.csv": b"v,k\n2,y\n",
        "csv/empty.csv": b"k,v\n", "odd [1]{a,b}*?/a.txt": b"odd\n", "odd 1a/a.txt": b"no\n",
        "x%41/a%20b.csv": b"k,v\na,1\n", "xA/a.csv": b"k,v\nb,2\n",
        "days/day=1/k=a%20b/a.json": b'{"v": 1}\n{"v": 2, "k": "row"}\n',
        "days/day=2/k=__HIVE_DEFAULT_PARTITION__/b.json": b'{"v": 3}\n', "tables/day=7/a.csv": b"v\nx\n",
    }  # fmt: skip
    for name, content in files_of.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "parquet").mkdir()
    table = pa.table({"i": [1, None], "s": ["x", "ä"], "l": [[1, 2], None], "d": [{"a": 1.5}, {"a": None}]})
    pq.write_table(table, tmp_path / "parquet" / "a.parquet")
    (tmp_path / "orc").mkdir()
    orc.write_table(table, tmp_path / "orc" / "a.orc")
    odd = pa.table({"b": [b"\xff"], "day": [dt.date(9999, 12, 31)], "s": pa.array([7], pa.int8()), "f": [float("nan")]})
    (tmp_path / "orc2").mkdir()
    orc.write_table(odd, tmp_path / "orc2" / "b.orc")
    programs = [through(files(tmp_path / form, form)) for form in ("text", "json", "csv", "parquet", "orc")]
    programs += [through(files(tmp_path / "odd [1]{a,b}*?", "text")), through(files(tmp_path / "x%41", "csv"))]
    (tmp_path / "tables2" / "day=8").mkdir(parents=True)
    pq.write_table(pa.table({"v": [1, 2], "day": ["of the row", "too"]}), tmp_path / "tables2" / "day=8" / "a.parquet")
    programs += [
        through(files(tmp_path / "orc2", "orc")),
        through(files(tmp_path / "days", "json", partitions={"day": "int", "k": "str"})),
        through(files(tmp_path / "tables", "csv", partitions=["day"])),
        through(files(tmp_path / "tables2", "parquet", partitions=["day"])),
    ]
    programs += [
        through(files(tmp_path / "csv", "csv", schema={"v": "str", "k": "str", "absent": "int"})),
        through(sequence(20, str, start=3)),
        counted(files(TEXT, "text")),
    ]
    for program, found in zip(programs, run_all(spark, programs), strict=True):
        assert difference(run(program)["out"], found["out"]) == "", program.steps[0]


@pytest.mark.parametrize("form", ["json", "parquet", "csv"])
def test_unusual_folders_and_names_are_read_like_the_reference(spark: SparkSession, tmp_path: Path, form: str) -> None:
    folder, other = tmp_path / "in", tmp_path / "other"
    for number, path in enumerate((
        folder / "a:b", folder / "x=1:2" / "c", other / "linked", folder / "_day=1" / "no", folder / "no._COPYING_",
    )):  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        if form == "parquet":
            pq.write_table(pa.table({"n": [number]}), path)
        else:
            path.write_text(f"n\n{number}\n" if form == "csv" else f'{{"n": {number}}}\n')
    (folder / ".a:b.crc").write_bytes(b"crc\0stale")
    (folder / "link").symlink_to(other / "linked")
    (folder / "folder").symlink_to(other)
    (folder / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(folder / "pipe")
    program = through(files(folder, form))
    expected = run(program)["out"]
    assert [int(record["n"]) for record in expected] == [0, 1, 2]
    (found,) = run_all(spark, [program])
    assert difference(found["out"], expected) == ""
    listed = [f"file:{path}" for path in folder.rglob("*")]
    assert len(seen_files(files(folder, form), listed)) == 3, "of what a stream has listed"


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_column_name_may_contain_a_dot(spark: SparkSession, tmp_path: Path, form: str) -> None:
    table = pa.table({"a.b": ["x", "y", "x"], "a": [1, 2, 3], "c%2Ed": [1.5, 2.5, 3.5]})
    pq.write_table(table, tmp_path / "t") if form == "parquet" else orc.write_table(table, tmp_path / "t")
    by_field, by_function = Builder("field"), Builder("function")
    for builder, key in ((by_field, "a.b"), (by_function, lambda record: record["a.b"])):
        builder.source(files(tmp_path, form)).key_by(key).sum_by_key("a").sink(collect(), name="out")
    programs = [through(files(tmp_path, form)), by_field.build(), by_function.build()]
    for program, found in zip(programs, run_all(spark, programs), strict=True):
        assert difference(found["out"], run(program)["out"]) == ""


def test_row_that_python_cannot_represent_becomes_the_only_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    times = pa.array([0, 400_000_000_000_000_000, 1], pa.timestamp("us"))  # the second: the year 14645
    pq.write_table(pa.table({"n": [1, 2, 3], "at": times}), tmp_path / "t")
    builder = Builder("odd")
    builder.source(files(tmp_path, "parquet")).map(lambda record: record["n"]).sink(collect(), name="out")
    program = builder.build()
    execution = Execution(spark, plan(program), aside=True)
    try:
        assert sorted(execution.records("out", pickle.loads)) == [1, 3]
        (letter,) = execution.letters(5)
    finally:
        execution.close()
    told = json.loads(letter)
    assert told["where"] == str(tmp_path / "t")
    assert "400000000000000000" in str(told["record"])


def test_orc_with_times_is_rejected_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Rejected before reading, except for old dates, which SQL would not detect."""
    within = pa.array([[{"at": None}]], pa.list_(pa.struct([("at", pa.timestamp("us"))])))
    for name, column, told in (
        ("time", pa.array([1], pa.timestamp("us")), "times of ORC in column 'at'"),
        ("within", within, "times of ORC in column 'at'"),
        ("old", pa.array([dt.date(1582, 10, 14)]), "a date of ORC before 1582-10-15 in column 'at'"),
    ):
        orc.write_table(pa.table({"at": column}), tmp_path / f"{name}.orc")
        source = files(tmp_path / f"{name}.orc", "orc")
        with pytest.raises((ReadError, PySparkException), match=told):
            run_all(spark, [through(source)])
        if name == "old":
            builder = Builder("counted")
            builder.source(source).count_by_key("at").sink(collect())
            with pytest.raises(PySparkException, match=told):
                run_all(spark, [builder.build()])


def file_of_failure(spark: SparkSession, program: Program) -> str:
    """Return the file that is named for the first record a program fails on."""
    tables = Tables(spark)
    found = plan(program, with_columns(tables, program, Choice()))
    execution = Execution(spark, found, tables=tables)
    with pytest.raises(PySparkException) as caught:
        execution.records("out", pickle.loads)
    failure = failure_in(str(with_file(spark, tables, found, caught.value)))
    assert failure is not None, str(caught.value)[:1500]
    assert failure is not None
    assert "bad" in failure.value
    return plain_path(failure.file)


@pytest.mark.parametrize("form", ["text", "json", "csv", "parquet"])
def test_file_of_a_failing_record_is_named_among_many(spark: SparkSession, tmp_path: Path, form: str) -> None:
    def refused(record: Any) -> Any:  # nested, so that it travels by value
        if "bad" in str(record):
            raise ValueError("no")
        return record

    places = [
        tmp_path / folder / f"{number} %41ä[0]{{a,b}}*?.{form}" for folder in ("one", "two") for number in range(12)
    ]
    for number, place in enumerate(places):
        place.parent.mkdir(exist_ok=True)
        values = [f"v{number}-{i}" if (number, i) != (17, 5) else "bad" for i in range(20)]
        if form == "parquet":
            pq.write_table(pa.table({"v": values}), place)
        else:
            row = '{{"v": "{}"}}' if form == "json" else "{}"
            place.write_text("\n".join([*["v"] * (form == "csv"), *map(row.format, values)]) + "\n")
    single, united = Builder("single"), Builder("united")
    single.source(files(tmp_path / "two", form)).map(refused).sink(collect(), name="out")
    one = united.source(files(tmp_path / "one", form), name="one").map(refused, name="first")
    two = united.source(files(tmp_path / "two", form), name="two").map(refused, name="second")
    one.union(two).sink(collect(), name="out")
    for builder in (single, united):
        assert file_of_failure(spark, builder.build()) == str(places[17])


def test_columns_from_footers_equal_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    plain: dict[str, Any] = {
        "string": ["a"], "int64": [1], "int32": pa.array([1], pa.int32()), "bool": [True], "float64": [1.0],
        "float32": pa.array([1.0], pa.float32()), "date": [dt.date(2026, 1, 1)], "Two words": ["x"],
        "large": pa.array(["x"], pa.large_string()), "coded": pa.array(["x"]).dictionary_encode(),
    }  # fmt: skip
    other: dict[str, Any] = {
        "binary": [b"x"], "int8": pa.array([1], pa.int8()), "uint32": pa.array([1], pa.uint32()), "list": [[1]],
        "uint64": pa.array([1], pa.uint64()), "at": [dt.datetime(2026, 1, 1)], "struct": [{"a": 1}], "dotted.name": [1],
        "decimal": [Decimal("1.10")], "time": pa.array([1], pa.time32("ms")), "map": pa.array([[("a", 1)]], MAP),
    }  # fmt: skip
    tables = {"plain": pa.table(plain)} | {name: pa.table({name: column}) for name, column in other.items()}
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        found = footers([spark_url(str(tmp_path / f"{name}.parquet"))])
        assert (found.alike, found.columns is not None) == (True, name == "plain"), name
        if found.columns is not None:
            assert found.columns == spark.read.parquet(str(tmp_path / f"{name}.parquet")).schema
    written = str(tmp_path / "written")
    mixed = (
        "'a' AS s, 1Y AS i, CAST(1.5 AS decimal(9, 2)) AS d, array(named_struct('x', 1)) AS l, now() AS t, x'00' AS b"
    )
    spark.sql(f"SELECT {mixed}").write.parquet(written)
    # The footers mark columns that cannot be None; Spark's reader marks none.
    columns = footers([spark_url(written)]).columns
    assert columns is not None
    assert columns.simpleString() == spark.read.parquet(written).schema.simpleString()
    assert spark.read.schema(columns).parquet(written).schema == spark.read.parquet(written).schema
    assert not footers([spark_url(str(tmp_path))]).alike
    assert not footers(["hdfs://nowhere/x"]).alike


def test_column_named_file_is_an_ordinary_column(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"file": ["a", "b", "a"], "n": [1, 2, 3], "t": [1, 2, 70]}
    schema = {"file": "str", "n": "int", "t": "int"}
    for form in ("parquet", "json"):
        (tmp_path / form).mkdir()
    pq.write_table(pa.table(columns), tmp_path / "parquet" / "a.parquet")
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "json" / "a.json").write_text("\n".join(map(json.dumps, records)))
    programs = []
    for source in (files(tmp_path / "parquet", "parquet"), files(tmp_path / "json", "json", schema=schema)):
        builder = Builder("p")
        read = builder.source(source, event_time="t").key_by("file")
        read.window(tumbling(60)).sum_by_key("n", name="windows").sink(collect(), name="windowed")
        read.count_by_key(name="counts").sink(collect(), name="counted")
        programs.append(builder.build())
    for program, found in zip(programs, run_all(spark, programs), strict=True):
        planned = plan(program, with_columns(Tables(spark), program, Choice()))
        assert [reduction.sql for reduction in planned.reductions] == [True, True]
        expected = run(program)
        for sink in ("windowed", "counted"):
            assert difference(expected[sink], found[sink]) == "", (program.steps[0], sink)


def test_large_csv_is_split_and_each_part_has_the_header(spark: SparkSession, tmp_path: Path) -> None:
    lines = ["number,text", *(f"{i},{'x' * 40}{i}" for i in range(4_000))]
    (tmp_path / "large.csv").write_text("\n".join(lines))
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", 20_000)
    try:
        program = through(files(tmp_path, "csv"))
        (found,) = run_all(spark, [program])
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)
    assert difference(run(program)["out"], found["out"]) == ""


def test_archive_gives_each_record_once_and_only_the_requested_hours(spark: SparkSession, tmp_path: Path) -> None:
    def put(name: str, rows: list[tuple[str, str, int, Any]]) -> None:
        for hour in {row[2] // HOUR for row in rows}:
            these = [row for row in rows if row[2] // HOUR == hour]
            folder = tmp_path / hour_folder(hour * HOUR)
            folder.mkdir(parents=True, exist_ok=True)
            columns = list(zip(*these, strict=True))
            made = {"message_id": columns[0], "index": columns[1], "event_time": columns[2]}
            made["value"] = [json.dumps(value) for value in columns[3]]
            pq.write_table(pa.table({name: list(column) for name, column in made.items()}), folder / name)

    put("a.parquet", [("s:f:1", "", 10, {"n": 1}), ("s:f:2", "0", 20, {"n": 2}), ("s:f:2", "1", 20, {"n": 3})])
    put(
        "b.parquet", [("s:f:1", "", 10, {"n": 1}), ("s:f:3", "", HOUR + 5, {"n": 4}), ("s:f:4", "", 3 * HOUR, {"n": 5})]
    )
    program = through(files(tmp_path, "archive"))
    (everything,) = run_all(spark, [program])
    assert sorted(record["n"] for record in everything["out"]) == [1, 2, 3, 4, 5]
    assert difference(run(program)["out"], everything["out"]) == ""
    (part,) = run_all(spark, [program], choice=Choice(from_ms=15, to_ms=3 * HOUR))
    assert sorted(record["n"] for record in part["out"]) == [2, 3, 4]

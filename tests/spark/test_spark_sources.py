"""Sources on Spark read what the reference reads, whatever their format, and only the hours that are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from spark_world import run_all

from data_pipeline.core.planner import Choice
from heronry.streamlet import Builder, collect, files, sequence
from heronry.streamlet.compare import difference
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.windows import hour_folder

TEXT = Path(__file__).parents[2] / "examples" / "data" / "northanger_abbey.txt"
HOUR = 3_600_000


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
        "csv/empty.csv": b"k,v\n",
    }  # fmt: skip
    for name, content in files_of.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "parquet").mkdir()
    table = pa.table({"i": [1, None], "s": ["x", "ä"], "l": [[1, 2], None], "d": [{"a": 1.5}, {"a": None}]})
    pq.write_table(table, tmp_path / "parquet" / "a.parquet")
    programs = [through(files(tmp_path / form, form)) for form in ("text", "json", "csv", "parquet")]
    programs += [
        through(files(tmp_path / "csv", "csv", schema={"v": "str", "k": "str", "absent": "int"})),
        through(sequence(20, str, start=3)),
        counted(files(TEXT, "text")),
    ]
    for program, found in zip(programs, run_all(spark, programs), strict=True):
        assert difference(run(program)["out"], found["out"]) == "", program.steps[0]


def test_a_large_csv_is_cut_and_each_part_knows_its_header(spark: SparkSession, tmp_path: Path) -> None:
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


def test_an_archive_gives_each_record_once_and_only_the_hours_asked_for(spark: SparkSession, tmp_path: Path) -> None:
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

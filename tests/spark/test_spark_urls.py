"""Files at URLs that Hadoop does not support: Spark reads the same records as the reference."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.planner import plan
from data_pipeline.shell.scan import InputNotFound, Tables
from data_pipeline.shell.url_files import is_foreign
from heronry.streamlet import Builder, collect, files
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from tests.support.servers.file_ranges import range_server
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.spark_engine import run_all


def several_ways(source: FileSource, table: FileSource) -> Program:
    """Return a program of records one by one, reduced, and looked up."""
    builder = Builder("urls")
    read = builder.source(source, name="source")
    read.map(repr).sink(collect(), name="records")
    read.key_by(repr).count_by_key(name="counts").sink(collect(), name="counted")
    looked = read.lookup(table, on=lambda record: "1", key=lambda row: row["k"], name="looked")
    looked.map(repr).sink(collect(), name="matched")
    return builder.build()


def test_lines_and_tables_at_a_url(spark: SparkSession, tmp_path: Path) -> None:
    bodies = {
        "text": b"one\r\n\n\xff two\nthree\r\r\n",
        "json": b'{"k": "a", "n": 1}\n \n{"k": "\xc3\xa4", "n": 2}\n',
        "csv": b"k,n\n" + b"".join(b"k%d,%d\n" % (n % 7, n) for n in range(40_000)),
    }
    (tmp_path / "table").write_text("k,v\n1,one\n")
    with range_server(tmp_path) as server:
        programs = []
        table = files(server.url("table"), "csv")
        for form, body in bodies.items():
            name = "json.gz" if form == "json" else form
            (tmp_path / name).write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
            programs.append(several_ways(files(server.url(name), form), table))
        for program, found in zip(programs, run_all(spark, programs), strict=True):
            for sink, expected in run(program).items():
                assert difference(expected, found[sink]) == "", (program.steps[0], sink)


def test_unsupported_format_and_missing_file_at_a_url_are_named(spark: SparkSession, tmp_path: Path) -> None:
    assert [is_foreign(spark, files(f"{scheme}://a/b", "text")) for scheme in ("http", "sftp", "hdfs")] == [1, 1, 0]
    assert is_foreign(spark, files("hdfs://a/b", "text", options="/options.json"))
    assert not is_foreign(spark, files(tmp_path, "text"))
    with range_server(tmp_path) as server:
        for form, error, told in (("parquet", CannotPlan, "not parquet"), ("text", InputNotFound, "nothing to read")):
            builder = Builder("p")
            builder.source(files(server.url("none"), form), name="s").map(repr).sink(collect())
            tables, program = Tables(spark), builder.build()
            (scan,) = plan(program).scans
            with pytest.raises(error, match=f"step 's': .*{told}"):
                tables.read(scan)

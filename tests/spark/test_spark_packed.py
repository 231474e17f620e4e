"""Compressed files and byte order marks on Spark give the same records as the reference, in every execution mode."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from data_pipeline.core.failure import failure_in
from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.planner import Choice, plan
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.resolved_request import check_readable
from heronry.streamlet import Builder, collect, files
from heronry.streamlet.packed import BYTE_ORDER_MARK
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.spark_engine import run_all

SCHEMA = {"k": "str", "n": "int"}


def zst(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(data)
    return bytes(sink.getvalue().to_pybytes())


PACK: dict[str, Any] = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zst}


def several_ways(source: Any, schema: bool) -> Program:
    """Return a program with records one by one (Python), and reduced (SQL if the types are known)."""
    builder = Builder("packed")
    read = builder.source(source, name="source")
    read.map(repr).sink(collect(), name="records")
    read.key_by("k" if schema else repr).count_by_key(name="counts").sink(collect(), name="counted")
    if source.format == "text":
        read.key_by().count_by_key(name="lines").sink(collect(), name="whole")
    return builder.build()


def test_compressed_and_plain_files_in_one_folder(spark: SparkSession, tmp_path: Path) -> None:
    bodies = {
        "text": (b"", b"one\r\n\n\xff two\nthree\r\r\n"),
        "json": (b"", b'{"k": "a", "n": 1}\n \n{"k": "\xc3\xa4", "n": 2}\n'),
        "csv": (b"k,n\n", b"a,1\n\nb,2\n" + b"".join(b"k%d,%d\n" % (n % 7, n) for n in range(40_000))),
    }
    programs = []
    for form, (header, body) in bodies.items():
        place = tmp_path / form
        place.mkdir()
        for number, (ending, pack) in enumerate(PACK.items()):
            for mark in (b"", BYTE_ORDER_MARK):
                (place / f"{number} %41 {len(mark)}{ending}").write_bytes(pack(mark + header + body))
        (place / "only mark").write_bytes(BYTE_ORDER_MARK + header)
        programs.append(several_ways(files(place, form, schema=None if form == "text" else SCHEMA), form != "text"))
    programs.append(several_ways(files(tmp_path / "csv" / "3 %41 3.xz", "csv"), False))
    for program, found in zip(programs, run_all(spark, programs), strict=True):
        for sink, expected in run(program).items():
            assert difference(expected, found[sink]) == "", (program.steps[0], sink)


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
def test_truncated_file_is_an_error_with_its_name(spark: SparkSession, tmp_path: Path, ending: str) -> None:
    data = PACK[ending](b"".join(b"line %d\n" % n for n in range(100_000)))
    (tmp_path / f"good{ending}").write_bytes(data)
    (tmp_path / f"bad{ending}").write_bytes(data[: len(data) // 2])
    program = several_ways(files(tmp_path, "text"), False)
    for sink in ("records", "whole"):
        execution = Execution(spark, plan(program))
        with pytest.raises(PySparkException) as caught:
            execution.records(sink, pickle.loads)
        failure = failure_in(str(caught.value))
        assert failure is not None
        assert failure.file == str(tmp_path / f"bad{ending}")
        assert f"cannot be read as {ending}" in failure.error
        execution.close()


def test_unsupported_compression_is_rejected_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.lz4").write_bytes(b"x")
    with pytest.raises(CannotPlan, match=r"step 'source': '.*a\.lz4': no engine reads"):
        check_readable(several_ways(files(tmp_path, "text"), False), Choice())

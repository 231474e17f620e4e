"""Parquet files that Spark cannot read as the other engines do: its workers read them by the same code."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from data_pipeline.core.decode import Decoding
from data_pipeline.shell.scan import files_for_python
from data_pipeline.shell.tasks import columns_of
from data_pipeline.shell.unpack import Part, UnpackTask
from heronry.streamlet import Builder, collect, files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.packed import ReadError
from heronry.streamlet.reference import run
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.spark_engine import run_all

MOMENT_NS = 1_234_567_891_234_567_891
MOMENT = dt.datetime(2009, 2, 13, 23, 31, 31, 234567)
#: name → (column, values that every engine gives)
AWKWARD: dict[str, tuple[Any, list[Any]]] = {
    "duration": (pa.array([1500, None], pa.duration("ns")), [dt.timedelta(microseconds=1), None]),
    "uint64": (pa.array([2**64 - 1, 0], pa.uint64()), [2**64 - 1, 0]),
    "nulls": (pa.nulls(2), [None, None]),
    "nanoseconds": (pa.array([MOMENT_NS, None], pa.timestamp("ns")), [MOMENT, None]),
    "zoned": (
        pa.array([MOMENT_NS, None], pa.timestamp("ns", "Europe/Berlin")), [MOMENT.replace(tzinfo=dt.UTC), None]
    ),
    "time32": (pa.array([1, None], pa.time32("s")), [dt.time(0, 0, 1), None]),
    "time64": (pa.array([1500, None], pa.time64("ns")), [dt.time(0, 0, 0, 1), None]),
    "float16": (pa.array(np.array([1.5, -2], np.float16)), [1.5, -2.0]),
    "nested": (pa.array([[{"at": MOMENT_NS}], None]), [[{"at": MOMENT_NS}], None]),
    "nested_ns": (pa.array([[MOMENT_NS], None], pa.list_(pa.timestamp("ns"))), [[MOMENT], None]),
    "_metadata": (pa.array([1, 2]), [1, 2]),
}  # fmt: skip
COMMON: dict[str, Any] = {
    "int": pa.array([1, None]), "float": pa.array([0.5, None]), "str": pa.array(["a", None]),
    "bool": pa.array([True, None]), "date": pa.array([dt.date(2026, 1, 1), None]), "a.b": pa.array([b"x", None]),
    "micros": pa.array([MOMENT, None], pa.timestamp("us", "UTC")), "list": pa.array([[1], None]),
    "small": pa.array([1, 2], pa.int8()), "uint32": pa.array([2**32 - 1, None], pa.uint32()),
}  # fmt: skip


def by_reference(folder: Path) -> list[Any]:
    return [record for record, _ in read_all(FileSource(str(folder), "parquet"))]


def by_spark_worker(folder: Path) -> list[Any]:
    """What a Spark worker makes of the files, without Spark."""
    source: FileSource[Any] = FileSource(str(folder), "parquet")
    files = sorted(folder.glob("*.parquet"))
    parts = tuple(Part(FileSource(str(file), "parquet"), "", file.stat().st_size) for file in files)
    numbers = iter([pa.record_batch([pa.array([0])], names=["id"])])
    decoding = Decoding("read", source, None, False)

    def records() -> Iterator[Any]:
        for columns in columns_of("read", source, UnpackTask("read", (parts,))(numbers)):
            found, _, file_of = decoding.decode(columns)
            assert file_of(0) in set(map(str, files))
            yield from found

    return list(records())


def urls(folder: Path) -> list[str]:
    return [f"file://{file}" for file in sorted(folder.glob("*.parquet"))]


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_columns_have_the_same_values_on_every_engine(name: str, tmp_path: Path) -> None:
    column, values = AWKWARD[name]
    pq.write_table(pa.table({name: column}), tmp_path / "a.parquet")
    expected = [{name: value} for value in values]
    assert by_reference(tmp_path) == expected
    assert by_spark_worker(tmp_path) == expected
    assert (files_for_python(urls(tmp_path)) != []) is (name != "nested")


@given(st.lists(st.lists(st.sampled_from([*AWKWARD, *COMMON]), min_size=1, max_size=4, unique=True), max_size=3))
def test_files_of_any_columns_have_the_same_records_on_every_engine(columns_of_files: list[list[str]]) -> None:
    columns = {**COMMON, **{name: column for name, (column, _) in AWKWARD.items()}}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number, names in enumerate(columns_of_files):
            pq.write_table(pa.table({name: columns[name] for name in names}), folder / f"{number}.parquet")
        assert repr(by_spark_worker(folder)) == repr(by_reference(folder))
        plain = all(names == columns_of_files[0] and {*names} <= {*COMMON, "nested"} for names in columns_of_files)
        assert (files_for_python(urls(folder)) == []) is plain


@pytest.mark.parametrize("second", [pa.array([1.5]), pa.array([1], pa.int32()), pa.array(["a"])])
def test_columns_that_change_their_type_keep_the_values_of_each_file(second: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([2**40])}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": second}), tmp_path / "b.parquet")
    assert files_for_python(urls(tmp_path)) == [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    expected = [{"n": 2**40}, {"n": second[0].as_py()}]
    assert by_spark_worker(tmp_path) == by_reference(tmp_path) == expected


def test_a_column_that_a_file_lacks_is_missing_from_its_records(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [2], "b": [3]}), tmp_path / "b.parquet")
    assert files_for_python(urls(tmp_path))
    assert by_spark_worker(tmp_path) == by_reference(tmp_path) == [{"a": 1}, {"a": 2, "b": 3}]


def test_int96_is_an_instant_in_utc(tmp_path: Path) -> None:
    column = pa.array([MOMENT_NS, None], pa.timestamp("ns"))
    pq.write_table(pa.table({"at": column}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    expected = [{"at": MOMENT.replace(tzinfo=dt.UTC)}, {"at": None}]
    assert by_spark_worker(tmp_path) == by_reference(tmp_path) == expected


def test_brotli_is_read_by_python(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet", compression="brotli")
    assert files_for_python(urls(tmp_path))
    assert by_spark_worker(tmp_path) == by_reference(tmp_path) == [{"a": 1}]


def test_two_columns_of_one_name_are_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(ReadError, match=r"a\.parquet has several columns named 'a'; rename one of them"):
        by_reference(tmp_path)


def test_spark_gives_the_records_of_the_reference(spark: SparkSession, tmp_path: Path) -> None:
    """Also where a schema types the columns, and a reducer would otherwise be SQL."""
    for number, names in enumerate(([*AWKWARD], ["uint64", "nanoseconds"])):
        pq.write_table(pa.table({name: AWKWARD[name][0] for name in names}), tmp_path / f"{number}.parquet")
    builder = Builder("awkward")
    rows = builder.source(files(tmp_path, "parquet"), name="rows")
    rows.map(repr, name="shown").sink(collect(), name="all")
    rows.key_by("nanoseconds").sum_by_key("uint64", name="sums").sink(collect(), name="summed")
    program = builder.build()
    (found,) = run_all(spark, [program])
    for sink, expected in run(program).items():
        assert difference(expected, found[sink]) == "", sink

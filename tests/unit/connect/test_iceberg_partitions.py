"""Partitions of Iceberg tables: the library's partition-pruning scans find written rows.

Delete files are rejected.
"""

from __future__ import annotations

import datetime as dt
import importlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from heronry.connect.iceberg import refused
from heronry.connect.iceberg_sink import IcebergSink
from heronry.connect.settings import ConnectError
from tests.support.connectors import checkpoint, row
from tests.support.delta_tables import TYPES, UTC, WORDS, arrow, typed
from tests.support.iceberg_tables import imported, make, opened, partition, rows_of, with_deletes, write
from tests.unit.connect.test_iceberg import read, reader_of, sink_of

COLUMNS = ("n", "word", "small", "price", "ok", "raw", "day", "at", "local")
SPECS = {
    "identity": tuple((column, "identity") for column in COLUMNS),
    "bucket": tuple((column, "bucket[3]") for column in COLUMNS if column != "ok"),
    "truncate": (("n", "truncate[10]"), ("word", "truncate[1]"), ("price", "truncate[50]"), ("raw", "truncate[1]"),
                 ("ok", "void")),
    "times": (("day", "day"), ("at", "hour"), ("local", "month")),
    "longer times": (("day", "year"), ("at", "day"), ("local", "year")),
    "longest times": (("day", "month"), ("at", "year"), ("local", "hour")),
    "the rest of times": (("at", "month"), ("local", "day")),
}  # fmt: skip
OLD = {
    "n": -7, "word": "ab/ü%", "small": -1, "price": Decimal("-1.5"), "x": None, "ok": False, "raw": b"\xff/",
    "day": dt.date(1969, 12, 31), "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    "local": dt.datetime(1, 1, 1),
}  # fmt: skip
SINCE = [typed(n) for n in range(3)]
ROWS = [*SINCE, OLD, {**typed(4), "word": "", "price": Decimal("7.50")}, {**dict.fromkeys(OLD), "n": 10}]


def put(folder: Path, rows: list[dict[str, Any]], *fields: str) -> IcebergSink:
    """Write the rows with a sink in one checkpoint."""
    sink = sink_of(folder, *fields)
    for each in rows:
        sink.process(row(**each))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    sink.commit(1, token)
    assert sink.prepared() == []
    return sink


@pytest.mark.parametrize("spec", SPECS)
def test_library_scans_find_the_written_rows(spec: str, tmp_path: Path) -> None:
    expressions = importlib.import_module("pyiceberg.expressions")
    make(tmp_path, TYPES, by=SPECS[spec])
    put(tmp_path, ROWS, *TYPES.names)
    assert sorted(rows_of(tmp_path), key=lambda found: found["n"]) == sorted(ROWS, key=lambda each: each["n"])
    found = [dict(zip(TYPES.names, each, strict=True)) for each in read(reader_of(tmp_path, tuple(TYPES.names)))]
    assert sorted(found, key=lambda one: one["n"]) == sorted(ROWS, key=lambda each: each["n"])
    table = opened(tmp_path).load_table("lake.t")
    for column, _ in SPECS[spec]:
        for each in ROWS:
            value = each[column]
            asked = expressions.IsNull(column) if value is None else expressions.EqualTo(column, _literal(value))
            rows = table.scan(asked).to_arrow().to_pylist()
            assert each["n"] in [one["n"] for one in rows], (column, value)


def _literal(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value.quantize(Decimal("0.01"))
    return value.isoformat() if isinstance(value, dt.date) else value


def test_partitions_follow_the_format_specification(tmp_path: Path) -> None:
    """Its appendix lists these hashes of 34, of 14.20 and of a text."""
    make(tmp_path, TYPES, by=(("n", "bucket[1000]"), ("price", "bucket[1000]"), ("word", "bucket[1000]")))
    rows = [{"n": 34, "price": Decimal(text), "word": "iceberg"} for text in ("14.20", "14.2")]
    put(tmp_path, rows, "n", "price", "word")
    (only,) = opened(tmp_path).load_table("lake.t").inspect.partitions().to_pylist()
    hashes = (2017239379, -500754589, 1210000089)
    assert list(only["partition"].values()) == [(each & 0x7FFFFFFF) % 1000 for each in hashes]
    assert (only["record_count"], only["file_count"]) == (2, 1)


def test_folder_with_special_characters_is_supported(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c"
    folder.mkdir()
    make(folder, by=(("word", "identity"),))
    put(folder, [{"word": "a b/%", "n": 1}, {"word": None, "n": 2}], "word", "n")
    assert sorted(rows_of(folder), key=lambda found: found["n"]) == [{"word": "a b/%", "n": 1}, {"word": None, "n": 2}]
    assert sorted(read(reader_of(folder, ("n", "word")))) == [(1, "a b/%"), (2, None)]
    assert len(list(folder.glob("warehouse/**/by_word_identity=a+b%2F%25/*.parquet"))) == 1


def test_files_of_older_partition_specs_are_read(tmp_path: Path) -> None:
    make(tmp_path)
    write(tmp_path, [{"word": "a", "n": 1}])
    partition(tmp_path, (("word", "identity"),))
    write(tmp_path, [{"word": "b", "n": 2}, {"word": None, "n": 3}])
    put(tmp_path, [{"word": "b", "n": 4}], "word", "n")
    assert sorted(read(reader_of(tmp_path, ("n", "word")))) == [(1, "a"), (2, "b"), (3, None), (4, "b")]


def test_missing_column_has_the_value_of_its_partition(tmp_path: Path) -> None:
    """Occurs in tables migrated from Hive."""
    make(tmp_path, by=(("word", "identity"),))
    imported(tmp_path, [{"n": 1}, {"n": 2}], "a b")
    put(tmp_path, [{"word": "c", "n": 3}], "word", "n")
    assert sorted(read(reader_of(tmp_path, ("n", "word")))) == [(1, "a b"), (2, "a b"), (3, "c")]


def test_rows_staged_for_another_partition_spec_are_kept(tmp_path: Path) -> None:
    make(tmp_path, by=(("n", "bucket[2]"),))
    sink = sink_of(tmp_path, "word", "n")
    for n in range(8):
        sink.process(row(word="a", n=n))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    partition(tmp_path, (("word", "identity"),))
    why = r"has the partitions bucket\[2\] of n, identity of word, and what waits .* written for bucket\[2\] of n:"
    with pytest.raises(ConnectError, match=why):
        sink.commit(1, token)
    with opened(tmp_path).load_table("lake.t").update_spec() as change:
        change.remove_field("by_word_identity")
    sink.commit(1, token)
    assert sorted(found["n"] for found in rows_of(tmp_path)) == list(range(8))


def test_unsupported_partition_is_rejected_by_name(tmp_path: Path) -> None:
    make(tmp_path, TYPES, by=(("x", "identity"),))
    with pytest.raises(
        ConnectError, match=r"IcebergSink cannot write .*, which has the column x double as a partition"
    ):
        sink_of(tmp_path, "n", "x")
    nested = arrow.schema([("n", arrow.int64()), ("of", arrow.struct([("word", arrow.string())]))])
    make(tmp_path, nested, "lake.nested", by=(("of.word", "identity"),))
    with pytest.raises(ConnectError, match=r"by_of.word_identity by a column that is nested, or gone"):
        sink_of(tmp_path, "n", name="lake.nested")
    partitioning, transforms = (importlib.import_module(f"pyiceberg.{name}") for name in ("partitioning", "transforms"))
    schema = opened(tmp_path).load_table("lake.t").schema()
    zones = partitioning.PartitionField(1, 1000, transforms.parse_transform("zone[4]"), "zones")
    found = list(refused(partitioning.PartitionSpec(zones), schema))
    assert found == ["the partition zones by an unsupported transform"]
    make(tmp_path, name="lake.long", by=(("word", "identity"),))
    with pytest.raises(ConnectError, match=r"field 'word' is .*the folder of its partition"):
        sink_of(tmp_path, "word", name="lake.long").process(row(word="ü" * 50))


@pytest.mark.parametrize(
    ("kind", "why"),
    [("position", "it has delete files, which name rows by their positions"), ("equality", "support equality deletes")],
)
def test_delete_files_are_rejected_by_name(kind: str, why: str, tmp_path: Path) -> None:
    make(tmp_path, WORDS, by=(("word", "identity"),))
    write(tmp_path, [{"word": "a", "n": 1}, {"word": "a", "n": 2}, {"word": "b", "n": 3}])
    before = opened(tmp_path).load_table("lake.t").current_snapshot().snapshot_id
    with_deletes(tmp_path, kind, {"word": "a", "n": 1})
    if kind == "position":  # a delete file was written: the library omits its row
        assert sorted(found["n"] for found in rows_of(tmp_path)) == [2, 3]
    with pytest.raises(ConnectError, match=rf"iceberg cannot read .* at snapshot \d+ \(.*{why}.*\): rewrite the table"):
        reader_of(tmp_path, ("n",))
    assert sorted(read(reader_of(tmp_path, ("n",), before))) == [(1,), (2,), (3,)]
    put(tmp_path, [{"word": "a", "n": 1}], "word", "n")  # earlier deletes do not affect this row
    if kind == "position":
        assert sorted(found["n"] for found in rows_of(tmp_path)) == [1, 2, 3]

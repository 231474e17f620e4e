"""Times with a zone: read in UTC and equal as keys by their instant on every engine."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronry.connect.arrow_times import columns_in_utc
from heronry.streamlet import Builder, files, to_files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.reference import run
from tests.support.streamlets.online_engine import run_online

BERLIN = "Europe/Berlin"
# 2:30 occurs twice in Berlin in this night.
INSTANTS = [dt.datetime(2024, 10, 27, hour, 30, tzinfo=dt.UTC) for hour in (0, 1, 1, 2)]


def table(folder: Path) -> Path:
    path = folder / "in" / "times.parquet"
    path.parent.mkdir()
    columns = {"at": pa.array(INSTANTS, pa.timestamp("us", BERLIN)), "n": pa.array([1, 2, 3, 4])}
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("by", ["field", "own zone"])
def test_repeated_local_hour_yields_two_keys(tmp_path: Path, by: str) -> None:
    def in_berlin(record: dict[str, Any]) -> dt.datetime:
        at: dt.datetime = record["at"]
        return at.astimezone(ZoneInfo(BERLIN))

    builder = Builder("instants", {"user.streamlet.folder": f"{tmp_path}/own"})
    source = builder.source(files(table(tmp_path), "parquet"))
    keyed = source.sum_by_key("n", key="at" if by == "field" else in_berlin, updates=False)
    keyed.map(lambda found: [found.key.isoformat(), found.value]).sink(to_files(tmp_path / "out"), name="out")
    expected = [["2024-10-27T00:30:00+00:00", 1], ["2024-10-27T01:30:00+00:00", 5], ["2024-10-27T02:30:00+00:00", 4]]
    assert sorted(run(builder.build())["out"]) == expected
    run_online(builder, tmp_path)
    found = [record for record, _ in read_all(files(tmp_path / "out", "json"))]
    assert sorted(found) == expected


def test_columns_are_converted_to_utc_at_any_depth() -> None:
    zoned = pa.timestamp("ms", BERLIN)
    deep = pa.struct([("l", pa.list_(zoned)), ("m", pa.map_(pa.string(), zoned)), ("n", pa.int64())])
    moment = INSTANTS[0]
    values = [{"l": [moment], "m": [("k", moment)], "n": 1}, None]
    found = columns_in_utc(pa.table({"a": pa.array([moment, None], zoned), "b": pa.array(values, deep)}))
    assert "Berlin" not in str(found.schema)
    (first, _) = found.to_pylist()
    assert [first["a"], first["b"]["l"][0], first["b"]["m"][0][1]] == [moment] * 3
    assert first["a"].utcoffset() == dt.timedelta(0)

"""CSV files and folders partitioned by field values have the same layout on Spark as online."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from data_pipeline.core.planner import Choice, plan
from data_pipeline.core.render import to_json
from data_pipeline.shell import sinks
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.resolved_request import with_columns
from data_pipeline.shell.scan import Tables
from data_pipeline.shell.staged import Staging
from heronry.streamlet import Builder, files, to_files
from heronry.streamlet.decoding import read_all
from tests.spark.test_spark_output import folder_of
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable

VALUES = (None, "", "a/b", 'q"', " lead and trail ", "ä=1%", "x,y", "#", "a'b", "{[^]}")
FORMS: dict[str, dict[str, Any]] = {
    "json-by": {"format": "json", "partition_by": ["by", "n"]},
    "parquet-by": {"format": "parquet", "partition_by": "by"},
    "csv-by": {"format": "csv", "fields": ["n", "by", "x"], "partition_by": "by"},
    "csv": {"format": "csv", "fields": ["by", "n", "gone"]},
}


def program(folder: Path, out: Path) -> Builder:
    builder = Builder("layout", {"user.streamlet.folder": f"{out}/own"})
    records = builder.source(files(folder, "csv", schema={"i": "int"}), name="numbers", parallelism=2)
    made = records.map(lambda row: {"n": row["i"] % 3, "by": VALUES[row["i"] % len(VALUES)], "x": row["i"] / 4})
    for name, form in FORMS.items():
        made.sink(to_files(out / name, **form), name=name)
    counts = builder.source(files(folder, "csv", schema={"i": "int"}), name="again").count_by_key("i", updates=False)
    counts.sink(to_files(out / "counts", "csv", fields=["value", "key"], partition_by="key"), name="counts")
    return builder


def places(folder: Path) -> set[str]:
    """Return the folders that contain files."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path.parent) for path in found if not any(part.startswith((".", "_")) for part in path.parts)}


def records_in(folder: Path, form: str) -> list[Any]:
    if form == "parquet":
        return [row for path in folder.rglob("[!._]*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    return [record for record, _ in read_all(files(folder, form))]


def lines_in(folder: Path) -> list[str]:
    """Return the lines without the quotes that Spark's writer puts around comment characters."""
    found = (line for path in folder.rglob("[!._]*.csv") for line in path.read_text().splitlines()[1:])
    return sorted(line.replace('"#"', "#") for line in found)


@pytest.mark.parametrize("how", ["local", "hadoop"])
def test_files_have_the_same_layout_and_content_as_those_of_the_topology(
    spark: SparkSession, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("i\n" + "".join(f"{n}\n" for n in range(40)))
    builder = program(tmp_path / "in", tmp_path / "online")
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.until_final()
        world.stop()
    tables, made = Tables(spark), builder.build()
    found = plan(made, with_columns(tables, made, Choice()))
    execution = Execution(spark, found, collect=to_json, tables=tables)
    folder = folder_of(spark, how, tmp_path / "batch", monkeypatch)
    sinks.write_all(spark, found.outputs, execution, folder.work, Staging(found.program, found.outputs, lambda: False))
    for output in found.outputs:
        folder.rename_parts(output.step, ".json")
    folder.commit({})
    execution.close()
    for output in found.outputs:
        form = output.sink.format  # type: ignore[union-attr]
        ours, theirs = tmp_path / "online" / output.step, tmp_path / "batch" / output.step
        assert places(theirs) == places(ours), output.step
        rows = records_in(theirs, form)
        assert len(rows) == 40
        assert difference(rows, records_in(ours, form)) == "", output.step
        if form == "csv":
            assert lines_in(theirs) == lines_in(ours), "None and the empty text too"

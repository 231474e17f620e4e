"""Sinks: a step's rows as files below a folder, which a rename publishes later (output.py)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from data_pipeline.core.failure import failed
from data_pipeline.core.plan import Output
from data_pipeline.core.staged import Report
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.fields import as_json
from data_pipeline.shell.output import FOLDER
from data_pipeline.shell.staged import Staging, reports_of
from heron_runtime.failures import Failure
from heronry.streamlet.endpoints import FileSink, ViewSink
from heronry.streamlet.records import table_of
from heronry.streamlet.schema import arrow_schema
from heronry.streamlet.server_sinks import ServerSink

AT_ONCE = 8  # number of sinks that are written concurrently
VIEW_ROW_GROUP_BYTES = 512 << 10  # some 12 000 rows, which a query for one key reads of a file
# As heronry.streamlet.partitions writes it; by default Spark trims cells and escapes by a backslash.
CSV: dict[str, Any] = {
    "header": True, "escape": '"', "lineSep": "\n", "ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False,
    "nullValue": "", "emptyValue": '""',
}  # fmt: skip


def write_all(
    spark: SparkSession, outputs: Sequence[Output], execution: Execution, place: str, staging: Staging
) -> dict[str, list[Report]]:
    """Run everything the sinks need, and write the files of each below ``place``, in a folder that must not exist.

    Each sink is a job or two, and small jobs mostly wait, so several run concurrently. When one fails, the others are
    cancelled and its error is raised. Frames are made beforehand, by one thread.

    Returns:
        The reports of staged records, by step; empty lists for sinks that are files.
    """
    made: dict[str, Callable[[], list[Report] | None]] = {}
    for output in outputs:  # frames are made by one thread
        if isinstance(output.sink, ServerSink):
            made[output.step] = partial(reports_of, staging.frame(output, execution.output(output.step)))
        else:
            made[output.step] = writing(output, execution, f"{place}/{output.step}")
    with ThreadPoolExecutor(AT_ONCE, "sink") as pool:
        running = [pool.submit(write) for write in made.values()]
        try:
            for ended in as_completed(running):
                ended.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            with suppress(Py4JError, OSError):  # the JVM may have ended
                spark.sparkContext.cancelAllJobs()
            raise
    return {step: ended.result() or [] for step, ended in zip(made, running, strict=True)}


def writing(output: Output, execution: Execution, folder: str) -> Callable[[], None]:
    """Return a function that writes one sink into a folder that must not exist; the frames are made now."""
    fields = execution.fields(output.step)
    if fields is not None:
        return partial(write_fields, output, fields, folder)
    return partial(write, output, execution.output(output.step), folder)


def write(output: Output, rows: DataFrame, folder: str, *, appends: bool = False) -> None:
    """Write the payloads that workers have made of the sink's records as its files.

    With ``appends``, the folder may be left out if it would have no record.
    """
    if isinstance(output.sink, ViewSink):
        write_view(view_rows(output, rows), folder)
    elif _is_parquet(output):
        _parquet(output, rows, folder, appends=appends)
    elif isinstance(output.sink, FileSink) and output.sink.format == "csv":
        values = sql.from_json(sql.col("data").cast("string"), "array<string>")
        cells = [values[place].alias(name) for place, name in enumerate(output.sink.fields)]
        _writer(output, rows.select(*cells, *_folder(output))).options(**CSV).csv(folder)
    else:
        lines = rows.select(sql.col("data").cast("string"), *_folder(output))
        _writer(output, lines).option("lineSep", "\n").text(folder)


def _folder(output: Output) -> list[Any]:
    """Return the column by which Spark divides rows into folders, which are renamed later (output.py)."""
    return [sql.col("key").cast("string").alias(FOLDER)] if _is_divided(output) else []


def _is_divided(output: Output) -> bool:
    return isinstance(output.sink, FileSink) and bool(output.sink.partition_by)


def _writer(output: Output, rows: DataFrame) -> Any:
    return rows.write.partitionBy(FOLDER) if _is_divided(output) else rows.write


def write_fields(output: Output, rows: DataFrame, folder: str) -> None:
    """Write the files of a sink whose records exist as columns of their fields (fields.py)."""
    if _is_parquet(output):
        rows.write.option("compression", "zstd").parquet(folder)
    else:
        as_json(rows).write.option("lineSep", "\n").text(folder)


def _is_parquet(output: Output) -> bool:
    return isinstance(output.sink, FileSink) and output.sink.format == "parquet"


def view_rows(output: Output, rows: DataFrame, to_ms: int | None = None) -> DataFrame:
    """Return the rows of a view (``heronry.pipeline.rows``) whose buckets end at or before ``to_ms``."""
    assert output.reduce is not None
    assert output.reduce.windowing is not None
    length = output.reduce.windowing.window.length_ms
    end = (sql.col("start") + sql.lit(length)).cast("long")
    made = rows.select("key", "start", end.alias("end"), sql.col("data").alias("acc"))
    return made if to_ms is None else made.where(sql.col("end") <= sql.lit(to_ms))


def write_view(rows: DataFrame, folder: str) -> None:
    """Write the rows of a view as its files.

    The rows are sorted within each file, in small row groups, so that readers find a key by the footers. A global sort
    would need another pass over the rows to find the boundaries of files.
    """
    ordered = rows.sortWithinPartitions("key", "start").write.option("compression", "zstd")
    ordered.option("parquet.block.size", VIEW_ROW_GROUP_BYTES).parquet(folder)


def _parquet(output: Output, rows: DataFrame, folder: str, *, appends: bool) -> None:
    """Write records as Parquet, with two passes over them if their columns are known only after all have been seen."""
    declared = arrow_schema(output.schema) if output.schema is not None else None
    if declared is not None:
        _write_columns(output, rows.select("data", *_folder(output)), declared, folder)
        return
    persisted = rows.select("data", *_folder(output)).persist(StorageLevel.DISK_ONLY)
    try:
        schemas = persisted.select("data").mapInArrow(SchemaTask(output.step), "schema binary")
        encoded_schemas = [row["schema"] for row in schemas.collect()]
        if not encoded_schemas and appends:
            return  # a file without records would add its column
        if not encoded_schemas:
            persisted.sparkSession.createDataFrame([], "empty boolean").limit(0).write.parquet(folder)
            return
        _write_columns(output, persisted, _one_schema(output.step, encoded_schemas), folder)
    finally:
        persisted.unpersist()


def _write_columns(output: Output, rows: DataFrame, schema: Any, folder: str) -> None:
    """Write records as columns of this Arrow schema, in files."""
    columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if _is_divided(output):
        columns = columns.add(FOLDER, "string")
    task = ColumnsTask(output.step, schema.serialize().to_pybytes())
    _writer(output, rows.mapInArrow(task, columns)).option("compression", "zstd").parquet(folder)


def unified(schemas: list[bytes]) -> Any:
    """Return an Arrow schema that holds every record: int and float become float, null and another type that type."""
    import pyarrow as pa

    read = [pa.ipc.read_schema(pa.py_buffer(data)) for data in schemas]
    merged = pa.unify_schemas(read, promote_options="permissive")
    # A column of only None has no type; Parquet can hold it as str.
    return pa.schema([(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in merged])


def _one_schema(step: str, encoded_schemas: list[bytes]) -> Any:
    """Return one schema for all records. Raises Failure if a field has different types in different partitions."""
    import pyarrow as pa

    try:
        return unified(encoded_schemas)
    except pa.ArrowException as error:
        raise Failure(
            f"step {step!r}: its records do not fit into the columns of one table: {error}",
            "Give the field one type in a map before the sink, or write json.",
        ) from error


@dataclass(frozen=True)
class SchemaTask:
    """Task that returns the schema of a partition's records, as one row per batch."""

    step: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Convert batches; the function for ``mapInArrow``."""
        import pyarrow as pa

        for batch in batches:
            records = [pickle.loads(data) for data in batch.column(0).to_pylist()]
            if records:
                schema = _table(self.step, records, None).schema.remove_metadata()
                yield pa.RecordBatch.from_pydict({"schema": pa.array([schema.serialize().to_pybytes()], pa.binary())})


@dataclass(frozen=True)
class ColumnsTask:
    """Task that turns records into columns of the schema, followed by the other columns of the batch."""

    step: str
    schema: bytes

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Convert batches; the function for ``mapInArrow``."""
        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        for batch in batches:
            records = [pickle.loads(data) for data in batch.column(0).to_pylist()]
            table = _table(self.step, records, schema)
            for name in batch.schema.names[1:]:
                table = table.append_column(name, batch.column(name))
            yield from table.to_batches()


def _table(step: str, records: list[dict[str, Any]], schema: Any) -> Any:
    """Return the records as a table. Raises RecordFailed, naming the record that does not fit."""
    import pyarrow as pa

    try:
        if schema is not None:
            return pa.Table.from_pylist(records, schema=schema)
        return table_of(records)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        before = pa.schema([])
        for record in records:
            try:
                one = pa.Table.from_pylist([record], schema=schema).schema
                before = pa.unify_schemas([before, one], promote_options="permissive")
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
                raise failed(step, record, cause) from error
        raise failed(step, records[0], error) from error

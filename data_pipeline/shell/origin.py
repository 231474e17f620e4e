"""Search for the input file of a failed line, done only when it is needed (``core/trace.py``).

A task reads one partition of a source: a few files, or a part of one. The line is searched in these by its hash, so the
reported file does contain the line. Where streams of several sources are united, a task's number is not that of the
source's partition. The line is then not found there, and all files are searched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.failure import Failure, RecordFailed, failure_in
from data_pipeline.core.plan import Plan
from data_pipeline.core.trace import Trace, trace_in
from data_pipeline.shell.scan import Tables, lines_of


def with_file(spark: SparkSession, tables: Tables, plan: Plan, error: Exception) -> Exception:
    """Return the error with its record's file, if that is found.

    An error that is not the failure of a traced line is returned unchanged.
    """
    failure = failure_in(str(error))
    trace = trace_in(failure.file) if failure is not None else None
    if failure is None or trace is None:
        return error
    return RecordFailed(_named(spark, tables, plan, failure, trace))


def _named(spark: SparkSession, tables: Tables, plan: Plan, failure: Failure, trace: Trace) -> Failure:
    gone = (PySparkException, Py4JError, OSError)  # the file or the cluster is gone; the failure is reported anyway
    try:
        (scan,) = [scan for scan in plan.scans if scan.step == trace.source]
        rows = tables.read(scan)
        parts = _files(rows, trace.partition)
        found = _holder(lines_of(spark, parts), trace.digest) if parts else None
        return replace(failure, file=found or _holder(rows, trace.digest) or "")
    except gone:
        return replace(failure, file="")


def _holder(rows: DataFrame, digest: str) -> str | None:
    """Return a file that contains a line with this hash."""
    found = rows.where(sql.sha1("value") == digest).selectExpr("_metadata.file_path AS file").first()
    return None if found is None else str(found["file"])


def _files(rows: DataFrame, partition: int) -> list[str]:
    """Return the files of one partition; empty if the partition does not exist."""
    planned: Any = rows._jdf.queryExecution().toRdd().partitions()
    if partition >= len(planned):
        return []
    return [str(file.toPath().toString()) for file in planned[partition].files()]

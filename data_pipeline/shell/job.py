"""One job as a sequence of values, each made by one module from the previous ones.

    Request          parsed command line                     request.py
    Loaded           the program and its code                program.py
    ResolvedRequest  with inputs, times, sinks, policy       resolved_request.py
    Tables           the rows it begins with                 the engine: batch.py, stream.py
    Plan             units, shuffles, SQL                    resolved_request.py, core/planner.py
    Execution        the plan as DataFrames                  execute.py
    str              the text to print                       results.py

An *engine* adds a way of running: the source of the rows, and the times at which a result is made. The other steps do
not depend on the engine.

The input file of a line that failed is found only when it is needed (``core/trace.py``). A task reads one partition of
a source: a few files, or a part of one. The line is searched in these by its hash, so the reported file does contain
the line. Where streams of several sources are united, a task's number is not that of the source's partition. The line
is then not found there, and all files are searched.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TextIO

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.failure import Failure, RecordFailed, failure_in, server_failure_in
from data_pipeline.core.plan import Plan
from data_pipeline.core.render import to_json
from data_pipeline.core.trace import Trace, trace_in
from data_pipeline.shell import backfill, until
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.output import Place
from data_pipeline.shell.program import load
from data_pipeline.shell.request import Request, check
from data_pipeline.shell.resolved_request import ResolvedRequest, make_plan, resolve_request
from data_pipeline.shell.results import written
from data_pipeline.shell.scan import Tables, lines_of
from data_pipeline.shell.servers import Ranges
from data_pipeline.shell.session import SessionOptions, session
from data_pipeline.shell.staged import settle_for
from data_pipeline.shell.stream import Stream
from heronry.connect.settings import ConnectError


class Engine(Protocol):
    """Way of running a job: as a batch, or by micro-batches."""

    def tables(self, *, careful: bool) -> Tables:
        """Return the rows of the current result.

        With ``careful``, the file and line of each row can be determined where they have not been recorded yet.
        """

    def run(self, result: Callable[[], str]) -> str:
        """Call ``result`` whenever a result is to be made, and return the text to print at the end."""


def run(request: Request, out: TextIO) -> str:
    """Run the job with progress on ``out``, and return the text to print at the end.

    Raises Failure of every kind, and Spark's errors.
    """
    began = time.monotonic()
    check(request)
    with tempfile.TemporaryDirectory(prefix="heronry-spark-") as folder:
        resolved = resolve_request(
            request, load(request.file, request.program, request.arguments, request.master, Path(folder))
        )
        if backfill.has_nothing(resolved.request):
            return (
                f"nothing to do: the batch owns buckets up to {until.iso(resolved.request.from_ms)}, and T is not later"
            )
        name, page = resolved.loaded.program.name, request.streaming is not None and not request.dry_run
        options = SessionOptions(name, request.master, request.conf, resolved.loaded.ship, page)
        with session(options, out) as spark:
            if request.views:
                until.wait_for_archives(began)
            return compute_result(spark, resolved, out)


def compute_result(spark: SparkSession, resolved: ResolvedRequest, out: TextIO) -> str:
    """Compute the result of a request on the engine that it selects."""
    request = resolved.request
    if request.output_path and not request.dry_run:
        lines = settle_for(Place(spark, request.output_path), resolved.loaded.program.name)
        if lines and request.streaming is None:
            return f"{lines}, and nothing was computed again"
        out.write(f"{lines}\n" if lines else "")
    batch = request.streaming is None or request.dry_run
    engine: Engine = Batch(spark, resolved.ranges) if batch else Stream(spark, resolved, out)
    try:
        return engine.run(lambda: _result(spark, resolved, engine, out))
    except Exception as error:
        lost = server_failure_in(str(error))
        if lost is None:
            raise
        raise ConnectError(lost) from None  # Spark's own message contains the whole traceback of a worker


def _result(spark: SparkSession, resolved: ResolvedRequest, engine: Engine, out: TextIO) -> str:
    """Make a result without care at first.

    If a record fails, or some were put aside before, try each record separately.
    """
    tables, aside = engine.tables(careful=False), resolved.policy.aside
    if not (aside and tables.has_letters()):
        try:
            return _run_steps(spark, resolved, tables, out)
        except Exception as error:
            failure = failure_in(str(error))
            if failure is None or not aside or resolved.request.dry_run:
                raise
            out.write(f"{failure.step!r} failed on a record: running again to put such records aside\n")
        tables = engine.tables(careful=True)
    return _run_steps(spark, resolved, tables, out, careful=True)


def _run_steps(
    spark: SparkSession, resolved: ResolvedRequest, tables: Tables, out: TextIO, *, careful: bool = False
) -> str:
    """Run the steps from tables to written output. With ``careful``, failed records are put aside by the policy."""
    plan = make_plan(resolved, tables, careful=careful)
    for note in plan.notes:
        out.write(f"{note}\n")
    execution = Execution(spark, plan, collect=to_json, tables=tables, aside=careful)
    try:
        return written(spark, resolved, plan, execution, out)
    except Exception as error:
        located_error = with_file(spark, tables, plan, error)
        if located_error is error:
            raise
        raise located_error from error
    finally:
        execution.close()


class Batch:
    """Engine that reads all input once (``job.Engine``)."""

    def __init__(self, spark: SparkSession, ranges: Ranges) -> None:
        self._spark, self._ranges = spark, ranges

    def tables(self, *, careful: bool) -> Tables:
        """Return every file of every source, and the ranges that servers had when the job began."""
        return Tables(self._spark, numbered=careful, ranges=self._ranges)

    def run(self, result: Callable[[], str]) -> str:
        """Call ``result`` once and return its text."""
        return result()


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
        holder = _holder(lines_of(spark, parts), trace.digest) if parts else None
        return replace(failure, file=holder or _holder(rows, trace.digest) or "")
    except gone:
        return replace(failure, file="")


def _holder(rows: DataFrame, digest: str) -> str | None:
    """Return a file that contains a line with this hash."""
    row = rows.where(sql.sha1("value") == digest).selectExpr("_metadata.file_path AS file").first()
    return None if row is None else str(row["file"])


def _files(rows: DataFrame, partition: int) -> list[str]:
    """Return the files of one partition; empty if the partition does not exist."""
    planned: Any = rows._jdf.queryExecution().toRdd().partitions()
    if partition >= len(planned):
        return []
    return [str(file.toPath().toString()) for file in planned[partition].files()]

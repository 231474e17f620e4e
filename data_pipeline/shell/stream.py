"""Execution of a program on Structured Streaming: micro-batches of new input, and results of all input so far.

Spark streams the *names* of new files (its checkpoint knows the files that were read), and the new ranges of splits of
servers (range_stream.py). For each micro-batch, the plan's scans run over these as in a batch, with all steps up to the
next reducers and sinks. Reducers that SQL can compute from their columns also run. The output is kept as a portion,
written atomically under the number of the micro-batch. A micro-batch that is repeated after a failure therefore
replaces its earlier output.

To *publish* is to run the rest of the plan over all portions, as a batch would over the output of the scans, and to
name the result by one rename. The result is therefore that of a batch over all input so far, whatever its order,
lateness and micro-batches. A run that continues from the checkpoint does not read anything twice. The state consists of
accumulators, and of records that go into sinks directly. Records for sinks in servers without a reducer in between are
not kept: each micro-batch stages its own, and appends them when its portion has its name (portions.py). Nor are those
for files, if the program has no reducer: OUTPUT grows, and publishing only brings its manifest up to date.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from functools import reduce as fold
from typing import Any, TextIO

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.failure import failure_in
from data_pipeline.core.plan import Scan
from data_pipeline.core.portions import digest, streamed, without
from data_pipeline.core.ranges import range_in
from data_pipeline.core.render import to_json
from data_pipeline.core.stream_sinks import appended
from data_pipeline.shell import sinks
from data_pipeline.shell.appended_files import AppendedFiles
from data_pipeline.shell.catalyst import reduced
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.output import local_path, spark_url
from data_pipeline.shell.portions import FILES, Made, Portions, Reports, marked
from data_pipeline.shell.progress import next_stage, stages_from, watched
from data_pipeline.shell.range_stream import ranges_stream
from data_pipeline.shell.resolved_request import ResolvedRequest, make_plan
from data_pipeline.shell.scan import InputNotFound, Tables, file_system, literal
from data_pipeline.shell.servers import Ranges
from data_pipeline.shell.staged import Staging, owed, reports_of, tasks_run
from data_pipeline.shell.url_files import is_foreign, refuse_stream
from heron_control.inspection.streaming_runs import claimed
from heron_runtime.failures import Interrupted, listing
from heronry.connect.polling import Range
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.server_sinks import ServerSink
from heronry.streamlet.servers import ServerSource

#: By default Spark ignores files more than a week older than the newest one, which copies and backfills may be.
ANY_AGE = "3650000d"
SCHEMA = "path string, modificationTime timestamp, length long, content binary"  # content is never read


class Stream:
    """Engine that reads input by micro-batches (``job.Engine``), for one run."""

    def __init__(self, spark: SparkSession, resolved: ResolvedRequest, out: TextIO) -> None:
        """Plan the stream. Raises CannotPlan."""
        assert resolved.request.streaming is not None
        self._spark, self._streaming, self._policy, self._out = spark, resolved.request.streaming, resolved.policy, out
        self._resolved = resolved
        self._plan = make_plan(resolved, Tables(spark), careful=True)
        self._scans = streamed(self._plan)
        self._servers = {scan.step for scan in self._scans if isinstance(scan.source, ServerSource)}
        self._appends = appended(self._plan)
        self._appended: Counter[str] = Counter()  # records, by step
        self._files = AppendedFiles(spark, resolved) if resolved.appended_files else None
        self._portions = Portions(
            spark, self._streaming.checkpoint, self._plan, self._appends, partial(tasks_run, spark), self._say,
            self._files,
        )  # fmt: skip
        self._result: Callable[[], str] = str
        self._error: Exception | None = None
        self._taken = 0  # number of micro-batches

    def tables(self, *, careful: bool) -> Tables:
        """Return the output of each scan of files so far.

        ``careful`` is ignored, since files and lines of failed records were recorded by the micro-batches.
        """
        return Tables(self._spark, made=self._portions.rows(self._scans), parts=self._portions.parts())

    def run(self, result: Callable[[], str]) -> str:
        """Run until all existing input is read, or indefinitely, and return the text to print at the end.

        Raises:
            Interrupted: The user interrupted the run. Errors of micro-batches are raised unchanged.
        """
        self._result = result
        late = self._portions.settle()
        self._say(owed(f"what a micro-batch has given to {self._streaming.checkpoint}", late) if late else "")
        request, every_s = self._resolved.request, self._streaming.every_s
        about: dict[str, Any] = {
            "file": str(request.file.absolute()), "master": request.master, "checkpoint": self._streaming.checkpoint,
            "output": request.output_path, "every_seconds": every_s, "ui": self._spark.sparkContext.uiWebUrl or "",
        }  # fmt: skip
        with claimed(self._plan.program, **about) as self._claim:
            self._until_the_end(every_s)
            if not self._taken:
                self._out.write("no file is new\n")
            return self._publish() + self._describe_progress()

    def _until_the_end(self, every_s: float | None) -> None:
        """Run the query until the existing input is read, or until the run is interrupted."""
        writer = fold(DataFrame.union, map(self._names, self._scans)).writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", f"{spark_url(self._streaming.checkpoint.rstrip('/'))}/spark")
        writer = (
            writer.trigger(availableNow=True)
            if every_s is None
            else writer.trigger(processingTime=f"{every_s:g} seconds")
        )
        query = writer.start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            with suppress(Py4JError):  # the call may have closed the connection; the query ends with the JVM
                query.stop()
            raise Interrupted(
                f"interrupted: what was read before is kept in {self._streaming.checkpoint}",
                "The same command continues from there.",
            ) from None
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise

    def _names(self, scan: Scan) -> DataFrame:
        """Return the new files of a source, or the new ranges of a server, as a stream."""
        if isinstance(scan.source, ServerSource):
            return ranges_stream(self._spark, scan.step, scan.source)
        assert isinstance(scan.source, FileSource)
        if is_foreign(self._spark, scan.source):
            refuse_stream(scan.step, scan.source)
        place, only = spark_url(scan.source.path), None
        local = local_path(scan.source.path)
        if local is not None and local.is_file():
            place, only = spark_url(str(local.parent)), local.name
        reader = self._spark.readStream.format("binaryFile").option("recursiveFileLookup", "true")
        reader = reader.schema(SCHEMA).option("maxFilesPerTrigger", self._streaming.files)
        reader = reader.option("maxFileAge", ANY_AGE)
        if only is not None:
            reader = reader.option("pathGlobFilter", literal(only))
        path, system = file_system(self._spark, place)
        if not system.exists(path):  # a stream would wait silently for a missing path
            raise InputNotFound(f"step {scan.step!r}: there is nothing to read at {scan.source.path}")
        names = reader.load(literal(place))
        return names.select(sql.lit(scan.step).alias("step"), "path")

    def _take(self, names: DataFrame, number: int) -> None:
        """Process a micro-batch; keep its original error, as Spark wraps it in a message of its own."""
        try:
            self._taken += 1
            files: dict[str, list[str]] = defaultdict(list)
            ranges: dict[str, tuple[Range, ...]] = defaultdict(tuple)
            read = [(step, path) for step, path in names.collect()]
            for step, path in read:
                if step in self._servers:
                    ranges[step] += (range_in(path),)
                else:
                    files[step].append(path)
            count = sum(map(len, files.values()))
            news = [f"{count} files"] if files or not ranges else []
            news += [f"what is new in {listing(sorted(ranges))}"] if ranges else []
            self._out.write(f"micro-batch {number}: {', '.join(news)}\n")
            self._claim.tell(state="reading", micro_batch=number, files=count, rows=0, batch_seconds=0.0)
            began, first = time.monotonic(), next_stage(self._spark)
            with watched(self._spark, self._out):
                reports = self._keep(number, digest(read), files, ranges)
            self._count(number, reports)
            rows = sum(stage.rows_read for stage in stages_from(self._spark, first))
            self._claim.tell(rows=rows, batch_seconds=time.monotonic() - began)
            if self._streaming.every_s is not None:
                self._out.write(f"{self._publish()}\n")
                self._claim.tell(state="waiting")
        except Exception as error:
            self._error = error
            raise

    def _keep(self, number: int, read: str, files: Mapping[str, list[str]], ranges: Ranges) -> Reports | None:
        try:
            return self._portions.write(number, read, partial(self._fill, files, ranges, False))
        except Exception as error:
            failure = failure_in(str(error))
            if failure is None or not self._policy.aside:
                raise
            self._say(f"{failure.step!r} failed on a record: running again to put such records aside")
            return self._portions.write(number, read, partial(self._fill, files, ranges, True))

    def _fill(
        self, files: Mapping[str, list[str]], ranges: Ranges, aside: bool, place: str, staging: Staging
    ) -> tuple[dict[str, Any], Reports]:
        """Run all scans over these files and ranges, and keep or stage their output.

        With ``aside``, SQL computes nothing, as it cannot tell which record fails.
        """
        tables = Tables(self._spark, numbered=aside, only=files, ranges=ranges)
        plan = make_plan(self._resolved, tables, careful=aside)
        by_sql = {found.step.name: found for found in plan.reductions if found.sql and found.join is None}
        by_step = {scan.step: scan for scan in self._scans}
        parts = {
            name: reduced(self._spark, tables, found, [by_step[table.scan] for table in found.tables])
            for name, found in by_sql.items()
        }
        left = [without(scan, by_sql) for scan in self._scans]
        execution = Execution(
            self._spark, replace(self._plan, scans=tuple(left)), collect=to_json, tables=tables, aside=aside
        )
        new = {*files, *ranges}
        merged = {found.step.name for found in self._plan.reductions if any(entry in new for entry, _ in found.inputs)}
        try:
            kept = [(scan, self._kept(execution, scan, aside)) for scan in left]
            rows = [marked(found, scan) for scan, found in kept if found is not None]
            made = Made(fold(DataFrame.union, rows) if rows else None, parts, merged - {*by_sql})
            about = self._portions.written(made, place)
            servers = [output for output in self._appends if isinstance(output.sink, ServerSink)]
            staged = {output.step: staging.frame(output, execution.output(output.step)) for output in servers}
            reports = {step: reports_of(frame) for step, frame in staged.items()}
            if self._files is not None:  # last, as nothing but the rename of the portion may fail after it
                about[FILES] = self._files.stage(partial(self._write_files, execution))
            return about, reports
        finally:
            execution.close()

    def _write_files(self, execution: Execution, folder: str) -> None:
        for output in self._appends:
            if not isinstance(output.sink, ServerSink):
                rows = execution.output(output.step)
                sinks.write(output, rows, f"{folder}/{output.step}", appends=True)

    def _kept(self, execution: Execution, scan: Scan, aside: bool) -> DataFrame | None:
        """Return the rows of a scan to keep in the portion; None if there are none, or all of them are appended."""
        if scan.unit is None:
            return None
        steps = {output.step for output in self._appends}
        tags = [output.tag for output in scan.unit.outputs if output.step in steps]
        if not tags:
            return execution.scanned(scan)
        if len(tags) == len(scan.unit.outputs) and not aside:
            return None
        return execution.rows(scan.step).where(~sql.col("tag").isin(tags))

    def _publish(self) -> str:
        self._claim.tell(state="writing")
        self._portions.join(self._scans)
        size = self._portions.size()
        self._claim.tell(portions=size.portions, state_bytes=size.length, state_rows=size.rows)
        return self._result()

    def _count(self, number: int, reports: Reports | None) -> None:
        """Count the records that were appended to servers."""
        if reports is None:
            self._say(f"micro-batch {number} had appended its records before, and is not run again")
            return
        self._appended.update({step: sum(report.records for report in reports[step]) for step in reports})

    def _describe_progress(self) -> str:
        """Return a description of the records that this run has appended."""
        counts = [(output, self._appended[output.step]) for output in self._appends]
        said = [f"{output.step}, {count} records, to {output.sink}" for output, count in counts if count]
        return f"; appended {'; '.join(said)}" if said else ""

    def _say(self, text: str) -> None:
        self._out.write(f"{text}\n" if text else "")

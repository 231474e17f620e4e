"""Backfill of views (``heron pipeline backfill``): recomputes the buckets between two instants and keeps the others.

A batch from the first record on takes longer each day. Buckets are independent, so those that end at or before F, and
those that begin at or after T, may come from the previous batch while only records in [F, T) are read. Outside of it an
archive by hours is not even opened. This is correct only if a record's bucket follows from the event time of its source
alone. F and T must then not cut a bucket: ``check`` rejects an F that would, and the bucket that T cuts keeps its
previous content. No step between source and view may keep state that began before F. The new version appears by one
rename, like any other, and owns at least what the previous one owned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.plan import Output
from data_pipeline.shell.request import Request
from data_pipeline.shell.until import iso
from heron_runtime.failures import UsageError
from heronry.pipeline.views import Batch, Description, newest_batch, read_description
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.program import Program, ReduceStep, SourceStep

ROWS = "rows"  # folder of a version with its Parquet files
WHOLE = "Compute the whole of it: heron pipeline run."


@dataclass(frozen=True)
class Backfill:
    """Backfill of one view: all buckets except those within [from_ms, to_ms) are taken over from ``base``."""

    base: Batch
    from_ms: int
    to_ms: int

    @property
    def owned_to_ms(self) -> int:
        """T of the new version, in ms."""
        return max(self.to_ms, self.base.to_ms)

    def taken_over(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the previous version, as they are in its files."""
        rows = spark.read.parquet(str(self.base.folder / ROWS))
        recomputed = (sql.col("start") >= sql.lit(self.from_ms)) & (sql.col("end") <= sql.lit(self.to_ms))
        return rows.where(~recomputed)

    def manifest(self) -> dict[str, object]:
        """Return the entry for the manifest of the version."""
        return {"version": self.base.version, "from_ms": self.from_ms, "to_ms": self.to_ms}


def of_view(request: Request, folder: Path) -> Backfill | None:
    """Return the backfill of a view; None for a batch of the whole view. Raises UsageError."""
    if request.from_ms is None:
        return None
    assert request.to_ms is not None
    base = newest_batch(folder)
    if base is None:
        raise UsageError(f"{folder} has no earlier batch to copy the other buckets from", WHOLE)
    return Backfill(base, request.from_ms, request.to_ms)


def begun(request: Request, program: Program) -> Request:
    """Return the request with its F, if it continues from the last batch.

    F is the newest instant up to which all views of the program have a batch and that is not within a bucket of any.
    Raises UsageError or ViewError.
    """
    if not request.since_last:
        return request
    folders = [Path(step.sink.path) for step in program.sinks() if isinstance(step.sink, ViewSink)]
    backfills = [of_view(replace(request, from_ms=0), folder) for folder in folders]
    owned = min((each.base.to_ms for each in backfills if each is not None), default=0)
    buckets = math.lcm(*(read_description(folder).bucket_ms for folder in folders))
    return replace(request, from_ms=owned - owned % buckets)


def has_nothing(request: Request) -> bool:
    """Return True if there cannot be new input since the last batch."""
    return (
        request.since_last
        and request.from_ms is not None
        and request.to_ms is not None
        and (request.from_ms >= request.to_ms)
    )


def check(request: Request, program: Program, outputs: Sequence[Output]) -> None:
    """Check that the backfill gives the same result as a whole batch. Raises UsageError or ViewError."""
    if has_nothing(request):
        return
    for output in outputs:
        assert isinstance(output.sink, ViewSink)
        assert output.reduce is not None
        backfill = of_view(request, Path(output.sink.path))
        if backfill is not None:
            _check_times(output.sink, backfill, described(program, output))
            _check_steps(program, output.reduce)


def described(program: Program, output: Output) -> Description:
    """Return the description of a view for ``view.json``."""
    assert isinstance(output.sink, ViewSink)
    assert output.reduce is not None
    assert output.reduce.windowing is not None
    monoid = output.reduce.monoid
    length = output.reduce.windowing.window.length_ms
    return Description(output.sink.name, program.name, output.reduce.name, length, monoid.builtin, monoid.parameters)


def _check_times(sink: ViewSink, backfill: Backfill, wanted: Description) -> None:
    start, end, name = backfill.from_ms, backfill.to_ms, sink.name
    if start >= end:
        raise UsageError(
            f"--from {iso(start)} is not before T, which is {iso(end)}",
            "Give an earlier --from; T is --to, or what the slowest source of the online topology has passed.",
        )
    if start > backfill.base.to_ms:
        raise UsageError(
            f"the batch of view {name} owns its buckets up to {iso(backfill.base.to_ms)}; a part that begins at "
            f"{iso(start)} would leave a gap",
            f"Give --from {iso(backfill.base.to_ms)} or an earlier one.",
        )
    before = read_description(Path(sink.path))
    if _adds(before) != _adds(wanted):
        raise UsageError(
            f"view {name} was made of buckets of {before.bucket_ms} ms by {before.monoid or 'one of its program'!r}, "
            f"and the program now makes some of {wanted.bucket_ms} ms by {wanted.monoid or 'one of its own'!r}: "
            "they cannot be combined",
            WHOLE,
        )
    cut = start % wanted.bucket_ms
    if cut:
        raise UsageError(
            f"--from {iso(start)} is inside a bucket of view {name}; its earlier records would be missing",
            f"Give --from {iso(start - cut)}, where the bucket begins.",
        )


def _adds(view: Description) -> tuple[object, ...]:
    return view.bucket_ms, view.monoid, view.parameters


def _check_steps(program: Program, reduce: ReduceStep) -> None:
    """Check that steps between the sources and a view do not keep earlier records. Raises UsageError."""
    named = "`heron pipeline backfill`"
    if reduce.windowing is not None and reduce.windowing.event_time is not None:
        raise UsageError(
            f"step {reduce.name!r} has an event time of its own, and {named} reads by that of the sources", WHOLE
        )
    reduce_behind = next((step for step in _behind(program, reduce) if isinstance(step, ReduceStep)), None)
    if reduce_behind is not None:
        raise UsageError(
            f"step {reduce_behind.name!r}, upstream of the view, depends on earlier input; {named} would reset "
            "its state",
            WHOLE,
        )


def _behind(program: Program, step: ReduceStep) -> Iterator[object]:
    """Yield all steps upstream of this one."""
    waiting, seen = [ref.step for ref in step.inputs], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        step_behind = program.by_name[name]
        yield step_behind
        if not isinstance(step_behind, SourceStep):
            waiting += [ref.step for ref in step_behind.inputs]

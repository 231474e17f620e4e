"""Storage of the portions (``core/portions.py``) of one stream: each appears, and is replaced, atomically.

``CHECKPOINT/portions-IDENTITY/FIRST-LAST/rows`` is Parquet: rows of units, as between any two units, with the scan of
each. Next to it, ``parts/N`` holds the parts of the N-th reducer, if there are any. The manifest lists the
reducers with parts, and their columns. ``IDENTITY`` is that of the plan, so the portions of another program are not
added to this program's.

A portion is written like any result (``output.py``). Records that the tasks of a micro-batch stage in servers, and
files that it stages for OUTPUT (``appended_files.py``), therefore count from the rename of its portion, and are settled
after it. Such a portion is not written again when Spark repeats the micro-batch.

``catalyst.reduced`` makes *parts* of the files of one micro-batch: a key, a start if there are windows, and the columns
of an accumulator. SQL adds up parts as it does records: counts and sums are sums of parts, a minimum is the minimum of
the parts, and sessions that touch are merged. A result of many micro-batches therefore does not pass through Python
either. If Python had to compute a micro-batch, because a record was put aside or its columns have other types, the
parts are converted to Python accumulators and merged with those.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from functools import reduce as fold
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.plan import CannotPlan, Output, Plan, Reduction, Scan, Unit
from data_pipeline.core.portions import Kept, Portion, columns_of_parts, cover, former_identity, holds, identity
from data_pipeline.core.staged import Report
from data_pipeline.shell.appended_files import AppendedFiles
from data_pipeline.shell.catalyst import ResultTask, grouped, total_of
from data_pipeline.shell.output import OutputFolder, Place, owner_is_gone, spark_url
from data_pipeline.shell.progress import next_stage, stages_from
from data_pipeline.shell.scan import file_system
from data_pipeline.shell.staged import Staging, clear_journal, manifest_of, settle
from data_pipeline.shell.tasks import ROW_SCHEMA, JoinTask, Shipped, accumulators
from heron_runtime.failures import listing
from heron_runtime.model.keys import encode
from heronry.streamlet.program import ReduceStep

SCAN = "scan"  # column in addition to those of ROW_SCHEMA
MOST = 16  # maximum number of portions; more are joined
ID_BYTES = 8
STREAM, READ = "stream", "read"  # in a manifest: the writer in servers, and the digest of the last micro-batch's input
FILES = "files"  # in a manifest: the folder of the files that the micro-batch appends
_PREFIX = "portions-"

Reports = dict[str, list[Report]]
#: Writes into the folder of a portion and stages records; returns entries for the manifest, and reports of the tasks.
Fill = Callable[[str, Staging], tuple[dict[str, Any], Reports]]


class Size(NamedTuple):
    """Size of all portions: their number, bytes, and rows.

    The rows are accumulators by key (and window), and records that wait for later steps.
    """

    portions: int
    length: int  # bytes
    rows: int


class Made(NamedTuple):
    """Results of a micro-batch to keep.

    Attributes:
        rows: Rows that units have emitted; None if there are none.
        parts: Reducer to its parts.
        merged: Reducers whose accumulators are among the rows.
    """

    rows: DataFrame | None
    parts: Mapping[str, DataFrame]
    merged: Collection[str]


class Portions:
    """Portions of one plan in one checkpoint folder.

    ``appends`` are the sinks that micro-batches write, and ``files`` the result to which they append files, if they do.
    ``spark`` may be None for local files only. ``say`` reports progress.
    """

    def __init__(
        self, spark: SparkSession | None, checkpoint: str, plan: Plan, appends: Sequence[Output],
        at_work: Callable[[], bool], say: Callable[[str], None], files: AppendedFiles | None = None,
    ) -> None:  # fmt: skip
        """Open the folder of the portions. Raises CannotPlan if the folder belongs to another program."""
        self._spark: Any = spark
        self._plan = plan
        self._appends, self._at_work, self._say, self._files = tuple(appends), at_work, say, files
        root = checkpoint.rstrip("/")
        others = [name for name in Place(spark, root).names() if name.startswith(_PREFIX)]
        former = f"{_PREFIX}{former_identity(plan)}"
        self._folder = f"{root}/{former if former in others else _PREFIX + identity(plan)}"
        if others and not self._folder.endswith(f"/{others[0]}"):
            again = f", and appended again to {listing([str(output.sink) for output in appends])}" if appends else ""
            raise CannotPlan(
                f"{checkpoint} has what another program, or an earlier form of this one, has counted: its steps, "
                f"sources and sinks must stay the same. Name another --checkpoint, and all input is read again{again}"
            )

    @cached_property
    def stream(self) -> str:
        """Identity of the stream: that of the last portion, or a new one."""
        found = self.found()
        last = self._about(found[-1]).get(STREAM, "") if found else ""
        return last or secrets.token_hex(ID_BYTES)

    def found(self) -> list[Portion]:
        """Return the portions to read."""
        return cover(Place(self._spark, self._folder).names())

    def size(self) -> Size:
        """Return the size of the portions to read."""
        length, rows, found = 0, 0, self.found()
        for portion in found:
            path, files = file_system(self._spark, spark_url(self._url(portion)))
            length += int(files.getContentSummary(path).getLength())
            rows += int(self._about(portion).get("rows", 0))
        return Size(len(found), length, rows)

    def settle(self) -> list[str]:
        """Commit what a dead driver owes to servers and OUTPUT, and return the steps whose records came late.

        Raises:
            CannotPlan: OUTPUT lacks files that were appended before.
            OutputExists: OUTPUT holds the result of another run.
            ConnectError: A server cannot be reached; the commits are still owed.
            Interrupted: The user interrupted the commits.
        """
        found = self.found()
        late = [step for portion in found for step in settle(self._place(portion))]
        if self._files is not None:
            staged = self._about(found[-1]).get(FILES, "") if found else None
            late += self._files.steps if self._files.open(self.stream, staged) else []
        return late

    def write(self, number: int, read: str, fill: Fill) -> Reports | None:
        """Keep the results of a micro-batch, replacing those of an earlier run of it.

        If micro-batches append, the results of an earlier run are left as they are.

        Args:
            number: Number of the micro-batch.
            read: Digest of its input.
            fill: Writes the results.

        Returns:
            The reports of the records that were staged in servers now, by step. None if an earlier run did it.

        Raises:
            CannotPlan: The micro-batch has been appended before, and reads another input now.
            ConnectError: A server cannot be reached.
        """
        found = self.found()
        if self._appends and holds(found, number):
            self._check_same(found, number, read)
            return None
        return self._write(Portion(number, number), fill, self.stream, read)

    def _check_same(self, found: list[Portion], number: int, read: str) -> None:
        """Check that a repeated micro-batch reads the same input. Raises CannotPlan.

        Spark repeats only the last micro-batch.
        """
        if found[-1].last == number and self._about(found[-1]).get(READ) == read:
            return
        raise CannotPlan(
            f"micro-batch {number} has appended its records, and now it is to read something else than then: what "
            "Spark itself keeps in CHECKPOINT was lost, or is older. Bring the whole of CHECKPOINT back; or name "
            "another --checkpoint with empty tables and another --output-path, for all input is read again then"
        )

    def _write(self, portion: Portion, fill: Fill, stream: str, read: str) -> Reports:
        outputs = self._appends if portion.first == portion.last else ()
        staging = Staging(self._plan.program, outputs, self._at_work, stream, portion.last)
        clear = partial(clear_journal, out=self._say)
        with (
            OutputFolder(self._spark, self._url(portion), replace=True, clear=clear) as folder,
            staging.into(folder, self._say),
        ):
            made, reports = fill(folder.work, staging)
            about = {"first": portion.first, "last": portion.last, STREAM: stream, READ: read}
            folder.commit({"program": self._plan.program, **about, **made} | staging.counted(reports))
        settle(folder.place)
        if self._files is not None and FILES in made:
            self._files.append(made[FILES])
        return reports

    def rows(self, scans: list[Scan]) -> Mapping[str, DataFrame]:
        """Return the rows of each scan so far, except for reducers that have parts in all portions (``parts``)."""
        kept = self._kept()
        paths = [f"{self._read_from(name)}/rows" for name, (_, has_rows) in kept.items() if has_rows]
        schema = f"{ROW_SCHEMA}, {SCAN} string"
        all_rows = self._spark.read.schema(schema).parquet(*paths) if paths else self._spark.createDataFrame([], schema)
        frames = [all_rows]
        everywhere = columns_of_parts(found for found, _ in kept.values())
        for name, (found, _) in kept.items():
            frames += [
                self._as_rows(self._read_from(name), reducer, columns)
                for reducer, columns in found.parts.items()
                if reducer not in everywhere
            ]
        all_rows = fold(DataFrame.union, frames)
        return {scan.step: all_rows.where(sql.col(SCAN) == scan.step).drop(SCAN) for scan in scans}

    def parts(self) -> Mapping[str, DataFrame]:
        """Return the added-up parts of the reducers that have parts in all portions."""
        kept, found = self._kept(), {}
        for name, columns in columns_of_parts(known for known, _ in kept.values()).items():
            folders = [folder for folder, (known, _) in kept.items() if name in known.parts]
            places = [self._place_of_parts(self._read_from(folder), name) for folder in folders]
            read = self._spark.read.schema(columns).parquet(*places)
            found[name] = added_up(read, self._plan_of(name).step)
        return found

    def written(self, made: Made, place: str) -> dict[str, Any]:
        """Write the results below the folder ``place`` and return the entries for the manifest."""
        first = next_stage(self._spark)
        if made.rows is not None:
            made.rows.write.parquet(f"{place}/rows")
        for name, parts in made.parts.items():
            parts.write.parquet(self._place_of_parts(place, name))
        rows = sum(stage.rows_written for stage in stages_from(self._spark, first))
        columns = {name: _columns(parts) for name, parts in made.parts.items()}
        return {"rows": rows, "parts": columns, "merged": sorted(made.merged)}

    def join(self, scans: list[Scan]) -> None:
        """Join many portions into one.

        The accumulators of a key are added up, so the size grows with keys and results, not with input.
        """
        found = self.found()
        if len(found) <= MOST:
            return
        rows, parts = self.rows(scans), self.parts()
        kept = [known for known, _ in self._kept().values()]
        merged = {name for known in kept for name in (*known.parts, *known.merged)} - {*parts}
        joined = fold(DataFrame.union, [marked(self._joined(scan, rows[scan.step]), scan) for scan in scans])
        self.replace(found, lambda place, _: (self.written(Made(joined, parts, merged), place), {}))

    def replace(self, found: list[Portion], fill: Fill) -> None:
        """Replace portions by one, which keeps the stream and digest of the last, as that may be repeated.

        Their commits must have been settled.
        """
        self._sweep()
        whole, last = Portion(0, found[-1].last), self._about(found[-1])
        self._write(whole, fill, last.get(STREAM, ""), last.get(READ, ""))
        for portion in found:
            if portion != whole:
                Place(self._spark, self._folder).remove(portion.name)

    def _kept(self) -> dict[str, tuple[Kept, bool]]:
        """Return the reducers of each portion to read, and whether it has rows.

        A manifest without these entries is from a release without parts.
        """
        found, every = {}, [reduction.step.name for reduction in self._plan.reductions]
        for portion in self.found():
            about, has_rows = self._about(portion), "rows" in self._place(portion).names()
            found[portion.name] = (Kept(about.get("parts", {}), about.get("merged", every)), has_rows)
        return found

    def _as_rows(self, place: str, reducer: str, columns: str) -> DataFrame:
        """Return parts as the accumulators that a unit would have emitted for the first input of the reducer."""
        reduction = self._plan_of(reducer)
        scan, tag = reduction.inputs[0]
        parts = self._spark.read.schema(columns).parquet(self._place_of_parts(place, reducer))
        rows = parts.mapInArrow(Shipped(PartsTask(tag, reduction.step)), ROW_SCHEMA)
        return rows.withColumn(SCAN, sql.lit(scan))

    def _place_of_parts(self, place: str, reducer: str) -> str:
        return f"{place}/parts/{self._number(reducer)}"

    def _number(self, reducer: str) -> int:
        return [reduction.step.name for reduction in self._plan.reductions].index(reducer)

    def _plan_of(self, reducer: str) -> Reduction:
        return self._plan.reductions[self._number(reducer)]

    def _joined(self, scan: Scan, rows: DataFrame) -> DataFrame:
        steps: dict[int, ReduceStep] = {}
        for reduction in self._plan.reductions:
            steps |= {tag: reduction.step for entry, tag in reduction.inputs if entry == scan.step}
        others = rows.where(~sql.col("tag").isin(list(steps))) if steps else rows
        frames = [others]
        for tag, step in steps.items():
            sorted_rows = rows.where(sql.col("tag") == tag).repartition("key").sortWithinPartitions("key", "start")
            frames.append(sorted_rows.mapInArrow(Shipped(JoinTask(tag, step)), ROW_SCHEMA))
        return fold(DataFrame.union, frames)

    def _sweep(self) -> None:
        """Remove leftovers of drivers that died while they joined portions; later runs use other names."""
        folder = Place(self._spark, self._folder)
        for name in folder.names():
            portion = name.removeprefix(".").partition(".")[0]
            if portion.startswith("0-") and portion != "0-0" and owner_is_gone(name, portion):
                folder.remove(name)

    def _read_from(self, name: str) -> str:
        """Return the URL from which Spark reads the portion."""
        return f"{spark_url(self._folder)}/{name}"

    def _url(self, portion: Portion) -> str:
        return f"{self._folder}/{portion.name}"

    def _place(self, portion: Portion) -> Place:
        return Place(self._spark, self._url(portion))

    def _about(self, portion: Portion) -> Mapping[str, Any]:
        return manifest_of(self._place(portion)) or {}


def _columns(parts: DataFrame) -> str:
    """Return the columns of parts as SQL declares them."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in parts.schema.fields)


def marked(rows: DataFrame, scan: Scan) -> DataFrame:
    """Return the rows with a column for the scan's name."""
    return rows.withColumn(SCAN, sql.lit(scan.step))


def is_of(spark: SparkSession, url: str, checkpoint: str) -> bool:
    """Return True for a result that the stream of this checkpoint has written."""
    return bool((manifest_of(Place(spark, url)) or {}).get("checkpoint") == checkpoint)


def added_up(parts: DataFrame, step: ReduceStep) -> DataFrame:
    """Return the parts of several micro-batches added up to one row for each key, and window or session."""
    names = [name for name in parts.columns if name.startswith("acc")]
    added = [sql.expr(_added(step.monoid.builtin or "", name, names)).alias(name) for name in names]
    return grouped(parts, step, added, "last")


def _added(builtin: str, name: str, names: list[str]) -> str:
    if builtin in ("min", "max"):
        return f"{builtin}({name})"
    is_total = builtin == "sum" and name == "acc0" and len(names) == 2  # of floating-point numbers
    return total_of(name) if is_total else f"sum({name})"


@dataclass(frozen=True)
class PartsTask:
    """Task that converts parts to rows with Python accumulators, as emitted by the unit before the reducer."""

    tag: int
    step: ReduceStep

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Convert batches; the function for ``mapInArrow``."""
        merged = ResultTask(self.step, Unit(self.step.name, (), ()), {}).merged(batches)
        yield from accumulators(self.tag, self.step, (item._replace(code=encode(item.key)) for item in merged))

"""Tasks that run in Spark's Python workers: the callables passed to ``mapInArrow``.

They turn Arrow batches into columns and back; the core does everything in between.

A task is pickled into the job, so it holds only plain values and the user's functions. A worker imports the user's
module again. It must receive the same arguments before any of its functions is unpickled, which is the purpose of
``Shipped``. pyarrow is imported where it is used, so that other parts of the driver do not need it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

from pyspark import TaskContext, cloudpickle

from data_pipeline.core.combine import Limits, Rows, letters_of
from data_pipeline.core.decode import Decoding, own_name, plain_path
from data_pipeline.core.failure import MAX_VALUE, RecordFailed, ServerFailed, failed
from data_pipeline.core.merge import Merged, merged, processed, result_of
from data_pipeline.core.payload import dump
from data_pipeline.core.plan import Unit
from data_pipeline.core.render import ToAccumulator
from data_pipeline.core.runner import Runner, log
from data_pipeline.core.staged import Journal, Report, seat_of, token_of
from data_pipeline.core.trace import Traced
from data_pipeline.shell.servers import columns_in
from data_pipeline.shell.spoken import Spoken
from heronry.api.state import Checkpoint
from heronry.connect.arrow_times import columns_in_utc
from heronry.connect.settings import ConnectError
from heronry.streamlet.aside import failure_line
from heronry.streamlet.decoding import cells_of
from heronry.streamlet.endpoints import COLUMNAR, Source
from heronry.streamlet.errors import shown
from heronry.streamlet.packed import ReadError
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.reading import LINES, refuse_old_dates
from heronry.streamlet.server_sinks import ServerSink
from heronry.streamlet.servers import ServerSource

#: Columns of every row between units.
ROW_SCHEMA = "tag int, key binary, start long, data binary, count long"
#: Columns of a task's report of staged records (``core.staged.Report``).
REPORT_SCHEMA = "partition int, token string, records long"
RESULTS_PER_BATCH = 4_096
ARROW_COLUMN = "__heronry_arrow"  # pieces of columnar files that Python has read (unpack.py)
WORKING_FOLDER = "HERONRY_WORKING_FOLDER"  # variable for workers that were started before the command they work for
Render = dict[int, Callable[[Any], bytes]]


class Shipped:
    """Pickled task with the program's arguments, as it is sent to workers."""

    def __init__(self, task: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        self.__name__ = type(task).__name__  # shown in Spark's plans
        self._arguments = tuple(sys.argv)
        self._task = cloudpickle.dumps(task)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Restore the arguments and folder, and run the task; the function for ``mapInArrow``."""
        sys.argv = list(self._arguments)
        if WORKING_FOLDER in os.environ:
            os.chdir(os.environ[WORKING_FOLDER])
        _let_programs_speak()
        task = pickle.loads(self._task)
        yield from task(batches)


def _let_programs_speak() -> None:
    """Redirect the program's prints and ``log()`` to the worker's stderr, marked.

    A driver on the same machine shows them; on a cluster they go to the executor's log.
    """
    if not log.handlers:
        sys.stdout = Spoken()
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)
        log.propagate = False


def _batch(rows: Rows) -> Any:
    import pyarrow as pa

    count = len(rows.payloads)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(rows.tag, pa.int32()), count),
            pa.array(rows.keys, pa.binary()),
            pa.array(rows.starts, pa.int64()),
            pa.array(rows.payloads, pa.binary()),
            pa.nulls(count, pa.int64()) if rows.counts is None else pa.array(rows.counts, pa.int64()),
        ],
        names=["tag", "key", "start", "data", "count"],
    )


@dataclass(frozen=True)
class ScanTask:
    """Task that runs a source's rows through its unit. With ``aside``, failing records become letters."""

    decoding: Decoding
    unit: Unit
    render: Render
    limits: Limits = field(default_factory=Limits)
    aside: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Process batches; the function for ``mapInArrow``."""
        runner = Runner(self.unit, self.render, self.limits)
        for columns in self._columns(batches):
            if self.aside:
                records, times, places, letters = self.decoding.singly(columns)
                yield from [_batch(letters_of(letters))] if letters else []
                yield from map(_batch, runner.sifted(records, times, places))
                continue
            records, times, file = self.decoding.decode(columns)
            again = partial(_decoded_records, self.decoding, columns)
            yield from map(_batch, runner.run(records, times, file, again))
        yield from map(_batch, runner.finish())

    def _columns(self, batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
        step, source = self.decoding.step, self.decoding.source
        if isinstance(source, ServerSource):
            return columns_in(step, source, self.decoding.ranges, batches)
        return columns_of(step, source, batches)


class _Late:
    """Column whose values are converted on access, as they are needed only when a record fails."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, place: Any) -> Any:
        value = self._values[place]
        return value.to_pylist() if isinstance(place, slice) else value.as_py()


def columns_of(step: str, source: Source[Any], batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """Yield Arrow batches of a source step's raw rows as lists, without empty batches."""
    form = source.format if source.kind == "files" else ""
    seen: set[str] = set()
    partition = _partition()
    for batch in batches:
        if not batch.num_rows:
            continue
        if form in COLUMNAR:
            if batch.schema.names[0] == ARROW_COLUMN:
                yield from _of_pieces(batch)
                continue
            names, files = list(map(own_name, batch.schema.names[:-1])), _Late(batch.columns[-1])  # the file is last
            if form == "orc":
                _check_dates(step, batch, files[0])
            yield {**_records_of(batch.from_arrays(batch.columns[:-1], names)), "file": files}
        elif form in LINES:
            columns = _lines(batch, form)
            if form == "csv":
                columns["is_first"] = list(_first_lines(columns["file"], columns["block_start"], seen))
            elif "file" not in columns:
                columns["file"] = Traced(step, partition, columns["record" if "record" in columns else "value"])
            yield columns
        else:
            yield {
                name: _Late(batch.column(name)) if name == "file" else batch.column(name).to_pylist()
                for name in batch.schema.names
            }


def _of_pieces(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of Arrow streams (unpack.py), which are decoded as in the other engines."""
    import pyarrow as pa

    for data, file in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        with pa.ipc.open_stream(data) as stream:
            for records in stream:
                yield {**_records_of(columns_in_utc(records)), "file": [file] * records.num_rows}


def _records_of(batch: Any) -> dict[str, Any]:
    """Return the rows of a batch as records; rows that Python cannot represent have an error in `unreadable`."""
    try:
        return {"record": batch.to_pylist()}
    except (ValueError, OverflowError):
        records: list[Any] = []
        errors: list[Exception | None] = []
        for row in range(batch.num_rows):
            try:
                records += batch.slice(row, 1).to_pylist()
                errors.append(None)
            except (ValueError, OverflowError) as error:
                records.append(cells_of(batch.slice(row, 1)))
                errors.append(error)
        return {"record": records, "unreadable": errors}


def _check_dates(step: str, batch: Any, file: str) -> None:
    try:
        refuse_old_dates(batch, plain_path(file))
    except ReadError as error:
        raise failed(step, "(one of its rows)", error, plain_path(file)) from error


def _partition() -> int:
    """Return the number of this task's partition; 0 outside of Spark."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _lines(batch: Any, form: str) -> dict[str, Any]:
    """Return lines, which Spark passes as strings: as text if it needs no repair, else as bytes."""
    import pyarrow as pa

    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name != "value"}
    lines = batch.column("value")
    data = lines.buffers()[2]
    if form == "text" and (data is None or b"\r" not in data.to_pybytes()):
        with contextlib.suppress(UnicodeDecodeError):
            return columns | {"record": lines.to_pylist()}
    return columns | {"value": lines.cast(pa.binary()).to_pylist()}


def _first_lines(files: list[str], starts: list[int], seen: set[str]) -> Iterator[bool]:
    """Yield True for the row that is its file's first line: the first one seen of the block at offset 0."""
    for file, start in zip(files, starts, strict=True):
        yield start == 0 and file not in seen
        seen.add(file)


@dataclass(frozen=True)
class MergeTask:
    """Task that runs sorted accumulators through the merge, the reducer's ``finish`` and the downstream unit."""

    step: ReduceStep
    unit: Unit
    render: Render
    limits: Limits = field(default_factory=Limits)
    aside: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Process batches; the function for ``mapInArrow``."""
        merged_rows = merged(self.step, _rows(batches))
        if self.step.process is not None:
            yield from self._processed(merged_rows)
        else:
            yield from results(self.step, merged_rows, self.unit, self.render, self.limits, self.aside)

    def _processed(self, merged_rows: Iterable[Merged]) -> Iterator[Any]:
        """Run the records that handlers emit through the downstream unit; with ``aside``, failures become letters."""
        step, runner = self.step, Runner(self.unit, self.render, self.limits)
        outcomes = processed(step, merged_rows)
        while chunk := list(islice(outcomes, RESULTS_PER_BATCH)):
            errors = [(outcome.record, outcome.error) for outcome in chunk if outcome.error is not None]
            causes = [(record, error.__cause__ or error) for record, error in errors]
            if causes and not self.aside:
                record, cause = causes[0]
                raise failed(step.name, record, cause) from cause
            if causes:
                told = [
                    failure_line(step.name, "", record, shown(record, MAX_VALUE), cause) for record, cause in causes
                ]
                yield _batch(letters_of(told))
            passed = [outcome for outcome in chunk if outcome.error is None]
            records, times = [outcome.record for outcome in passed], [outcome.time_ms for outcome in passed]
            made = runner.run(records, times, _unknown)
            if self.aside:
                made = runner.sifted(records, times, [""] * len(records))
            yield from map(_batch, made)
        yield from map(_batch, runner.finish())


@dataclass(frozen=True)
class JoinTask:
    """Task that merges sorted accumulators to one for each key and window, in the format of its input."""

    tag: int
    step: ReduceStep

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Process batches; the function for ``mapInArrow``."""
        yield from accumulators(self.tag, self.step, merged(self.step, _rows(batches)))


def accumulators(tag: int, step: ReduceStep, merged_rows: Iterable[Merged]) -> Iterator[Any]:
    """Yield keys and their accumulators as the Arrow batches that a unit before the reducer emits."""
    waiting = iter(merged_rows)
    while chunk := list(islice(waiting, RESULTS_PER_BATCH)):
        payloads = [dump(item.key, item.accumulator) for item in chunk]
        counts = [item.accumulator for item in chunk] if step.counts else None
        yield _batch(Rows(tag, [item.code for item in chunk], [item.start for item in chunk], payloads, counts))


def _rows(batches: Iterator[Any]) -> Iterator[tuple[bytes, int, bytes]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("key", "start", "data"))
        yield from zip(*columns, strict=True)


def _unknown(_: int) -> str:
    return ""


def _sound(step: ReduceStep, merged_rows: list[Merged], views: list[Any]) -> tuple[list[Merged], list[bytes]]:
    """Return the keys whose result can be made and published, and letters for the others."""
    sound, letters = [], []
    for item in merged_rows:
        try:
            result_of(step, item)
            for show in views:
                show.code(item), show(item)
            sound.append(item)
        except RecordFailed as error:
            letters.append(failure_line(step.name, "", item.key, error.failure.value, error.__cause__ or error))
    return sound, letters


def passed(
    chunks: Iterable[tuple[Sequence[Any], Sequence[int | None]]], unit: Unit, render: Render, limits: Limits
) -> Iterator[Any]:
    """Run records and their times through a unit, and yield Arrow batches."""
    runner = Runner(unit, render, limits)
    for records, times in chunks:
        yield from map(_batch, runner.run(records, times, _unknown))
    yield from map(_batch, runner.finish())


def _decoded_records(decoding: Decoding, columns: dict[str, Any]) -> Sequence[Any]:
    """Return the records of a batch, decoded again, as functions may have changed those that failed."""
    return decoding.decode(columns)[0]


def _results_of(step: ReduceStep, chunk: list[Merged]) -> list[Any]:
    return [result_of(step, item)[0] for item in chunk]


def results(
    step: ReduceStep, merged_rows: Iterable[Merged], unit: Unit, render: Render, limits: Limits, aside: bool = False
) -> Iterator[Any]:
    """Run reduced keys through the downstream unit, and yield Arrow batches.

    With ``aside``, failures become letters.
    """
    views = [node.tag for node in unit.nodes if node.kind == "view"]
    behind = Unit(unit.entry, tuple(n for n in unit.nodes if n.kind != "view"), unit.outputs, unit.timed)
    runner = Runner(behind, render, limits)
    waiting = iter(merged_rows)
    while chunk := list(islice(waiting, RESULTS_PER_BATCH)):
        if aside:
            chunk, letters = _sound(step, chunk, [render[tag] for tag in views])
            yield from [_batch(letters_of(letters))] if letters else []
        for tag in views:
            show = render[tag]
            assert isinstance(show, ToAccumulator)
            codes, payloads = [show.code(item) for item in chunk], [show(item) for item in chunk]
            yield _batch(Rows(tag, codes, [item.start for item in chunk], payloads))
        if behind.nodes:
            pairs = [result_of(step, item) for item in chunk]
            records, times = [record for record, _ in pairs], [time for _, time in pairs]
            if aside:
                made = runner.sifted(records, times, [""] * len(records))
            else:
                made = runner.run(records, times, _unknown, partial(_results_of, step, chunk))
            yield from map(_batch, made)
    yield from map(_batch, runner.finish())


@dataclass(frozen=True)
class StageTask:
    """Task that stages a partition's records in the server under the token of this attempt.

    It yields one row at the end, but only if there are records.
    """

    step: str
    sink: ServerSink
    journal: Journal

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Stage the records of batches; the function for ``mapInArrow``. Raises ServerFailed."""
        import pyarrow as pa

        context = TaskContext.get()
        partition, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        try:
            report = self.staged(batches, partition, attempt)
        except ConnectError as error:
            raise ServerFailed(self.step, str(error)) from None
        if report is not None:
            yield pa.RecordBatch.from_pylist([report._asdict()], pa.schema(_report_columns()))

    def staged(self, batches: Iterator[Any], partition: int, attempt: int) -> Report | None:
        """Stage the records and return the report; None for an empty partition. Raises ConnectError."""
        payloads = (payload for batch in batches for payload in batch.column("data").to_pylist())
        first = next(payloads, None)
        if first is None:
            return None
        with contextlib.closing(self.sink.open(seat_of(self.journal, self.step, partition))) as connector:
            number, token = 0, token_of(self.journal, attempt)
            for payload in chain([first], payloads):
                connector.take(pickle.loads(payload))
                number += 1
            connector.prepare(Checkpoint(0, 0, token))
            return Report(partition, token, number)


def _report_columns() -> list[tuple[str, Any]]:
    import pyarrow as pa

    return [("partition", pa.int32()), ("token", pa.string()), ("records", pa.int64())]

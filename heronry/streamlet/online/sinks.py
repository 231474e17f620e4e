"""Writers of sinks. What is added goes to a file whose name begins with ``.``; ``roll`` makes it whole and renames it.

A record that cannot be written is refused when it is added, so that its tuple fails and not its neighbours'. A task's
own unfinished files of an earlier life are removed when it starts: what was in them was never acked and comes again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from heronry.streamlet.columns import each, times_of
from heronry.streamlet.endpoints import ArchiveSink, CollectSink, FileSink, ViewSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import Streams
from heronry.streamlet.online.task_files import append_whole
from heronry.streamlet.program import EventTime, Program, Ref, SinkStep
from heronry.streamlet.reading import ARCHIVE_COLUMNS, parquet_library
from heronry.streamlet.records import fields_of, named_fields, table_of
from heronry.streamlet.windows import hour_folder

ROLL_BYTES = 16 * 1024 * 1024
ROLL_AGE_SECONDS = 5.0  # far below the message timeout: acks wait for it
ROLL_QUIET_SECONDS = 0.5


class Writer(Protocol):
    """One sink step in one task."""

    size: int  # bytes, about, that wait for a roll

    def prepare(self, block: Block) -> Any:
        """What ``take`` wants of these records. Raises StepFailed for one that cannot be written."""

    def take(self, prepared: Any) -> None:
        """Take what was prepared."""

    def roll(self) -> None:
        """Put what was taken into place."""

    def finish(self) -> None:
        """Everything there will ever be is in place: say so."""


class SinkSet:
    """The sinks of one stage in one task."""

    def __init__(
        self, program: Program, steps: tuple[str, ...], task: str, of: int, folder: Path, now: Callable[[], float]
    ) -> None:
        self._now = now
        self._writers: list[tuple[Ref, Writer]] = []
        for name in steps:
            step = program.by_name[name]
            if isinstance(step, SinkStep) and not isinstance(step.sink, ViewSink):
                self._writers.append((step.input, _writer(step, task, of, folder)))
        self.clean = True
        self._first_at = self._last_at = 0.0

    def add(self, streams: Streams) -> None:
        """Give each sink its stream. Raises StepFailed; then no sink has taken anything."""
        blocks = [(writer, streams.get(ref)) for ref, writer in self._writers]
        prepared = [(writer, writer.prepare(block)) for writer, block in blocks if block is not None and block.records]
        for writer, ready in prepared:
            writer.take(ready)
            self._last_at = self._now()
            if self.clean:
                self.clean, self._first_at = False, self._last_at

    def due(self) -> bool:
        """True if there is something to roll that is old, large, or that nothing more comes to."""
        if self.clean:
            return False
        now = self._now()
        size = sum(writer.size for _, writer in self._writers)
        return (
            now - self._first_at >= ROLL_AGE_SECONDS or now - self._last_at >= ROLL_QUIET_SECONDS or size >= ROLL_BYTES
        )

    def roll(self) -> None:
        """Put everything into place."""
        if not self.clean:
            for _, writer in self._writers:
                writer.roll()
            self.clean = True

    def finish(self) -> None:
        """Roll, and tell readers that no more will come."""
        self.roll()
        for _, writer in self._writers:
            writer.finish()


def _writer(step: SinkStep, task: str, of: int, folder: Path) -> Writer:
    sink = step.sink
    if isinstance(sink, ArchiveSink):
        return ArchiveWriter(step, sink, task)
    if isinstance(sink, CollectSink):
        return JsonWriter(step, folder / "collect" / step.name, task, of)
    assert not isinstance(sink, ViewSink)
    if not isinstance(sink, FileSink):
        made: Writer = sink.writer(step.name, task, folder)
        return made
    return (JsonWriter if sink.format == "json" else ParquetWriter)(step, Path(sink.path), task, of)


class _Files:
    """Names and renames of one task's files in one folder."""

    suffix = ""

    def __init__(self, step: SinkStep, folder: Path, task: str, of: int) -> None:
        self._step = step
        self._folder = folder
        self._name = f"{step.name}-{task}"
        self._done = folder / f"_final-{self._name}-of-{of}"
        self._serial = 0
        self.size = 0
        folder.mkdir(parents=True, exist_ok=True)
        for left in (folder / f".{self._name}.part", self._done, *_marks_of_others(folder, step.name, of)):
            left.unlink(missing_ok=True)

    @property
    def part(self) -> Path:
        """The file that is being written."""
        return self._folder / f".{self._name}.part"

    def put(self) -> None:
        """Rename the part. Names of one task sort by time."""
        self._serial += 1
        stamp = f"{int(time.time() * 1000):013d}-{self._serial:06d}"
        os.replace(self.part, self._folder / f"{self._name}-{stamp}{self.suffix}")

    def finish(self) -> None:
        """An empty file ``_final-…-of-N``: when there are N, the result is whole."""
        self._done.touch()


def _marks_of_others(folder: Path, step: str, of: int) -> list[Path]:
    """Final marks of an earlier topology that had another number of tasks: they would count as ours."""
    begin, end = f"_final-{step}-", f"-of-{of}"
    found = [mark for mark in folder.glob("_final-*-of-*") if mark.name.startswith(begin)]
    numbers = {mark: mark.name.removeprefix(begin).rpartition("-of-")[0] for mark in found}
    return [mark for mark, number in numbers.items() if number.isdecimal() and not mark.name.endswith(end)]


class JsonWriter(_Files):
    """One record a line."""

    suffix = ".json"

    def __init__(self, step: SinkStep, folder: Path, task: str, of: int) -> None:
        super().__init__(step, folder, task, of)
        self._encoder = msgspec.json.Encoder(decimal_format="number")  # as the batch writes them
        self._file: int | None = None

    def prepare(self, block: Block) -> bytes:
        """Lines. Raises StepFailed."""
        records = block.records
        if isinstance(records[0], tuple) or not {*map(type, records)} <= {dict, str, int, float}:
            records = list(map(fields_of, records))
        try:
            return self._encoder.encode_lines(records)
        except Exception:
            return self._one_by_one(records)

    def take(self, data: bytes) -> None:
        """Write them to the part."""
        if self._file is None:
            self._file = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        append_whole(self._file, data, self.part)
        self.size += len(data)

    def _one_by_one(self, records: list[Any]) -> bytes:
        lines = []
        for record in records:
            try:
                lines.append(self._encoder.encode(record))
            except Exception as error:
                raise StepFailed(self._step.name, record) from error
        return b"\n".join(lines) + b"\n"

    def roll(self) -> None:
        """Close and rename."""
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None
            self.put()
            self.size = 0


class ParquetWriter(_Files):
    """Rows are gathered in memory and written at a roll."""

    suffix = ".parquet"

    def __init__(self, step: SinkStep, folder: Path, task: str, of: int) -> None:
        super().__init__(step, folder, task, of)
        self._arrow = parquet_library()
        self._tables: list[Any] = []
        self._schema = self._arrow.schema([])  # what holds everything that waits

    def prepare(self, block: Block) -> tuple[Any, Any]:
        """A table, and the schema of the file with it. Raises StepFailed."""
        records = each(self._step.name, named_fields, block.records)
        try:
            return self._table(records, self._schema)
        except Exception as error:
            schema = self._schema
            for record in records:
                try:
                    _, schema = self._table([record], schema)
                except Exception as cause:
                    raise StepFailed(self._step.name, record) from cause
            raise StepFailed(self._step.name, records[0]) from error

    def _table(self, records: list[Any], schema: Any) -> tuple[Any, Any]:
        table = table_of(records)
        return table, self._arrow.unify_schemas([schema, table.schema], promote_options="permissive")

    def take(self, prepared: tuple[Any, Any]) -> None:
        """Keep it for the next roll."""
        table, self._schema = prepared
        self._tables.append(table)
        self.size += table.nbytes

    def roll(self) -> None:
        """Write one file."""
        if self._tables:
            table = self._arrow.concat_tables(self._tables, promote_options="permissive")
            self._arrow.parquet.write_table(table, self.part, compression="zstd")
            self.put()
            self._tables, self.size, self._schema = [], 0, self._arrow.schema([])


class ArchiveWriter:
    """Columns by event hour, gathered in memory and written at a roll; see ``endpoints.ArchiveSink``."""

    def __init__(self, step: SinkStep, sink: ArchiveSink, task: str) -> None:
        self._step = step
        self._arrow = parquet_library()
        self._root = Path(sink.path)
        self._time = None if sink.event_time is None else EventTime(sink.event_time, sink.unit)
        self._name = f"{step.name}-{task}"
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode
        self._hours: dict[str, list[tuple[str, str, int, str]]] = {}
        self._serial = 0
        self.size = 0
        self._root.mkdir(parents=True, exist_ok=True)
        for left in self._root.glob(f"date=*/hour=*/.{self._name}.part"):
            left.unlink(missing_ok=True)

    def prepare(self, block: Block) -> list[tuple[str, str, int, str]]:
        """Rows. Raises StepFailed, also for a record that JSON does not give back as it is."""
        times = block.times_ms if self._time is None else times_of(self._step.name, self._time, block.records)
        assert times is not None
        assert block.ids is not None
        texts = list(map(self._text, block.records))
        return [(*named, time_ms, text) for named, time_ms, text in zip(block.ids, times, texts, strict=True)]

    def take(self, rows: list[tuple[str, str, int, str]]) -> None:
        """Keep them, by hour, for the next roll."""
        folders: dict[int, str] = {}
        for message, index, time_ms, text in rows:
            hour = time_ms // 3_600_000
            folder = folders.get(hour)
            if folder is None:
                folder = folders[hour] = hour_folder(time_ms)
            self._hours.setdefault(folder, []).append((message, index, time_ms, text))
            self.size += len(text) + 64

    def _text(self, record: Any) -> str:
        try:
            data = self._encode(record)
            if self._decode(data) != record:
                raise TypeError(
                    "JSON does not give it back as it is (tuples, NaN, keys that are no str, dates): map it to lists, "
                    "dicts, str and numbers before the archive"
                )
        except Exception as error:
            raise StepFailed(self._step.name, record) from error
        return data.decode()

    def roll(self) -> None:
        """Write one file for each hour."""
        arrow = self._arrow
        kinds = (arrow.string(), arrow.string(), arrow.int64(), arrow.string())
        for folder, rows in self._hours.items():
            columns = [arrow.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
            place = self._root / folder
            place.mkdir(parents=True, exist_ok=True)
            part = place / f".{self._name}.part"
            arrow.parquet.write_table(arrow.table(columns, names=list(ARCHIVE_COLUMNS)), part, compression="zstd")
            self._serial += 1
            os.replace(part, place / f"{self._name}-{int(time.time() * 1000):013d}-{self._serial:06d}.parquet")
        self._hours, self.size = {}, 0

    def finish(self) -> None:
        """Whoever reads an archive reads what is there."""

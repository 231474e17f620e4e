"""Writers of sinks, in two phases: what is taken is prepared under the token of a checkpoint, and seen once that is
complete (staging.py).

A record that cannot be written is refused when it is encoded, before anything of its block is emitted or taken, so that
it alone is put aside. Names of files sort by the start of the topology, checkpoint and task, so of running results the
last one read is the newest, also when a key has moved to another task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from heron_runtime.files import append_whole
from heronry.api.state import Checkpoint
from heronry.streamlet.columns import each, times_of
from heronry.streamlet.endpoints import ArchiveSink, CollectSink, FileSink, ViewSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import Streams
from heronry.streamlet.online.staging import Staging
from heronry.streamlet.program import EventTime, Program, Ref, SinkStep
from heronry.streamlet.reading import ARCHIVE_COLUMNS, parquet_library
from heronry.streamlet.records import fields_of, named_fields, table_of
from heronry.streamlet.windows import hour_folder


class TaskOf(NamedTuple):
    """Whose files they are: task ``number`` of ``of``, counted from 0, of a topology begun at ``life`` (ms since 1970
    UTC). ``folder`` is the topology's, for what has no place of its own."""

    number: int
    of: int
    life: int
    folder: Path

    def name(self, step: str, checkpoint: Checkpoint) -> str:
        """Of a file of this checkpoint, without its suffix."""
        return f"{step}-{self.life:013d}-{checkpoint.number:09d}-{self.number}"


class Phased(Protocol):
    """What is shown with checkpoints. ``commit`` and ``abort`` may come again, and for tokens of other tasks."""

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """Make what was taken safe and invisible, under ``checkpoint.name``; ``final``: nothing more will come. False
        if there is nothing."""

    def commit(self, token: str) -> None:
        """Make it visible."""

    def abort(self, token: str) -> None:
        """Throw it away."""

    def prepared(self) -> Iterable[str]:
        """Tokens that wait."""

    def close(self) -> None:
        """Let go of what was not prepared."""


class Writer(Phased, Protocol):
    """One sink step in one task."""

    def encode(self, block: Block) -> Any:
        """What ``take`` wants of these records. Raises StepFailed for one that cannot be written."""

    def take(self, encoded: Any) -> None:
        """Take what was encoded."""


class SinkSet:
    """The sinks of one stage in one task."""

    def __init__(self, program: Program, steps: tuple[str, ...], task: TaskOf) -> None:
        self._readers: list[tuple[Ref, Writer]] = []
        for name in steps:
            step = program.by_name[name]
            if isinstance(step, SinkStep) and not isinstance(step.sink, ViewSink):
                self._readers.append((step.input, _writer(step, task)))
        self.writers = [writer for _, writer in self._readers]

    def add(self, streams: Streams) -> None:
        """Give each sink its stream. Raises StepFailed; then no sink has taken anything."""
        blocks = [(writer, streams.get(ref)) for ref, writer in self._readers]
        encoded = [(writer, writer.encode(block)) for writer, block in blocks if block is not None and block.records]
        for writer, ready in encoded:
            writer.take(ready)


def _writer(step: SinkStep, task: TaskOf) -> Writer:
    sink = step.sink
    if isinstance(sink, ArchiveSink):
        return ArchiveWriter(step, sink, task)
    if isinstance(sink, CollectSink):
        return JsonWriter(step, task.folder / "collect" / step.name, task)
    assert not isinstance(sink, ViewSink)
    if not isinstance(sink, FileSink):
        made: Writer = sink.writer(step.name, str(task.number), task.folder)
        return made
    return (JsonWriter if sink.format == "json" else ParquetWriter)(step, Path(sink.path), task)


class StagedWriter:
    """What writers of files share. Derive and write ``_flush``."""

    def __init__(self, step: str, root: Path, task: TaskOf) -> None:
        self._name = step
        self._task = task
        self.root = root
        self._staging = Staging(root, step, task.number, task.of)

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """All files of this checkpoint; ``_final-STEP-TASK-of-N``, an empty one, at the end. Raises OSError."""
        self._flush(self._task.name(self._name, checkpoint))
        if final:
            self._finish()
        return self._staging.prepare(checkpoint.name)

    def commit(self, token: str) -> None:
        """Readers see them."""
        self._staging.commit(token)

    def abort(self, token: str) -> None:
        """They never will."""
        self._staging.abort(token)

    def prepared(self) -> list[str]:
        """Tokens that wait."""
        return self._staging.prepared()

    def _flush(self, name: str) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        self._staging.file(self._mark).touch()

    @property
    def _mark(self) -> str:
        return f"_final-{self._name}-{self._task.number}-of-{self._task.of}"

    def begin(self) -> None:
        """The end has not come: marks say so that an earlier topology has left, or one of another number of tasks."""
        self.root.mkdir(parents=True, exist_ok=True)
        for left in (self.root / self._mark, *_marks_of_others(self.root, self._name, self._task.of)):
            left.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of what was not prepared."""
        self._staging.close()


def _marks_of_others(folder: Path, step: str, of: int) -> list[Path]:
    """Final marks of tasks of another number: they would count as ours."""
    begin, end = f"_final-{step}-", f"-of-{of}"
    found = [mark for mark in folder.glob("_final-*-of-*") if mark.name.startswith(begin)]
    numbers = {mark: mark.name.removeprefix(begin).rpartition("-of-")[0] for mark in found}
    return [mark for mark, number in numbers.items() if number.isdecimal() and not mark.name.endswith(end)]


class LinesWriter(StagedWriter):
    """Whole lines, as they come."""

    suffix = ""

    def __init__(self, step: str, root: Path, task: TaskOf) -> None:
        super().__init__(step, root, task)
        self._file: int | None = None
        self._path = Path()

    def take(self, data: bytes) -> None:
        """Write them. Raises OSError, and has written nothing then."""
        if self._file is None:
            self._path = self._staging.file("lines")
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        append_whole(self._file, data)

    def _flush(self, name: str) -> None:
        if self._file is not None:
            self._let_go()
            os.rename(self._path, self._path.with_name(name + self.suffix))

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def close(self) -> None:
        """Let go of what was not prepared."""
        self._let_go()
        super().close()


class JsonWriter(LinesWriter):
    """One record a line."""

    suffix = ".json"

    def __init__(self, step: SinkStep, root: Path, task: TaskOf) -> None:
        super().__init__(step.name, root, task)
        self._encoder = msgspec.json.Encoder(decimal_format="number")  # as the batch writes them

    def encode(self, block: Block) -> bytes:
        """Lines. Raises StepFailed."""
        records = block.records
        if isinstance(records[0], tuple) or not {*map(type, records)} <= {dict, str, int, float}:
            records = list(map(fields_of, records))
        try:
            return self._encoder.encode_lines(records)
        except Exception:
            return self._one_by_one(records)

    def _one_by_one(self, records: list[Any]) -> bytes:
        lines = []
        for record in records:
            try:
                lines.append(self._encoder.encode(record))
            except Exception as error:
                raise StepFailed(self._name, record) from error
        return b"\n".join(lines) + b"\n"


class ParquetWriter(StagedWriter):
    """Rows are gathered in memory from one checkpoint to the next."""

    def __init__(self, step: SinkStep, root: Path, task: TaskOf) -> None:
        super().__init__(step.name, root, task)
        self._arrow = parquet_library()
        self._tables: list[Any] = []
        self._schema = self._arrow.schema([])  # what holds everything that waits

    def encode(self, block: Block) -> tuple[Any, Any]:
        """A table, and the schema of the file with it. Raises StepFailed."""
        records = each(self._name, named_fields, block.records)
        try:
            return self._table(records, self._schema)
        except Exception as error:
            schema = self._schema
            for record in records:
                try:
                    _, schema = self._table([record], schema)
                except Exception as cause:
                    raise StepFailed(self._name, record) from cause
            raise StepFailed(self._name, records[0]) from error

    def _table(self, records: list[Any], schema: Any) -> tuple[Any, Any]:
        table = table_of(records)
        return table, self._arrow.unify_schemas([schema, table.schema], promote_options="permissive")

    def take(self, encoded: tuple[Any, Any]) -> None:
        """Keep it for the next checkpoint."""
        table, self._schema = encoded
        self._tables.append(table)

    def _flush(self, name: str) -> None:
        if self._tables:
            table = self._arrow.concat_tables(self._tables, promote_options="permissive")
            path = self._staging.file(f"{name}.parquet")
            self._arrow.parquet.write_table(table, path, compression="zstd")
            self._tables, self._schema = [], self._arrow.schema([])


class ArchiveWriter(StagedWriter):
    """Columns by event hour, gathered in memory from one checkpoint to the next; see ``endpoints.ArchiveSink``."""

    def __init__(self, step: SinkStep, sink: ArchiveSink, task: TaskOf) -> None:
        super().__init__(step.name, Path(sink.path), task)
        self._arrow = parquet_library()
        self._time = None if sink.event_time is None else EventTime(sink.event_time, sink.unit)
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode
        self._hours: dict[str, list[tuple[str, str, int, str]]] = {}

    def encode(self, block: Block) -> list[tuple[str, str, int, str]]:
        """Rows. Raises StepFailed, also for a record that JSON does not give back as it is."""
        times = block.times_ms if self._time is None else times_of(self._name, self._time, block.records)
        assert times is not None
        assert block.ids is not None
        texts = list(map(self._text, block.records))
        return [(*named, time_ms, text) for named, time_ms, text in zip(block.ids, times, texts, strict=True)]

    def take(self, rows: list[tuple[str, str, int, str]]) -> None:
        """Keep them, by hour, for the next checkpoint."""
        folders: dict[int, str] = {}
        for message, index, time_ms, text in rows:
            hour = time_ms // 3_600_000
            folder = folders.get(hour)
            if folder is None:
                folder = folders[hour] = hour_folder(time_ms)
            self._hours.setdefault(folder, []).append((message, index, time_ms, text))

    def _text(self, record: Any) -> str:
        try:
            data = self._encode(record)
            if self._decode(data) != record:
                raise TypeError(
                    "JSON does not give it back as it is (tuples, NaN, keys that are no str, dates): map it to lists, "
                    "dicts, str and numbers before the archive"
                )
        except Exception as error:
            raise StepFailed(self._name, record) from error
        return data.decode()

    def _flush(self, name: str) -> None:
        """One file for each hour."""
        arrow = self._arrow
        kinds = (arrow.string(), arrow.string(), arrow.int64(), arrow.string())
        for folder, rows in self._hours.items():
            columns = [arrow.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
            path = self._staging.file(f"{folder}/{name}.parquet")
            arrow.parquet.write_table(arrow.table(columns, names=list(ARCHIVE_COLUMNS)), path, compression="zstd")
        self._hours = {}

    def _finish(self) -> None:
        """Whoever reads an archive reads what is there."""

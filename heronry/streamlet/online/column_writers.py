"""Writer of archives, which buffers the records between two checkpoints in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from heronry.streamlet.columns import times_of
from heronry.streamlet.endpoints import ArchiveSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.writers import StagedWriter, TaskOf
from heronry.streamlet.program import EventTime, SinkStep
from heronry.streamlet.reading import ARCHIVE_COLUMNS, parquet_library
from heronry.streamlet.windows import HOUR_MS, EventTimeError, hour_folder


class ArchiveWriter(StagedWriter):
    """Writer of columns by event hour, buffered from one checkpoint to the next. See ``endpoints.ArchiveSink``."""

    def __init__(self, step: SinkStep, sink: ArchiveSink, task: TaskOf) -> None:
        super().__init__(step.name, Path(sink.path), task)
        self._arrow = parquet_library()
        self._time = None if sink.event_time is None else EventTime(sink.event_time, sink.unit)
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode
        self._hours: dict[str, list[tuple[str, str, int, str]]] = {}

    def encode(self, block: Block) -> list[tuple[str, str, int, str]]:
        """Return the records as rows.

        Raises:
            StepFailed: A record has no valid event time, or does not survive a round trip through JSON.
        """
        times = block.times_ms if self._time is None else times_of(self._name, self._time, block.records)
        assert times is not None
        assert block.ids is not None
        texts = list(map(self._text, block.records))
        for hour in {time_ms // HOUR_MS for time_ms in times}:
            try:
                hour_folder(hour * HOUR_MS)
            except EventTimeError as error:
                first = next(n for n, time_ms in enumerate(times) if time_ms // HOUR_MS == hour)
                raise StepFailed(self._name, block.records[first]) from error
        return [(*named, time_ms, text) for named, time_ms, text in zip(block.ids, times, texts, strict=True)]

    def take(self, rows: list[tuple[str, str, int, str]]) -> None:
        """Keep the rows, by hour, for the next checkpoint."""
        folders: dict[int, str] = {}
        for message, index, time_ms, text in rows:
            hour = time_ms // HOUR_MS
            folder = folders.get(hour)
            if folder is None:
                folder = folders[hour] = hour_folder(time_ms)
            self._hours.setdefault(folder, []).append((message, index, time_ms, text))

    def _text(self, record: Any) -> str:
        try:
            data = self._encode(record)
            if self._decode(data) != record:
                raise TypeError(
                    "JSON does not round-trip it (tuples, NaN, keys other than str, dates): map it to lists, dicts, "
                    "str and numbers before the archive"
                )
        except Exception as error:
            raise StepFailed(self._name, record) from error
        return data.decode()

    def _flush(self, name: str) -> None:
        """Write one file for each hour."""
        arrow = self._arrow
        kinds = (arrow.string(), arrow.string(), arrow.int64(), arrow.string())
        for folder, rows in self._hours.items():
            columns = [arrow.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
            path = self._staging.file(f"{folder}/{name}.parquet")
            arrow.parquet.write_table(arrow.table(columns, names=list(ARCHIVE_COLUMNS)), path, compression="zstd")
        self._hours = {}

    def _finish(self) -> None:
        """Do nothing: an archive needs no final mark, because readers take the files that are there."""

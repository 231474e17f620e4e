"""Compressed files of lines on Spark: a file is one split, and Python reads it, as online (``streamlet/packed.py``).

Theory of operation. Hadoop has codecs for some endings, reads what it has none for as it is, and says of none what is
wrong with a file that was cut off. So compressed files are read in the workers by our own reader: the driver deals them
out to tasks by size, each row is a line and the file it is from. On other file systems than the local one, which Python
does not know, Hadoop reads .gz, and everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from data_pipeline.core.failure import failed
from data_pipeline.shell.tasks import Shipped
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.packed import ReadError
from heronry.streamlet.reading import LineReader

TASKS_PER_CORE = 4


def unpacked(spark: SparkSession, step: str, files: Sequence[Path]) -> DataFrame:
    """The lines of files: value (the line's bytes), file, block_start (always 0), number (of the line, from 0)."""
    dealt = _dealt(files, TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    task = UnpackTask(step, tuple(dealt))
    numbers = spark.range(0, len(dealt), 1, len(dealt))
    return numbers.mapInArrow(Shipped(task), "value string, file string, block_start long, number long")


def _dealt(files: Sequence[Path], most: int) -> list[tuple[str, ...]]:
    """The files for each task: the largest first, always to the one that has least."""
    tasks: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(len(files), most))]
    for size, name in sorted(((file.stat().st_size, str(file)) for file in files), reverse=True):
        tasks.sort(key=lambda task: task[0])
        had, names = tasks[0]
        tasks[0] = (had + size + 1, [*names, name])
    return [tuple(names) for _, names in tasks]


@dataclass(frozen=True)
class UnpackTask:
    """``files[i]`` are what the task with the number i reads."""

    step: str
    files: tuple[tuple[str, ...], ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """``mapInArrow``'s function."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for name in self.files[number]:
                    yield from self._lines(name)

    def _lines(self, name: str) -> Iterator[Any]:
        import pyarrow as pa

        reader = LineReader(FileSource(name, "text"), "")
        try:
            while (piece := reader.read()) is not None:
                lines = piece.data.split(b"\n")
                if not lines[-1]:
                    lines.pop()
                values = pa.array(lines, pa.binary()).view(pa.string())  # bytes, as Spark's own strings of files
                numbers = pa.array(range(piece.first, piece.first + len(lines)), pa.int64())
                columns = [
                    values,
                    pa.repeat(name, len(lines)),
                    pa.repeat(pa.scalar(0, pa.int64()), len(lines)),
                    numbers,
                ]
                yield pa.RecordBatch.from_arrays(columns, names=["value", "file", "block_start", "number"])
        except ReadError as error:
            raise failed(self.step, "(the whole file)", ReadError(error.reason), name) from error
        finally:
            reader.close()

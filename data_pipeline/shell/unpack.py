"""Files of lines that Spark does not read, on Spark: a file is one split, and Python reads it, as online.

Theory of operation. Hadoop has codecs for some endings, reads what it has none for as it is, and says of none what is
wrong with a file that was cut off. So compressed files are read in the workers by our own reader
(``streamlet/packed.py``): the driver deals them out to tasks by size, each row is a line and the file it is from. On
other file systems than the local one that Hadoop knows, it reads .gz, and everything else is refused by name; those
that it does not know are read here, too (url_files.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession

from data_pipeline.core.failure import ServerFailed, failed
from data_pipeline.shell.tasks import Shipped
from heronry.connect.settings import ConnectError
from heronry.streamlet.endpoints import FileSource, is_url
from heronry.streamlet.packed import BYTE_ORDER_MARK, ReadError, plain_of
from heronry.streamlet.reading import LineReader
from heronry.streamlet.trees import Tree, tree_of, whole_name

TASKS_PER_CORE = 4


@dataclass(frozen=True)
class Part:
    """A file of a source, of this version, where there are versions."""

    source: FileSource[Any]
    name: str
    size: int
    version: str = ""

    @property
    def told(self) -> str:
        """Its whole name, as Spark writes those of its files: quoted if it is a URL."""
        name = whole_name(self.source, self.name)
        return quote(name, safe=":/@=") if is_url(name) else name

    def first_line(self) -> bytes:
        """Without a byte order mark. Raises OSError, ReadError, ConnectError."""
        with closing(tree_of(self.source)) as tree:
            opened = tree.open(self.name, self.version)
            with plain_of(opened, whole_name(self.source, self.name)) as file:
                return file.readline().removeprefix(BYTE_ORDER_MARK)


def unpacked(spark: SparkSession, step: str, parts: Sequence[Part]) -> DataFrame:
    """The lines of files: value (the line's bytes), file, block_start (always 0), number (of the line, from 0)."""
    dealt = _dealt(parts, TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    task = UnpackTask(step, tuple(dealt))
    numbers = spark.range(0, len(dealt), 1, len(dealt))
    return numbers.mapInArrow(Shipped(task), "value string, file string, block_start long, number long")


def _dealt(parts: Sequence[Part], most: int) -> list[tuple[Part, ...]]:
    """The files for each task: the largest first, always to the one that has least."""
    tasks: list[tuple[int, list[Part]]] = [(0, []) for _ in range(min(len(parts), most))]
    for part in sorted(parts, key=lambda part: (part.size, part.told), reverse=True):
        tasks.sort(key=lambda task: task[0])
        had, dealt = tasks[0]
        tasks[0] = (had + part.size + 1, [*dealt, part])
    return [tuple(dealt) for _, dealt in tasks]


@dataclass(frozen=True)
class UnpackTask:
    """``parts[i]`` are what the task with the number i reads."""

    step: str
    parts: tuple[tuple[Part, ...], ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """``mapInArrow``'s function."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                tree: Tree | None = None
                for part in self.parts[number]:
                    try:
                        if tree is None or not is_url(part.source.path):
                            tree = tree_of(part.source)  # of a URL one for all of its files
                        yield from self._lines(part, tree)
                    except ConnectError as error:
                        raise ServerFailed(self.step, str(error)) from None

    def _lines(self, part: Part, tree: Tree) -> Iterator[Any]:
        import pyarrow as pa

        told = part.told
        try:
            with closing(LineReader(part.source, part.name, tree=tree, version=part.version)) as reader:
                while (piece := reader.read()) is not None:
                    lines = piece.data.split(b"\n")
                    if not lines[-1]:
                        lines.pop()
                    values = pa.array(lines, pa.binary()).view(pa.string())  # bytes, as Spark's own strings of files
                    numbers = pa.array(range(piece.first, piece.first + len(lines)), pa.int64())
                    columns = [
                        values,
                        pa.repeat(told, len(lines)),
                        pa.repeat(pa.scalar(0, pa.int64()), len(lines)),
                        numbers,
                    ]
                    yield pa.RecordBatch.from_arrays(columns, names=["value", "file", "block_start", "number"])
            if part.version:
                tree.check(part.name, part.version)
        except ReadError as error:
            file = whole_name(part.source, part.name)
            raise failed(self.step, "(the whole file)", ReadError(error.reason), file) from error

"""Files that Spark does not read itself: a file is one split, and Python reads it, as in the online engine.

Hadoop has codecs for some file name suffixes, reads all other files as they are, and does not report truncated files.
Compressed files are therefore read in the workers by our own reader (``streamlet/packed.py``). The driver distributes
them to tasks by size, and each row is a line and the file it is from. On other file systems that Hadoop knows, Hadoop
reads .gz files, and all other compressed files are rejected by name. File systems that Hadoop does not know are also
read here (url_files.py).

Parquet files that Spark reads otherwise than the other engines (footers.py) are rows of whole pieces, as Arrow streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession

from data_pipeline.core.failure import ServerFailed, failed
from data_pipeline.shell.tasks import ARROW_COLUMN, Shipped
from heronry.connect.settings import ConnectError
from heronry.streamlet.endpoints import COLUMNAR, FileSource, is_url
from heronry.streamlet.packed import BYTE_ORDER_MARK, ReadError, open_decompressed
from heronry.streamlet.reading import ColumnReader, LineReader
from heronry.streamlet.trees import FileTree, tree_of, whole_name

TASKS_PER_CORE = 4
FILE_COLUMN = "__heronry_file"  # in addition to the columns of a user's table


@dataclass(frozen=True)
class Part:
    """File of a source, in this version where files are versioned."""

    source: FileSource[Any]
    name: str
    size: int
    version: str = ""

    @property
    def spark_path(self) -> str:
        """Full name as Spark writes the names of its files: quoted if it is a URL."""
        name = whole_name(self.source, self.name)
        return quote(name, safe=":/@=") if is_url(name) else name

    def first_line(self) -> bytes:
        """Return the first line without a byte order mark. Raises OSError, ReadError or ConnectError."""
        with closing(tree_of(self.source)) as tree:
            opened = tree.open(self.name, self.version)
            with open_decompressed(opened, whole_name(self.source, self.name)) as file:
                return file.readline().removeprefix(BYTE_ORDER_MARK)


def unpacked(spark: SparkSession, step: str, parts: Sequence[Part]) -> DataFrame:
    """Return the lines of files: value (bytes), file, block_start (always 0), number (of the line, from 0).

    For columnar files, return their pieces: ARROW_COLUMN (an Arrow stream), FILE_COLUMN.
    """
    dealt = _dealt(parts, TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    task = UnpackTask(step, tuple(dealt))
    numbers = spark.range(0, len(dealt), 1, len(dealt))
    if parts[0].source.format in COLUMNAR:
        return numbers.mapInArrow(Shipped(task), f"{ARROW_COLUMN} binary, {FILE_COLUMN} string")
    return numbers.mapInArrow(Shipped(task), "value string, file string, block_start long, number long")


def _dealt(parts: Sequence[Part], most: int) -> list[tuple[Part, ...]]:
    """Distribute the files to tasks: the largest first, each to the task with the least bytes."""
    tasks: list[tuple[int, list[Part]]] = [(0, []) for _ in range(min(len(parts), most))]
    for part in sorted(parts, key=lambda part: (part.size, part.spark_path), reverse=True):
        tasks.sort(key=lambda task: task[0])
        had, dealt = tasks[0]
        tasks[0] = (had + part.size + 1, [*dealt, part])
    return [tuple(dealt) for _, dealt in tasks]


@dataclass(frozen=True)
class UnpackTask:
    """Task that reads files; ``parts[i]`` are the files for the number i."""

    step: str
    parts: tuple[tuple[Part, ...], ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the files of the numbers in the batches; the function for ``mapInArrow``."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                tree: FileTree | None = None
                for part in self.parts[number]:
                    try:
                        if tree is None or not is_url(part.source.path):
                            tree = tree_of(part.source)  # one tree serves all files of a URL
                        yield from (self._pieces if part.source.format in COLUMNAR else self._lines)(part, tree)
                    except ConnectError as error:
                        raise ServerFailed(self.step, str(error)) from None

    def _pieces(self, part: Part, tree: FileTree) -> Iterator[Any]:
        import pyarrow as pa

        try:
            with closing(ColumnReader(part.source, part.name, tree=tree)) as reader:
                while (piece := reader.read()) is not None:
                    columns = [pa.array([piece.data], pa.binary()), pa.array([part.spark_path])]
                    yield pa.RecordBatch.from_arrays(columns, names=[ARROW_COLUMN, FILE_COLUMN])
        except ReadError as error:
            file = whole_name(part.source, part.name)
            raise failed(self.step, "(the whole file)", ReadError(error.reason), file) from error

    def _lines(self, part: Part, tree: FileTree) -> Iterator[Any]:
        import pyarrow as pa

        path = part.spark_path
        try:
            with closing(LineReader(part.source, part.name, tree=tree, version=part.version)) as reader:
                while (piece := reader.read()) is not None:
                    lines = piece.data.split(b"\n")
                    if not lines[-1]:
                        lines.pop()
                    values = pa.array(lines, pa.binary()).view(pa.string())  # bytes, as in Spark's own strings
                    numbers = pa.array(range(piece.first, piece.first + len(lines)), pa.int64())
                    columns = [
                        values,
                        pa.repeat(path, len(lines)),
                        pa.repeat(pa.scalar(0, pa.int64()), len(lines)),
                        numbers,
                    ]
                    yield pa.RecordBatch.from_arrays(columns, names=["value", "file", "block_start", "number"])
            if part.version:
                tree.check(part.name, part.version)
        except ReadError as error:
            file = whole_name(part.source, part.name)
            raise failed(self.step, "(the whole file)", ReadError(error.reason), file) from error

"""Sources as DataFrames of raw rows: Spark finds, splits and reads the files; workers decode the rows.

Lines arrive as Spark's strings, which are the bytes of the file. For CSV, the file and the offset of the block come
with them, to recognize the header. Parquet and ORC arrive as their columns, and an archive without rows whose message
id and index occur twice. Hidden names (``.``, ``_``) are not read, by Spark's rule and ours. For compressed files see
``unpack.py``.

Spark starts a job to learn the columns of a Parquet source, and another one to merge those of many files. Both cost
more than a small query. The footers of a few local files are read here in a millisecond. If all have the same columns,
merging is unnecessary, and if every column is of a plain type, Spark need not inspect the files at all. Files written
by Spark contain its own schema. Other types (nested, bytes, decimals, times, unsigned numbers) are left to Spark.

Some files Spark reads otherwise than the other engines do, or not at all: files whose columns differ, and those with
columns of certain types, names or compression. Python reads these, as in the other engines (``files_for_python``).
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from data_pipeline.core.combine import ASIDE
from data_pipeline.core.decode import plain_path, shipped_name
from data_pipeline.core.plan import Scan
from data_pipeline.shell.output import local_path, place_of, spark_url
from data_pipeline.shell.servers import Ranges
from data_pipeline.shell.unpack import FILE_COLUMN, Part, unpacked
from data_pipeline.shell.url_files import is_foreign, parts_of
from heron_runtime.failures import NotFound, listing
from heronry.connect.polling import Range
from heronry.streamlet.endpoints import COLUMNAR, FileSource, SequenceSource
from heronry.streamlet.packed import BYTE_ORDER_MARK, ReadError, is_packed, open_decompressed, refuse_unreadable
from heronry.streamlet.reading import ARCHIVE_COLUMNS, Leaves, local_files, refuse_times
from heronry.streamlet.servers import ServerSource
from heronry.streamlet.trees import is_hidden
from heronry.streamlet.windows import HOUR_MS

_PATTERN = re.compile(r"[\[\]{}*?\\]")
_HOUR = re.compile(r"date=(\d{4}-\d\d-\d\d)/hour=(\d\d)$")


class InputNotFound(NotFound):
    """Input path without any input."""


class Tables:
    """Raw rows of the sources of one job, each looked up once, as listing files and merging schemas takes time."""

    def __init__(
        self, spark: SparkSession, *, numbered: bool = False, only: Mapping[str, Sequence[str]] | None = None,
        made: Mapping[str, DataFrame] | None = None, ranges: Ranges | None = None,
        parts: Mapping[str, DataFrame] | None = None,
    ) -> None:  # fmt: skip
        """Prepare the lookup of tables.

        Args:
            spark: The session.
            numbered: Number the lines of local files, with each file as one split.
            only: Step to its files, as Hadoop writes them; other files are not read.
            made: Step to rows that scans and their units have already made.
            ranges: Step to the ranges that are read of servers.
            parts: Reducer to its parts (``PartsTask``), added up.
        """
        self._spark = spark
        self._ranges = ranges or {}
        self.made, self.parts = made or {}, parts or {}
        self._numbered = numbered
        self._only = only
        self._tables: dict[tuple[FileSource[Any], int | None, int | None] | str, _Table | None] = {}

    def read(self, scan: Scan, *, named: bool = False) -> DataFrame:
        """Return the raw rows of a source. Raises InputNotFound.

        With ``named``, they include the file of each line or row of columns.
        """
        source = scan.source
        if isinstance(source, SequenceSource):
            assert source.stop is not None
            return self._spark.range(source.start, source.stop)
        if isinstance(source, ServerSource):
            count = len(self.ranges(scan))
            return self._spark.range(0, count, 1, max(count, 1))
        table = self._table(scan, source)
        if table is None:
            return _nothing(self._spark, source)
        if not table.packed:
            return _shaped(table.rows, source, named)
        lines = unpacked(self._spark, scan.step, table.packed)
        if source.format in COLUMNAR:
            return lines
        if self._numbered:
            return lines
        lines = lines.drop("number") if source.format == "csv" else lines.drop("block_start", "number")
        return lines if table.rows is None else _shaped(table.rows, source, True).unionByName(lines)

    def ranges(self, scan: Scan) -> tuple[Range, ...]:
        """Return the ranges that are read of a server; empty for other sources."""
        if not isinstance(scan.source, ServerSource):
            return ()
        return self._ranges[scan.step] if self._only is None else self._ranges.get(scan.step, ())

    def has_letters(self) -> bool:
        """Return True if records were put aside in the rows already made."""
        return any(not rows.where(sql.col("tag") == ASIDE).isEmpty() for rows in self.made.values())

    def headers(self, scan: Scan) -> tuple[tuple[str, bytes], ...]:
        """Return the first line of every file of a CSV source, by its plain path; empty for other sources."""
        source = scan.source
        table = self._table(scan, source) if isinstance(source, FileSource) and source.format == "csv" else None
        if table is None:
            return ()
        names = table.rows.inputFiles() if table.rows is not None else ()
        packed = [(plain_path(part.spark_path), part.first_line()) for part in table.packed]
        return (*packed, *((plain_path(name), _first_line(self._spark, name)) for name in names))

    def columns(self, scan: Scan) -> dict[str, str]:
        """Return the names and Spark types of the columns in a source's files. Raises InputNotFound."""
        assert isinstance(scan.source, FileSource)
        table = self._table(scan, scan.source)
        if table is None or table.rows is None:
            return {}
        if table.columns is None:
            table.columns = table.rows.schema
        return {field.name: field.dataType.simpleString() for field in table.columns.fields}

    def _table(self, scan: Scan, source: FileSource[Any]) -> _Table | None:
        place = (source, scan.from_ms, scan.to_ms) if self._only is None else scan.step
        if place not in self._tables:
            if self._only is None and is_foreign(self._spark, source):
                packed_parts = _parts(scan, source)
                self._tables[place] = _Table(None, packed=packed_parts) if packed_parts else None
                return self._tables[place]
            only = None if self._only is None else self._only.get(scan.step, ())
            paths = _paths(self._spark, source, scan) if only is None else seen_files(source, only)
            self._tables[place] = _open(self._spark, scan, source, paths, self._numbered)
        return self._tables[place]


@dataclass
class _Table:
    """Files of a source as Spark reads them.

    Attributes:
        rows: Rows of the files that Spark reads; None if there are none.
        columns: Columns of Parquet, once they are known.
        packed: Files that Spark does not read.
    """

    rows: DataFrame | None
    columns: StructType | None = None
    packed: Sequence[Part] = ()


def _parts(scan: Scan, source: FileSource[Any]) -> list[Part]:
    try:
        return parts_of(scan.step, source)
    except FileNotFoundError:
        raise InputNotFound(f"step {scan.step!r}: there is nothing to read at {source.path}") from None


def _open(spark: SparkSession, scan: Scan, source: FileSource[Any], paths: list[str], numbered: bool) -> _Table | None:
    """Return the files of a source at these paths; None if there are none."""
    if not paths:
        return None
    reader = spark.read.option("recursiveFileLookup", "true")
    try:
        if source.format == "archive":
            return _Table(reader.parquet(*map(literal, paths)))
        if source.format == "orc":
            return _orc(spark, scan.step, paths)
        if source.format != "parquet":
            return _lines(spark, scan.step, source, paths, numbered)
        if by_python := files_for_python(paths):
            parts = [Part(FileSource(str(file), "parquet"), "", file.stat().st_size) for file in by_python]
            return _Table(None, packed=parts)
        alike, columns = footers(paths)
        reader = reader.option("mergeSchema", "false" if alike else "true")
        reader = reader.schema(columns) if columns else reader
        return _Table(reader.parquet(*map(literal, paths)), columns)
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            raise InputNotFound(f"step {scan.step!r}: there is nothing to read at {source.path}") from error
        raise


def _orc(spark: SparkSession, step: str, paths: list[str]) -> _Table:
    """Return the table of ORC files. Raises ReadError for columns that no engine reads."""
    reader = spark.read.option("recursiveFileLookup", "true").option("mergeSchema", "true")
    rows = reader.orc([*map(literal, paths)])
    refuse_times(((field.name, _leaves_of(field.dataType)) for field in rows.schema.fields), f"step {step!r}")
    return _Table(rows)


def _leaves_of(kind: Any) -> Leaves:
    """Return the leaves of a Spark type, as ``heronry.streamlet.reading.leaves_of`` does."""
    parts = [field.dataType for field in kind.fields] if isinstance(kind, StructType) else []
    parts += [getattr(kind, part) for part in ("elementType", "keyType", "valueType") if hasattr(kind, part)]
    return ["nested", *(leaf for part in parts for leaf in _leaves_of(part))] if parts else [kind.simpleString()]


def _lines(spark: SparkSession, step: str, source: FileSource[Any], paths: list[str], numbered: bool) -> _Table:
    """Return the table of files of lines: Spark reads plain files whose lines need not be numbered.

    Raises ReadError for files that cannot be decompressed.
    """
    places = [place for path in paths if (place := place_of(path)) is not None]
    if len(places) < len(paths):
        rows = lines_of(spark, paths)
        refused = [plain_path(name) for name in rows.inputFiles() if is_packed(name) and not name.endswith(".gz")]
        refuse_unreadable(rows.inputFiles())
        if refused:
            raise ReadError(f"step {step!r}: {listing(refused[:5])}: of compressed files Spark reads .gz alone there")
        return _Table(rows)
    if any(not place.exists() for place in places):
        return _Table(lines_of(spark, paths))  # Spark reports the missing file
    refuse_unreadable(map(str, places))
    packed = [file for file in places if numbered or is_packed(file)]
    if not packed:
        return _Table(lines_of(spark, paths))
    plain = [spark_url(str(file)) for file in places if not (numbered or is_packed(file))]
    parts = [Part(FileSource(str(file), "text"), "", file.stat().st_size) for file in packed]
    return _Table(lines_of(spark, plain) if plain else None, packed=parts)


def lines_of(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Return the lines of all files below these paths."""
    return spark.read.option("recursiveFileLookup", "true").option("lineSep", "\n").text([*map(literal, paths)])


def for_python(rows: DataFrame) -> DataFrame:
    """Return the rows with column names that a Python stage accepts."""
    names = list(map(shipped_name, rows.columns))
    return rows if names == rows.columns else rows.toDF(*names)


def literal(path: str) -> str:
    """Return a path escaped for Spark, which takes some characters for patterns."""
    return _PATTERN.sub(r"\\\g<0>", path)


def _shaped(rows: DataFrame, source: FileSource[Any], named: bool) -> DataFrame:
    file = "_metadata.file_path AS file"
    if source.format == "archive":
        return rows.selectExpr(*ARCHIVE_COLUMNS, file).dropDuplicates(["message_id", "index"])
    if source.format == "csv":  # CSV files have headers
        return rows.selectExpr("value", file, "_metadata.file_block_start AS block_start")
    if not named:
        return rows
    if source.format in COLUMNAR:
        return rows.selectExpr("*", f"_metadata.file_path AS {FILE_COLUMN}")
    return rows.selectExpr("value", file)


def _nothing(spark: SparkSession, source: FileSource[Any]) -> DataFrame:
    """Return an empty table in the shape of the source's rows."""
    names = {"archive": "message_id string, index string, event_time long, value string, file string"}
    shape = names.get(source.format, "value string, file string, block_start long")
    return spark.createDataFrame([], f"{FILE_COLUMN} string" if source.format in COLUMNAR else shape)


def _paths(spark: SparkSession, source: FileSource[Any], scan: Scan) -> list[str]:
    """Return the paths of the source, limited to the hour folders that the range of event time needs."""
    root, local = spark_url(source.path), local_path(source.path)
    if local is not None:
        try:
            files = local_files(replace(source, path=str(local)))
        except FileNotFoundError:
            raise InputNotFound(f"step {scan.step!r}: there is nothing to read at {source.path}") from None
        by_folder = {file: str(file.parent) for file in files}
        wanted = _hours(source, scan, sorted({*by_folder.values()}))
        return [spark_url(str(file)) for file, folder in by_folder.items() if wanted is None or folder in wanted]
    wanted = _hours(source, scan, _folders(spark, root)) if _is_bounded(source, scan) else None
    return [root] if wanted is None else wanted


def seen_files(source: FileSource[Any], paths: Sequence[str]) -> list[str]:
    """Return the files that every engine reads, of those that Spark has listed below a source's path."""
    root = place_of(spark_url(source.path))
    if root is None:
        return list(paths)
    seen = []
    for path in paths:
        place = place_of(path)
        below = place.relative_to(root).parts if place is not None and place.is_relative_to(root) else ()
        if place is not None and place.is_file() and not any(map(is_hidden, below)) and not _has_link(root, below):
            seen.append(path)
    return seen


def _has_link(root: Path, below: tuple[str, ...]) -> bool:
    """Return True if one of the folders in between is a symbolic link."""
    return any(root.joinpath(*below[:depth]).is_symlink() for depth in range(1, len(below)))


def _is_bounded(source: FileSource[Any], scan: Scan) -> bool:
    return source.by_hour and not (scan.from_ms is None and scan.to_ms is None)


def _hours(source: FileSource[Any], scan: Scan, folders: list[str]) -> list[str] | None:
    """Return the folders that a range of event time needs; None for all, with the range applied to each record."""
    hours = [(_hour_ms(folder), folder) for folder in folders if _HOUR.search(folder)]
    if not hours or not _is_bounded(source, scan):
        return None
    first = None if scan.from_ms is None else scan.from_ms - scan.from_ms % HOUR_MS
    return [
        folder
        for start_ms, folder in hours
        if (first is None or start_ms >= first) and (scan.to_ms is None or start_ms < scan.to_ms)
    ]


def _hour_ms(folder: str) -> int:
    match = _HOUR.search(folder)
    assert match is not None
    hour = dt.datetime.fromisoformat(f"{match.group(1)}T{match.group(2)}:00:00+00:00")
    return int(hour.timestamp()) * 1000


def _folders(spark: SparkSession, root: str) -> list[str]:
    """Return the hour folders below a path, on any file system."""
    path, files = file_system(spark, f"{literal(root.rstrip('/'))}/date=*/hour=*")
    statuses = files.globStatus(path) or []
    names = [status.getPath().toString() for status in statuses if status.isDirectory()]
    return sorted(name for name in names if _HOUR.search(name))


def file_system(spark: SparkSession, url: str) -> tuple[Any, Any]:
    """Return Hadoop's path and file system of a URL."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(url)
    return path, path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def _first_line(spark: SparkSession, name: str) -> bytes:
    local = local_path(name)
    if local is not None:
        with open_decompressed(local.open("rb"), str(local)) as file:
            return file.readline().removeprefix(BYTE_ORDER_MARK)
    path, files = file_system(spark, name)
    jvm: Any = spark._jvm
    stream = files.open(path)
    try:
        codec = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(files.getConf()).getCodec(path)
        plain = stream if codec is None else codec.createInputStream(stream)
        reader = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(plain, "UTF-8"))
        return (reader.readLine() or "").encode().removeprefix(BYTE_ORDER_MARK)
    finally:
        stream.close()


MAX_FOOTERS = 64
_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
_UNKNOWN_CODECS = {"BROTLI", "LZO"}  # Spark has no library for them
#: (physical type, logical type) → Spark type.
_PLAIN: dict[tuple[str, str], DataType] = {
    ("BYTE_ARRAY", "STRING"): StringType(), ("BOOLEAN", "NONE"): BooleanType(),
    ("INT64", "NONE"): LongType(), ("INT32", "NONE"): IntegerType(), ("INT32", "DATE"): DateType(),
    ("DOUBLE", "NONE"): DoubleType(), ("FLOAT", "NONE"): FloatType(),
}  # fmt: skip


class Footers(NamedTuple):
    """Result of reading footers.

    Attributes:
        alike: True if every file is known to have the same columns.
        columns: The columns that Spark would find, if they are known.
    """

    alike: bool
    columns: StructType | None = None


def files_for_python(paths: list[str]) -> list[Path]:
    """Return the local Parquet files if Python has to read them; empty if Spark reads the same records."""
    import pyarrow.parquet as pq

    files = [place for path in paths if (place := place_of(path)) is not None and place.is_file()]
    if len(files) < len(paths):
        return []
    first = None
    try:
        for file in files:
            with pq.ParquetFile(file) as opened:
                columns = [(field.name, field.type) for field in opened.schema_arrow]
                first = first or columns
                if columns != first or _is_awkward(columns) or _packed_as(opened.metadata) & _UNKNOWN_CODECS:
                    return files
    except (OSError, ValueError):  # Spark reports the error
        return []
    return []


def _is_awkward(columns: list[tuple[str, Any]]) -> bool:
    names = {name.lower() for name, _ in columns}  # Spark ignores case
    return len(names) < len(columns) or "_metadata" in names or not all(_is_common(of) for _, of in columns)


def _is_common(of: Any) -> bool:
    """Return True for a type whose values are the same in records that Spark and Python read."""
    import pyarrow as pa

    kind = pa.types
    if of.num_fields:
        return all(_is_common(of.field(place).type) for place in range(of.num_fields))
    if kind.is_timestamp(of):
        return bool(of.unit != "ns")
    if kind.is_dictionary(of):
        return _is_common(of.value_type)
    refused = (kind.is_duration, kind.is_time, kind.is_float16, kind.is_null, kind.is_uint64, kind.is_decimal256)
    return not any(refuses(of) for refuses in refused)


def _packed_as(footer: Any) -> set[str]:
    if not footer.num_row_groups:
        return set()
    group = footer.row_group(0)
    return {group.column(number).compression for number in range(group.num_columns)}


def footers(paths: list[str]) -> Footers:
    """Return the columns in the footers of all files below these paths.

    Footers on other file systems, or of more than MAX_FOOTERS files, are not read.
    """
    import pyarrow.parquet as pq

    if len(paths) > MAX_FOOTERS:
        return Footers(False)
    files: list[Path] = []
    for path in paths:
        place = place_of(path)
        if place is None:
            return Footers(False)
        entries = [place] if place.is_file() else list(islice(place.rglob("*"), MAX_FOOTERS + 1))
        if len(entries) > MAX_FOOTERS:
            return Footers(False)
        files += [file for file in entries if file.is_file() and not file.name.startswith((".", "_"))]
    if not 0 < len(files) <= MAX_FOOTERS:
        return Footers(False)
    try:
        first, *others = [pq.read_metadata(file) for file in files]
    except (OSError, ValueError):  # Spark reports the error
        return Footers(False)
    if any(other.schema != first.schema or other.metadata != first.metadata for other in others):
        return Footers(False)
    return Footers(True, _columns(first))


def _columns(footer: Any) -> StructType | None:
    known = (footer.metadata or {}).get(_OF_SPARK)
    if known is not None:
        try:
            return StructType.fromJson(json.loads(known))
        except (ValueError, KeyError, TypeError, ImportError, AttributeError):  # types unknown to this Spark
            return None
    schema = StructType()
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        kind = _PLAIN.get((column.physical_type, column.logical_type.type))
        legacy = column.converted_type  # from writers without logical types
        if kind is None or column.max_repetition_level or "." in column.path or legacy not in ("NONE", "UTF8", "DATE"):
            return None
        schema.add(column.name, kind)
    return schema

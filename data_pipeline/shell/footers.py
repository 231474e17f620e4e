"""Columns of local Parquet files, read from their footers without Spark.

Spark starts a job to learn the columns of a Parquet source, and another one to merge those of many files. Both cost
more than a small query. The footers of a few local files are read here in a millisecond. If all have the same columns,
merging is unnecessary, and if every column is of a plain type, Spark need not inspect the files at all. Files written
by Spark contain its own schema. Other types (nested, bytes, decimals, times, unsigned numbers) are left to Spark.

Some files Spark reads otherwise than the other engines do, or not at all: files whose columns differ, and those with
columns of certain types, names or compression. Python reads these, as in the other engines (``files_for_python``).
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

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

from data_pipeline.shell.output import place_of

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
        found = [place] if place.is_file() else list(islice(place.rglob("*"), MAX_FOOTERS + 1))
        if len(found) > MAX_FOOTERS:
            return Footers(False)
        files += [file for file in found if file.is_file() and not file.name.startswith((".", "_"))]
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
    found = StructType()
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        kind = _PLAIN.get((column.physical_type, column.logical_type.type))
        legacy = column.converted_type  # from writers without logical types
        if kind is None or column.max_repetition_level or "." in column.path or legacy not in ("NONE", "UTF8", "DATE"):
            return None
        found.add(column.name, kind)
    return found

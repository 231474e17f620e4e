r"""Typed columns that SQL reads from a source, either as the files have them or after a schema (``with_schema``).

There are three ways to columns. Text, Parquet and ORC have them. If all values of a file's columns fit the types of a
schema, Catalyst performs the remaining check: that required fields are not None. For JSON, CSV, and schemas that
convert values, a ``mapInArrow`` decodes the records and applies the schema by the Python rule of all engines. It emits
only the columns that are read.

A record that does not fit ends the job with its description, from SQL as from Python. Records to put aside are found
when the job runs again, in Python alone.

Lines of text equal those of the decoder of all engines (``heronry.streamlet.decoding``). Python puts one U+FFFD for
each *maximal subpart* of invalid UTF-8, where an encoded surrogate counts as three. The decoders of Spark and Java put
other numbers. Invalid lines, which are rare, are therefore repaired by three replacements over their bytes, with each
byte as one character (ISO 8859-1). A mark is put after every multi-byte sequence and in place of every invalid part.
Then marks after sequences are removed, and the others become U+FFFD. The expressions do not repeat without bound, so a
long line cannot exhaust Java's stack. Only one ``\r`` is removed from the end of a line. ``$`` is not used, as in Java
it also matches before U+2028, U+0085 and a second ``\r``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.columns import INTEGERS, SCHEMA_TYPES
from data_pipeline.core.decode import Decoding
from data_pipeline.core.failure import MARKER, failed
from data_pipeline.core.plan import Scan, Table
from data_pipeline.shell import scan as scans
from data_pipeline.shell.tasks import Shipped, columns_of
from data_pipeline.shell.unpack import FILE_COLUMN
from heronry.streamlet.endpoints import COLUMNAR, FileSource
from heronry.streamlet.extract import Extractor, Field
from heronry.streamlet.program import EventTime, ReduceStep, SchemaStep
from heronry.streamlet.windows import MS_PER_UNIT, Window

FLOATS = ("float", "double")
TIME_COLUMN = "__heronry_time"  # event time of the source in milliseconds, in addition to the columns of a schema
# Range of Python's types; a value outside of it has no Python equivalent.
_RANGES = {
    "date": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
    "timestamp": ("TIMESTAMP'0001-01-01 00:00:00Z'", "TIMESTAMP'9999-12-31 23:59:59.999999Z'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
}


@dataclass(frozen=True)
class Columns:
    """Columns that a reducer reads from a source.

    Attributes:
        rows: The rows.
        types: Column types as the reducer sees them.
        raw: Column types of the rows.
        alone: The schema that Catalyst checks.
        is_whole: True if the rows are complete and records are still to be selected by time.
    """

    rows: DataFrame
    types: dict[str, str]
    raw: dict[str, str]
    alone: SchemaStep | None = None
    is_whole: bool = True

    @staticmethod
    def of(spark: SparkSession, tables: scans.Tables, scan: Scan, table: Table, step: ReduceStep) -> Columns:
        """Return the columns that the reducer reads of a table, with FILE_COLUMN if an error may name a record."""
        source = scan.source
        assert isinstance(source, FileSource)
        bounded = scan.from_ms is not None or scan.to_ms is not None
        if table.schemas and not table.alone:
            return _made(tables, scan, table, step)
        named = bounded or step.windowing is not None or table.alone
        rows = tables.read(scan, named=named)
        if source.format == "text":
            return Columns(rows.selectExpr(f"{line_of('value')} AS record"), {"record": "string"}, {"record": "string"})
        if source.format in COLUMNAR:
            raw = tables.columns(scan)
            schema = table.schemas[0] if table.schemas else None
            types = raw if schema is None else _types_of(schema)
            return Columns(rows, types, raw, schema)
        types = {name: SCHEMA_TYPES[kind] for name, kind in source.schema}
        decoding = Decoding(scan.step, source, None, False, headers=tables.headers(scan))
        return Columns(_mapped(rows, TypedTask(decoding, tuple(types.items()), named)), types, types)

    def expression(self, name: str) -> str:
        """Return SQL for a column as the reducer sees it."""
        kind = self.types.get(name, "")
        if self.alone is None or self.raw.get(name) == kind:
            return f"`{name}`"
        return f"CAST({f'`{name}`' if name in self.raw else 'NULL'} AS {kind})"

    def checked(self, name: str) -> str:
        """Return SQL for a column that is read of every record; a record that does not fit the schema ends the job."""
        if self.alone is None:
            return self.expression(name)
        begin = f"SchemaError: the record does not fit {self.alone.schema.name}: "
        return self._guarded(name, self.expression(name), self.alone.name, begin, list(self._unfit()))

    def held(self, name: str, step: str) -> str:
        """Return ``checked`` SQL where all columns become a record.

        A record that Python cannot represent also ends the job.
        """
        wrong = list(self._unreadable())
        return self._guarded(name, self.checked(name), step, "ValueError: the record cannot be read: ", wrong)

    def _guarded(self, name: str, expression: str, step: str, begin: str, wrong: list[tuple[str, str]]) -> str:
        """Return SQL for the expression, of the column's type, that ends the job if a condition in ``wrong`` holds."""
        if not wrong:
            return expression
        cases = ", ".join(f"CASE WHEN {condition} THEN {_quoted(words)} END" for condition, words in wrong)
        columns = ", ".join(f"`{name}`" for name in self.types if name in self.raw)
        story = (
            f"to_json(named_struct('step', {_quoted(step)}, 'value', to_json(struct({columns}), "
            f"map('ignoreNullFields', 'false')), 'error', concat({_quoted(begin)}, concat_ws('; ', {cases})), "
            f"'traceback', '', 'file', `{FILE_COLUMN}`))"
        )
        some = " OR ".join(condition for condition, _ in wrong)
        raised = f"CAST(raise_error(concat({_quoted(MARKER)}, {story})) AS {self.types[name]})"
        return f"CASE WHEN {some} THEN {raised} ELSE {expression} END"

    def _unfit(self) -> Iterator[tuple[str, str]]:
        """Yield the violations of the schema that a record may have: an SQL condition and its description."""
        for field in self.alone.schema.fields if self.alone is not None else ():
            kind = self.raw.get(field.name, "")
            if kind and not field.optional:
                yield f"`{field.name}` IS NULL", f"field {field.name!r} is None, and not optional"
            yield from _out_of_range(field.name, kind)

    def _unreadable(self) -> Iterator[tuple[str, str]]:
        """Yield the values of a file that Python cannot represent: an SQL condition and its description."""
        for name in self.types:
            kind = self.raw.get(name, "")
            if kind == "string":
                yield f"coalesce(NOT is_valid_utf8(`{name}`), false)", f"field {name!r} is not valid UTF-8"
            if self.alone is None:
                yield from _out_of_range(name, kind)

    def within(self, scan: Scan) -> DataFrame:
        """Return the rows in the requested range of event time."""
        if not self.is_whole or (scan.from_ms is None and scan.to_ms is None):
            return self.rows
        assert scan.event_time is not None
        time, low, high = self.time(scan.step, scan.event_time), sql.lit(scan.from_ms), sql.lit(scan.to_ms)
        return self.rows.where((low.isNull() | (time >= low)) & (high.isNull() | (time < high)))

    def window_time(self, step: str, own: EventTime | None, source: EventTime | None) -> Column:
        """Return the event time for windows: their own, or the source's."""
        if own is None and not self.is_whole:
            return sql.col(TIME_COLUMN)
        time = own or source
        assert time is not None
        return self.time(step, time)

    def time(self, step: str, time: EventTime) -> Column:
        """Return the event time in milliseconds; a record without one ends the job with an error that names it."""
        name = column_of(time.extractor)
        column, kind, unit = sql.col(f"`{name}`"), self.raw[name], MS_PER_UNIT[time.unit]
        if kind in INTEGERS:
            ms, wrong = column.cast("long") * sql.lit(unit), column.isNull()
        elif kind in FLOATS:
            number = column.cast("double")
            ms = sql.rint(number * sql.lit(float(unit))).cast("long")
            wrong = column.isNull() | sql.isnan(column) | (sql.abs(number) == sql.lit(float("inf")))
        else:
            micros = f"unix_micros(cast(`{name}` as timestamp))"
            ms, wrong = sql.expr(f"({micros} - pmod({micros}, 1000L)) div 1000"), column.isNull()
        story = sql.to_json(
            sql.struct(
                sql.lit(step).alias("step"),
                sql.coalesce(column.cast("string"), sql.lit("None")).alias("value"),
                sql.lit(f"EventTimeError: the field {name!r} is not an event time").alias("error"),
                sql.lit("").alias("traceback"),
                sql.col(FILE_COLUMN).alias("file"),
            )
        )
        return sql.when(wrong, sql.raise_error(sql.concat(sql.lit(MARKER), story)).cast("long")).otherwise(ms)


def starts_of(window: Window) -> str:
    """Return SQL for the starts of the windows of a record at ``time``, one row for each.

    For a session it is the time itself.
    """
    length, every = window.length_ms, window.every_ms
    if window.merges:
        return "time"
    last = f"time - pmod(time, {every}L)"
    if window.is_tumbling:
        return last
    first = f"time - pmod(time, {every}L) - ({length}L - 1 - pmod(time, {every}L)) div {every} * {every}"
    return f"explode(sequence({first}, {last}, {every}L))"


def _out_of_range(name: str, kind: str) -> Iterator[tuple[str, str]]:
    if kind in _RANGES:
        low, high = _RANGES[kind]
        yield (
            f"coalesce(`{name}` NOT BETWEEN {low} AND {high}, false)",
            f"field {name!r} is outside the years 1 to 9999",
        )


def column_of(extractor: Extractor) -> str:
    """Return the name of the column that an extractor reads.

    The planner excludes names with a "`".
    """
    return str(extractor.name) if isinstance(extractor, Field) else "record"


def _quoted(text: str) -> str:
    """Return the text as an SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _types_of(step: SchemaStep) -> dict[str, str]:
    """Return the types of the fields for which SQL has types."""
    return {f.name: SCHEMA_TYPES[f.kind] for f in step.schema.fields if f.kind in SCHEMA_TYPES}


def _made(tables: scans.Tables, scan: Scan, table: Table, step: ReduceStep) -> Columns:
    """Return the columns that are read, made by the Python rule."""
    assert isinstance(scan.source, FileSource)
    own = step.windowing.event_time if step.windowing is not None else None
    read = {column_of(step.key)} | (set() if step.monoid.builtin == "count" else {column_of(step.value)})
    read |= {column_of(own.extractor)} if own is not None else set()
    types = {name: kind for name, kind in _types_of(table.schemas[-1]).items() if name in read}
    bounded = scan.from_ms is not None or scan.to_ms is not None
    timed = bounded or (step.windowing is not None and own is None)
    decoding = Decoding(
        scan.step, scan.source, scan.event_time if timed else None, timed, scan.from_ms, scan.to_ms,
        tables.headers(scan),
    )  # fmt: skip
    named = own is not None  # SQL may find an invalid time of the reducer's own
    rows = tables.read(scan, named=named or scan.source.format in COLUMNAR)
    task = TypedTask(decoding, tuple(types.items()), named, table.schemas)
    return Columns(_mapped(rows, task), types, types, is_whole=False)


def _mapped(rows: DataFrame, task: TypedTask) -> DataFrame:
    shape = [f"`{name}` {kind}" for name, kind in task.types]
    shape += [f"{FILE_COLUMN} string"] if task.named else []
    shape += [f"{TIME_COLUMN} bigint"] if task.decoding.wants_time else []
    return scans.for_python(rows).mapInArrow(Shipped(task), ", ".join(shape))


@dataclass(frozen=True)
class TypedTask:
    """Task that turns records with declared types, of their source or of ``schemas``, into columns.

    It adds FILE_COLUMN if ``named`` is set, and TIME_COLUMN if the decoding yields times.
    """

    decoding: Decoding
    types: tuple[tuple[str, str], ...]
    named: bool
    schemas: tuple[SchemaStep, ...] = ()

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Convert batches; the function for ``mapInArrow``."""
        import pyarrow as pa

        arrow = {
            "string": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(),
            "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
        }  # fmt: skip
        names = [name for name, _ in self.types]
        names += [FILE_COLUMN] if self.named else []
        names += [TIME_COLUMN] if self.decoding.wants_time else []
        for columns in columns_of(self.decoding.step, self.decoding.source, batches):
            records, times, file = self.decoding.decode(columns)
            for step in self.schemas:
                records = _conformed(step, records, file)
            try:
                made = [pa.array([record[name] for record in records], arrow[kind]) for name, kind in self.types]
            except (OverflowError, pa.ArrowException):
                raise self._located(records, file) from None
            if self.named:
                made.append(pa.array([file(index) for index in range(len(records))], pa.string()))
            if self.decoding.wants_time:
                made.append(pa.array(times, pa.int64()))
            yield pa.RecordBatch.from_arrays(made, names=names)

    def _located(self, records: list[Any], file: Any) -> Exception:
        for index, record in enumerate(records):
            for name, kind in self.types:
                value = record[name]
                if kind == "bigint" and value is not None and not -(1 << 63) <= value < 1 << 63:
                    error = OverflowError(
                        f"{name} does not fit 64 bits; declare it as str, or reduce it with a function"
                    )
                    return failed(self.decoding.step, record, error, file(index))
        return failed(self.decoding.step, records[:1], ValueError("a value does not fit its column"), file(0))


def _conformed(step: SchemaStep, records: list[Any], file: Any) -> list[Any]:
    """Return the records converted to the schema. Raises RecordFailed."""
    made: list[Any] = []
    try:
        made.extend(map(step.function, records))  # grows one by one, so its length tells which record raised
    except Exception as error:
        raise failed(step.name, records[len(made)], error, file(len(made))) from error
    return made


_MARK = "\u0100"  # a character outside ISO 8859-1, so it does not occur
_NONE = "\u00ef\u00bf\u00bd"  # the bytes of U+FFFD
_MORE = "[\u0080-\u00bf]"
#: The beginning of a sequence, and the number of bytes that follow (RFC 3629, table 3-7 of Unicode).
_BEGINS = (
    ("[\u00c2-\u00df]", 1), ("\u00e0[\u00a0-\u00bf]", 1), ("[\u00e1-\u00ec\u00ee\u00ef]" + _MORE, 1),
    ("\u00ed[\u0080-\u009f]", 1), ("\u00f0[\u0090-\u00bf]", 2), ("[\u00f1-\u00f3]" + _MORE, 2),
    ("\u00f4[\u0080-\u008f]", 2),
)  # fmt: skip
_WHOLE = "|".join(begin + _MORE * more for begin, more in _BEGINS)
_CUT_OFF = "|".join(begin + (_MORE + "?") * (more - 1) for begin, more in _BEGINS[1:])


def line_of(column: str) -> str:
    """Return SQL for the record of a line; ``column`` holds its bytes as a string."""
    made = f"CASE WHEN is_valid_utf8({column}) THEN {column} ELSE {_mended(column)} END"
    return f"CASE WHEN endswith({column}, '\\r') THEN left({made}, char_length({made}) - 1) ELSE {made} END"


def _mended(column: str) -> str:
    bytes_ = f"decode(CAST({column} AS binary), 'ISO-8859-1')"
    marked = f"regexp_replace({bytes_}, '({_WHOLE})|(?:{_CUT_OFF}|[\u0080-\u00ff])', '$1{_MARK}')"
    text = f"regexp_replace({marked}, '({_WHOLE}){_MARK}', '$1')"
    return f"CAST(encode(replace({text}, '{_MARK}', '{_NONE}'), 'ISO-8859-1') AS string)"

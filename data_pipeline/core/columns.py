"""Which reducers SQL may compute, and from which columns: those whose types SQL treats as Python does. Pure.

Theory of operation. A reducer of built-in parts over plain fields is SQL if all that it reads are typed columns: of
text, of csv and json with declared types, of Parquet and ORC, or of any of these files behind ``with_schema``. Nothing
but unions may stand between. A schema over files whose columns have its types, or ones that fit into them without a
question to each value, is checked by Catalyst alone; over anything else the Python rule makes the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from data_pipeline.core.plan import Table
from heronry.streamlet.endpoints import COLUMNAR, FileSource
from heronry.streamlet.extract import Field, Whole
from heronry.streamlet.program import Program, ReduceStep, SchemaStep, SourceStep, UnionStep
from heronry.streamlet.schema import FieldType, RecordSchema

SQL_MONOIDS = ("count", "sum", "min", "max", "mean")
# Types of which SQL and Python agree on equality, order and arithmetic.
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
INTEGERS = frozenset(BITS)
NUMBERS = INTEGERS | {"float", "double", "boolean"}
KEY_TYPES = NUMBERS | {"string", "binary", "date", "timestamp", "timestamp_ntz"}
TIME_TYPES = INTEGERS | {"float", "double", "timestamp", "timestamp_ntz"}
VALUE_TYPES = {"sum": NUMBERS, "mean": NUMBERS}
# Columns of several sources are one column where no value changes on the way; SQL would make 1 of "1", 1.0 of True.
_ALIKE = dict.fromkeys(INTEGERS, "integer") | {"float": "fraction", "double": "fraction"}
SCHEMA_TYPES = {
    "str": "string", "int": "bigint", "float": "double", "bool": "boolean", "bytes": "binary", "date": "date",
    "datetime": "timestamp",
}  # fmt: skip
#: Columns of which every value is one of the kind, whatever it is. (Of a bigint some values are no float.)
FITTING = {
    "str": {"string"}, "int": INTEGERS, "float": {"float", "double", "tinyint", "smallint", "int"},
    "bool": {"boolean"}, "bytes": {"binary"}, "date": {"date"}, "datetime": {"timestamp", "timestamp_ntz"},
}  # fmt: skip
Way = tuple[SourceStep, tuple[SchemaStep, ...]]


@dataclass(frozen=True)
class Columns:
    """What is known of a program's columns. ``known``: of each source of Parquet or ORC, the Spark types. ``bounded``:
    records are chosen by the source's event time."""

    program: Program
    known: Mapping[str, Mapping[str, str]]
    bounded: bool

    def tables(self, step: ReduceStep) -> tuple[Table, ...]:
        """What SQL reads to compute the reducer; nothing if Python has to."""
        if not step.plain or step.monoid.builtin not in SQL_MONOIDS or step.input.output:
            return ()
        paths: list[Way] = []
        for path in self._paths(step):
            if path is None or path[0].name in {source.name for source, _ in paths}:
                return ()
            paths.append(path)
        found = [self._table(path, step) for path in paths]
        tables = tuple(table for table in found if table is not None)
        names = {table.scan for table in tables}
        return tables if len(names) == len(paths) and self._are_alike(paths, step) else ()

    def _paths(self, step: ReduceStep) -> Iterator[Way | None]:
        """The sources the reducer reads, with the schemas on the way; None for one behind anything else."""
        waiting: list[tuple[str, tuple[SchemaStep, ...]]] = [(ref.step, ()) for ref in step.inputs]
        while waiting:
            name, schemas = waiting.pop(0)
            before = self.program.by_name[name]
            if isinstance(before, UnionStep):
                waiting += [(ref.step, schemas) for ref in before.inputs]
            elif isinstance(before, SchemaStep) and not before.input.output:
                waiting.append((before.input.step, (before, *schemas)))
            else:
                yield (before, schemas) if isinstance(before, SourceStep) else None

    def _are_alike(self, paths: list[Way], reduce: ReduceStep) -> bool:
        """True if the reducer's key, and its value, have one type wherever they are from."""
        read = [reduce.key] if is_unread(reduce) else [reduce.key, reduce.value]
        for extractor in read:
            kinds = {column_type(extractor, self.types(path) or {}) for path in paths}
            if len({_ALIKE.get(kind, kind) for kind in kinds}) > 1:
                return False
        return True

    def _table(self, path: Way, reduce: ReduceStep) -> Table | None:
        """The table, if every column the reducer needs of it has a type SQL treats as Python does."""
        types = self.types(path)
        if types is None:
            return None
        source, schemas = path
        own = reduce.windowing.event_time if reduce.windowing is not None else None
        wanted = [(reduce.key, KEY_TYPES)]
        if not is_unread(reduce):
            wanted.append((reduce.value, VALUE_TYPES.get(reduce.monoid.builtin or "", KEY_TYPES)))
        if own is not None:
            wanted.append((own.extractor, TIME_TYPES))
        if not all(column_type(extractor, types) in allowed for extractor, allowed in wanted):
            return None
        known = self.raw(source)
        raw = known or {}
        by_source = self.bounded or (reduce.windowing is not None and own is None)
        time = source.event_time.extractor if source.event_time is not None else None
        timed = not by_source or (time is not None and column_type(time, raw) in TIME_TYPES)
        if not schemas:
            return Table(source.name) if timed else None
        read = timed and (own is None or column_type(own.extractor, raw) in TIME_TYPES)
        is_table = known is not None and source.name in self.known
        alone = is_table and read and len(schemas) == 1 and is_fitting(schemas[0].schema, raw)
        return Table(source.name, schemas, alone)

    def types(self, way: Way) -> Mapping[str, str] | None:
        """Column → Spark type of what the reducer reads; "" is the whole record. None if it has no typed columns."""
        source, schemas = way
        if not schemas:
            return self.raw(source)
        if not isinstance(source.source, FileSource) or source.source.format not in ("csv", "json", *COLUMNAR):
            return None
        if source.source.partitions:
            return None
        fields = schemas[-1].schema.fields
        return _sound({field.name: SCHEMA_TYPES.get(field.kind, "") for field in fields})

    def raw(self, source: SourceStep) -> Mapping[str, str] | None:
        """The same of a source by itself."""
        if not isinstance(source.source, FileSource) or source.source.partitions:  # fields of folders Python adds
            return None
        if source.source.format == "text":
            return {"": "string"}
        types = self.known.get(source.name)
        if source.source.format in ("csv", "json"):
            types = {name: SCHEMA_TYPES[kind] for name, kind in source.source.schema}
        if source.source.format == "orc" and "date" in (types or {}).values():
            return None  # Python looks at each of them (heronry/streamlet/orc.py)
        return _sound(types) if types else None


def _sound(types: Mapping[str, str]) -> Mapping[str, str] | None:
    """The types, if SQL tells their names apart: it quotes with "`", and capitals are nothing to it."""
    apart = len({name.lower() for name in types}) == len(types)
    return types if apart and not any("`" in name for name in types) else None


def is_fitting(schema: RecordSchema, types: Mapping[str, str]) -> bool:
    """True if records with columns of these types fit the schema unless a value is None, or a time out of range."""
    return all(_fits(field, types.get(field.name)) for field in schema.fields)


def _fits(field: FieldType, of: str | None) -> bool:
    if of is None:
        return field.optional and not field.default and field.kind in SCHEMA_TYPES
    return of in FITTING.get(field.kind, ()) and BITS.get(of, 0) <= field.bits


def is_unread(reduce: ReduceStep) -> bool:
    """The value of a count is never looked at."""
    return reduce.monoid.builtin == "count"


def column_type(extractor: object, types: Mapping[str, str]) -> str:
    """The type of the column an extractor reads; "" if it is no column."""
    if isinstance(extractor, Whole):
        return types.get("", "")
    return types.get(extractor.name, "") if isinstance(extractor, Field) and isinstance(extractor.name, str) else ""

"""Choice of reducers and joins that SQL may compute, and of their columns, by types. Pure.

SQL computes what it treats as Python does.

A reducer of built-in parts over plain fields is computed by SQL if all its inputs are typed columns: of text, of CSV
and JSON with declared types, of Parquet and ORC, or of any of these files after ``with_schema``. Only unions may stand
in between. Catalyst alone checks a schema over files whose columns have the schema's types, or types that fit them
without a check of each value. For all other files the Python rule makes the columns.

A join consists of steps that every engine has (``heronry/streamlet/joins.py``): two maps that mark the sides, a union,
a reducer to two lists, and a step that makes pairs of them. Catalyst may compute it under three conditions. Both sides
are Parquet or ORC, either directly or in a schema that Catalyst checks alone. Keys and times are in
columns of types that SQL treats as Python does. Every other column reaches Python after the join as it would before
it. Any other join keeps the steps, and the plan gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from data_pipeline.core.plan import Join, JoinSide, Table
from heronry.streamlet.endpoints import COLUMNAR, FileSource
from heronry.streamlet.extract import Extractor, Field, Whole
from heronry.streamlet.joins import JOIN_MONOID, JoinPairs, SideMarker
from heronry.streamlet.program import FlatMapStep, MapStep, Program, ReduceStep, SchemaStep, SourceStep, UnionStep
from heronry.streamlet.schema import FieldType, RecordSchema

SQL_MONOIDS = ("count", "sum", "min", "max", "mean")
# Types for which SQL and Python agree on equality, order and arithmetic.
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
INTEGERS = frozenset(BITS)
NUMBERS = INTEGERS | {"float", "double", "boolean"}
KEY_TYPES = NUMBERS | {"string", "binary", "date", "timestamp", "timestamp_ntz"}
TIME_TYPES = INTEGERS | {"float", "double", "timestamp", "timestamp_ntz"}
# SQL rounds each sum of floats, so the result would depend on the order; Python is exact (streamlet/exact.py).
VALUE_TYPES = dict.fromkeys(("sum", "mean"), INTEGERS | {"boolean"})
# Columns of several sources may be united where no value changes; SQL would turn "1" into 1, and True into 1.0.
_ALIKE = dict.fromkeys(INTEGERS, "integer") | {"float": "fraction", "double": "fraction"}
SCHEMA_TYPES = {
    "str": "string", "int": "bigint", "float": "double", "bool": "boolean", "bytes": "binary", "date": "date",
    "datetime": "timestamp",
}  # fmt: skip
#: Column types whose every value fits the kind. (Some values of a bigint cannot be a float.)
FITTING = {
    "str": {"string"}, "int": INTEGERS, "float": {"float", "double", "tinyint", "smallint", "int"},
    "bool": {"boolean"}, "bytes": {"binary"}, "date": {"date"}, "datetime": {"timestamp", "timestamp_ntz"},
}  # fmt: skip
Way = tuple[SourceStep, tuple[SchemaStep, ...]]


@dataclass(frozen=True)
class Columns:
    """Known columns of a program.

    Attributes:
        known: Each source of Parquet or ORC to its Spark types by column.
        bounded: True if records are selected by the source's event time.
    """

    program: Program
    known: Mapping[str, Mapping[str, str]]
    bounded: bool

    def tables(self, step: ReduceStep) -> tuple[Table, ...]:
        """Return the tables that SQL reads to compute the reducer; empty if Python has to compute it."""
        if not step.plain or step.monoid.builtin not in SQL_MONOIDS or step.input.output:
            return ()
        paths: list[Way] = []
        for path in self._paths(step):
            if path is None or path[0].name in {source.name for source, _ in paths}:
                return ()
            paths.append(path)
        own_tables = [self._table(path, step) for path in paths]
        tables = tuple(table for table in own_tables if table is not None)
        names = {table.scan for table in tables}
        return tables if len(names) == len(paths) and self._are_alike(paths, step) else ()

    def _paths(self, step: ReduceStep) -> Iterator[Way | None]:
        """Yield the sources that the reducer reads, with the schemas in between; None if another step is in between."""
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
        """Return True if the reducer's key, and its value, have the same type in all sources."""
        read = [reduce.key] if is_unread(reduce) else [reduce.key, reduce.value]
        for extractor in read:
            kinds = {column_type(extractor, self.types(path) or {}) for path in paths}
            if len({_ALIKE.get(kind, kind) for kind in kinds}) > 1:
                return False
        return True

    def _table(self, path: Way, reduce: ReduceStep) -> Table | None:
        """Return the table, if SQL treats the type of every column that the reducer needs as Python does."""
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
        """Return column → Spark type of the reducer's input; "" is the whole record.

        The result is None if the columns are not typed.
        """
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
        """Return column → Spark type of a source without its schemas; None if the columns are not typed."""
        if not isinstance(source.source, FileSource) or source.source.partitions:  # Python adds those fields
            return None
        if source.source.format == "text":
            return {"": "string"}
        types = self.known.get(source.name)
        if source.source.format in ("csv", "json"):
            types = {name: SCHEMA_TYPES[kind] for name, kind in source.source.schema}
        if source.source.format == "orc" and "date" in (types or {}).values():
            return None  # Python checks each date (see orc.py)
        return _sound(types) if types else None


def _sound(types: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the types if SQL can distinguish the column names; it quotes with "`" and ignores case."""
    apart = len({name.lower() for name in types}) == len(types)
    return types if apart and not any("`" in name for name in types) else None


def is_fitting(schema: RecordSchema, types: Mapping[str, str]) -> bool:
    """Return True if records with columns of these types fit the schema, except for None and times out of range."""
    return all(_fits(field, types.get(field.name)) for field in schema.fields)


def _fits(field: FieldType, of: str | None) -> bool:
    if of is None:
        return field.optional and not field.default and field.kind in SCHEMA_TYPES
    return of in FITTING.get(field.kind, ()) and BITS.get(of, 0) <= field.bits


def is_unread(reduce: ReduceStep) -> bool:
    """Return True if the reducer never reads the value, as a count."""
    return reduce.monoid.builtin == "count"


def column_type(extractor: object, types: Mapping[str, str]) -> str:
    """Return the type of the column that an extractor reads; "" if it does not read a column."""
    if isinstance(extractor, Whole):
        return types.get("", "")
    return types.get(extractor.name, "") if isinstance(extractor, Field) and isinstance(extractor.name, str) else ""


NAMES = ("left", "right")


class Decision(NamedTuple):
    """Decision about a reducer: the join over ``tables``, its sides; None if Python has to compute it.

    ``why`` is the reason if the reducer is a join at all.
    """

    join: Join | None = None
    tables: tuple[Table, ...] = ()
    why: str = ""


class _InPython(Exception):
    """Reason why SQL cannot compute a join."""


def decided(columns: Columns, step: ReduceStep) -> Decision:
    """Return the decision about a reducer."""
    if step.monoid != JOIN_MONOID:
        return Decision()
    try:
        return _decided(columns, step)
    except _InPython as reason:
        return Decision(why=str(reason))


def _decided(columns: Columns, step: ReduceStep) -> Decision:
    program = columns.program
    assert step.windowing is not None
    if step.windowing.window.merges:
        raise _InPython("its windows are sessions, which depend on records of both sides")
    pairs = [reader.function for reader in program.readers(step.name, 0) if isinstance(reader, FlatMapStep)]
    if len(pairs) != 1 or not isinstance(pairs[0], JoinPairs):
        raise _InPython("nothing reads its pairs")
    sides = [_side(columns, name, marked) for name, marked in zip(NAMES, _marked(program, step), strict=True)]
    (left, one, one_kind), (right, two, two_kind) = sides
    if one_kind != two_kind:
        raise _InPython(f"the keys are of different kinds, {one_kind} and {two_kind}, so only None can match")
    return Decision(Join(pairs[0].how, (left, right)), (one, two))


def _marked(program: Program, step: ReduceStep) -> list[MapStep]:
    """Return the steps that mark the sides, left and right. Raises _InPython."""
    both = program.by_name[step.input.step]
    assert isinstance(both, UnionStep)
    steps = [program.by_name[ref.step] for ref in both.inputs]
    marking = [one for one in steps if isinstance(one, MapStep) and isinstance(one.function, SideMarker)]
    if len(marking) != len(NAMES):
        raise _InPython("an archive takes the place of one of its sides")
    return marking


def _side(columns: Columns, name: str, marked: MapStep) -> tuple[JoinSide, Table, str]:
    """Return a side, its table and the kind of its key. Raises _InPython."""
    way = _way(columns.program, name, marked)
    source, schemas = way
    assert isinstance(marked.function, SideMarker)
    raw, types = columns.raw(source), columns.types(way)
    if raw is None or types is None:
        raise _InPython(
            f"of the {name} side's source {source.name!r} SQL does not know the columns, does not tell their names "
            "apart, or would not look at dates of ORC"
        )
    for schema in schemas:
        if not is_fitting(schema.schema, raw):
            raise _InPython(f"of the {name} side Python types the columns, in step {schema.name!r}")
    for column, kind in types.items():
        if kind not in KEY_TYPES and not kind.startswith("decimal("):
            raise _InPython(f"the {name} side's column {column!r} is of type {kind}")
    key, own = marked.function.key, marked.function.time
    kind = column_type(key, types)
    if not isinstance(key, Field) or kind not in KEY_TYPES:
        raise _InPython(f"the {name} side's key is {_describe_key(key, kind)}")
    times = [(source.event_time, raw)] if own is None or columns.bounded else []
    times += [(own, raw), (own, types)] if own is not None else []
    for time, there in times:
        taken = time.extractor if time is not None else None
        kind_there = column_type(taken, there)
        if kind_there not in TIME_TYPES:
            raise _InPython(f"the {name} side's event time is {_describe_key(taken, kind_there)}")
    side = JoinSide(marked.name, str(key.name), own)
    return side, Table(source.name, schemas, bool(schemas)), "number" if kind in NUMBERS else kind


def _way(program: Program, name: str, marked: MapStep) -> Way:
    """Return the source of a side, and the schema that its records pass. Raises _InPython."""
    schemas: tuple[SchemaStep, ...] = ()
    before = program.by_name[marked.input.step]
    if isinstance(before, SchemaStep):
        schemas, before = (before,), program.by_name[before.input.step]
    if not isinstance(before, SourceStep):
        raise _InPython(f"step {before.name!r} ({before.kind}) precedes the {name} side")
    if not isinstance(before.source, FileSource) or before.source.format not in COLUMNAR:
        raise _InPython(f"the {name} side's source {before.name!r} is not of Parquet or ORC files")
    if before.source.partitions:
        raise _InPython(f"the {name} side's source {before.name!r} has fields in its folders")
    return before, schemas


def _describe_key(extractor: Extractor | None, kind: str) -> str:
    if isinstance(extractor, Field):
        return f"column {extractor.name!r} of type {kind}" if kind else f"{extractor.name!r}, which is not a column"
    return "not a column"

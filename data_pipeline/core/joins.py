"""Choice of joins that SQL may compute, and the reasons why the others stay in Python. Pure.

A join consists of steps that every engine has (``heronry/streamlet/joins.py``): two maps that mark the sides, a union,
a reducer to two lists, and a step that makes pairs of them. Catalyst may compute it under three conditions. Both sides
are Parquet or ORC, either directly or in a schema that Catalyst checks alone (columns.py). Keys and times are in
columns of types that SQL treats as Python does. Every other column reaches Python after the join as it would before
it. Any other join keeps the steps, and the plan gives the reason.
"""

from __future__ import annotations

from typing import NamedTuple

from data_pipeline.core.columns import KEY_TYPES, NUMBERS, TIME_TYPES, Columns, Way, column_type, is_fitting
from data_pipeline.core.plan import Join, JoinSide, Table
from heronry.streamlet.endpoints import COLUMNAR, FileSource
from heronry.streamlet.extract import Extractor, Field
from heronry.streamlet.joins import JOIN_MONOID, JoinPairs, SideMarker
from heronry.streamlet.program import FlatMapStep, MapStep, Program, ReduceStep, SchemaStep, SourceStep, UnionStep

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
    found = [_side(columns, name, marked) for name, marked in zip(NAMES, _marked(program, step), strict=True)]
    (left, one, one_kind), (right, two, two_kind) = found
    if one_kind != two_kind:
        raise _InPython(f"the keys are of different kinds, {one_kind} and {two_kind}, so only None can match")
    return Decision(Join(pairs[0].how, (left, right)), (one, two))


def _marked(program: Program, step: ReduceStep) -> list[MapStep]:
    """Return the steps that mark the sides, left and right. Raises _InPython."""
    both = program.by_name[step.input.step]
    assert isinstance(both, UnionStep)
    found = [program.by_name[ref.step] for ref in both.inputs]
    marking = [one for one in found if isinstance(one, MapStep) and isinstance(one.function, SideMarker)]
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
        found = column_type(taken, there)
        if found not in TIME_TYPES:
            raise _InPython(f"the {name} side's event time is {_describe_key(taken, found)}")
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

"""Plan of a batch job as values: made by the planner from a program, turned into Spark operations by the shell.

A program is cut at its reducers (``heronry.streamlet.program``). The executable part of a segment is a *unit*. It
begins at its entry (a source, or a reducer's results) and runs fused, as one ``mapInArrow``, through all downstream
steps up to its outputs (the next reducers, and sinks). Every row that leaves a unit carries the tag of its output, so a
unit runs once regardless of its number of readers. An output to a reducer combines before the shuffle; after the
shuffle the next unit begins by merging.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from heron_runtime.failures import InvalidTopology
from heronry.streamlet.endpoints import Sink, Source
from heronry.streamlet.program import EventTime, ReduceStep, SchemaStep
from heronry.streamlet.schema import RecordSchema

LOW_BITS = 32  # bits of the lower part of integers, which SQL sums up in an upper and a lower part

Kind = Literal["map", "schema", "flat_map", "filter", "branch", "union", "tap", "log", "reduce", "sink", "view"]


@dataclass(frozen=True)
class Node:
    """Step inside a unit. ``outputs[i]`` are the nodes that read its output i.

    An output of the unit itself, a reducer or a sink, has a ``tag``. Streams that are united again share the downstream
    nodes, so a unit has as many nodes as steps, regardless of the number of paths through it.
    """

    step: str
    kind: Kind
    functions: tuple[Callable[[Any], Any], ...] = ()
    outputs: tuple[tuple[Node, ...], ...] = ()
    tag: int = -1
    reduce: ReduceStep | None = None  # for an output to a reducer
    level: str = "INFO"  # for a log step


@dataclass(frozen=True)
class TaggedOutput:
    """Output of a unit to a reducer or a sink."""

    tag: int
    step: str
    kind: Kind


@dataclass(frozen=True)
class Unit:
    """Steps between an entry and the next cuts. ``timed`` is True if records carry their event time."""

    entry: str
    nodes: tuple[Node, ...]
    outputs: tuple[TaggedOutput, ...]
    timed: bool = False

    def all_nodes(self) -> list[Node]:
        """Return each node once, readers before the nodes they read."""
        nodes_by_id: dict[int, Node] = {}
        waiting = [(node, False) for node in reversed(self.nodes)]
        while waiting:
            node, is_done = waiting.pop()
            if is_done:
                nodes_by_id.setdefault(id(node), node)
            elif id(node) not in nodes_by_id:
                waiting.append((node, True))
                waiting += [(reader, False) for readers in node.outputs for reader in reversed(readers)]
        return list(nodes_by_id.values())

    def rebuilt(self, change: Callable[[Node, tuple[tuple[Node, ...], ...]], Node | None]) -> tuple[Node, ...]:
        """Return the nodes, each replaced by ``change(node, new_readers)``; None removes the node."""
        made: dict[int, Node | None] = {}

        def kept(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
            return tuple(new for node in nodes if (new := made[id(node)]) is not None)

        for node in self.all_nodes():
            made[id(node)] = change(node, tuple(map(kept, node.outputs)))
        return kept(self.nodes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the nodes as a table, since nested nodes would recurse as deep as the unit has steps."""
        nodes = self.all_nodes()
        places = {id(node): place for place, node in enumerate(nodes)}
        rows = [
            (replace(node, outputs=()), tuple(tuple(places[id(r)] for r in readers) for readers in node.outputs))
            for node in nodes
        ]
        return _unit_of, (self.entry, rows, [places[id(node)] for node in self.nodes], self.outputs, self.timed)


def _unit_of(
    entry: str, rows: list[tuple[Node, tuple[tuple[int, ...], ...]]], roots: list[int],
    outputs: tuple[TaggedOutput, ...], timed: bool,
) -> Unit:  # fmt: skip
    nodes: list[Node] = []
    for node, readers in rows:
        nodes.append(replace(node, outputs=tuple(tuple(nodes[place] for place in places) for places in readers)))
    return Unit(entry, tuple(nodes[place] for place in roots), outputs, timed)


@dataclass(frozen=True)
class Scan:
    """Source and the unit downstream of it (None if only SQL reads it).

    Records with event times outside [from_ms, to_ms) are left out.
    """

    step: str
    source: Source[Any]
    event_time: EventTime | None
    unit: Unit | None
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True)
class Table:
    """Scan whose columns a reducer reads in SQL, and the schemas that its records pass first.

    ``alone`` is True if Catalyst alone checks and types the columns. Otherwise a ``mapInArrow`` makes them by the
    Python rule.
    """

    scan: str
    schemas: tuple[SchemaStep, ...] = ()
    alone: bool = False


@dataclass(frozen=True)
class JoinSide:
    """Side of a join that SQL computes.

    Attributes:
        step: The step that would mark its records in Python.
        key: The column that is its key.
        time: Its own event time; None for that of the source.
    """

    step: str
    key: str
    time: EventTime | None


@dataclass(frozen=True)
class Join:
    """Join that SQL computes. ``how`` is one of ``heronry.streamlet.joins.KINDS``; the sides are left and right."""

    how: str
    sides: tuple[JoinSide, JoinSide]


@dataclass(frozen=True)
class Reduction:
    """Reducer, its inputs and the unit downstream of it.

    Attributes:
        inputs: Pairs of a unit's entry and the tag of its output.
        sql: True if Catalyst computes the reducer from the columns of ``tables``, which it reads directly or after
            schemas. No user function sees its input.
        join: The join, if SQL computes one. ``tables`` are then its sides, and the unit begins downstream of the pairs.
        why_python: The reason why a join cannot be SQL.
    """

    step: ReduceStep
    inputs: tuple[tuple[str, int], ...]
    unit: Unit
    sql: bool = False
    tables: tuple[Table, ...] = ()
    join: Join | None = None
    why_python: str = ""


@dataclass(frozen=True)
class Output:
    """Sink, and the (unit, tag) pairs that feed it. ``schema`` is that of its records, where it is known."""

    step: str
    sink: Sink
    inputs: tuple[tuple[str, int], ...]
    reduce: ReduceStep | None = None  # for a view
    schema: RecordSchema | None = None


@dataclass(frozen=True)
class Plan:
    """Plan of a job: scans, then reductions in an executable order, then outputs. ``notes`` are for the user."""

    program: str
    scans: tuple[Scan, ...]
    reductions: tuple[Reduction, ...]
    outputs: tuple[Output, ...]
    notes: tuple[str, ...] = ()


class CannotPlan(InvalidTopology):
    """Program that Spark cannot run; the message names the step and the remedy."""

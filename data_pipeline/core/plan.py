"""The plan of a batch job as values: what the planner makes of a program and the shell turns into Spark.

Theory of operation. A program is cut at its reducers (``heronry.streamlet.cut``). What runs of a segment is a *unit*:
it begins at its entry (a source, or a reducer's results) and runs fused, as one ``mapInArrow``, through every step
behind it up to its outputs (the next reducers, and sinks). Every row that leaves a unit carries the tag of its output,
so a unit runs once however many readers it has. A reducer's output combines on the spot; behind the shuffle the next
unit begins by merging.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from heron_runtime.failures import InvalidTopology
from heronry.streamlet.endpoints import Sink, Source
from heronry.streamlet.program import EventTime, ReduceStep, SchemaStep
from heronry.streamlet.schema import RecordSchema

LOW_BITS = 32  # of whole numbers, which SQL sums up in an upper and a lower part

Kind = Literal["map", "schema", "flat_map", "filter", "branch", "union", "tap", "log", "reduce", "sink", "view"]


@dataclass(frozen=True)
class Node:
    """A step inside a unit. ``outputs[i]`` are the nodes that read its output i.

    What is an output of the unit itself, a reducer or a sink, has a ``tag``. Streams that meet again share the nodes
    behind, so a unit has as many nodes as steps, however many ways lead through it.
    """

    step: str
    kind: Kind
    functions: tuple[Callable[[Any], Any], ...] = ()
    outputs: tuple[tuple[Node, ...], ...] = ()
    tag: int = -1
    reduce: ReduceStep | None = None  # of an output to a reducer
    level: str = "INFO"  # of a log


@dataclass(frozen=True)
class TaggedOutput:
    """One way out of a unit: to a reducer or to a sink."""

    tag: int
    step: str
    kind: Kind


@dataclass(frozen=True)
class Unit:
    """Everything between an entry and the next cuts. ``timed``: records carry their event time along."""

    entry: str
    nodes: tuple[Node, ...]
    outputs: tuple[TaggedOutput, ...]
    timed: bool = False

    def all_nodes(self) -> list[Node]:
        """Return each node once, readers before what they read."""
        found: dict[int, Node] = {}
        waiting = [(node, False) for node in reversed(self.nodes)]
        while waiting:
            node, is_done = waiting.pop()
            if is_done:
                found.setdefault(id(node), node)
            elif id(node) not in found:
                waiting.append((node, True))
                waiting += [(reader, False) for readers in node.outputs for reader in reversed(readers)]
        return list(found.values())

    def rebuilt(self, change: Callable[[Node, tuple[tuple[Node, ...], ...]], Node | None]) -> tuple[Node, ...]:
        """Return the nodes with each replaced by ``change(node, its new readers)``; None leaves it out."""
        made: dict[int, Node | None] = {}

        def kept(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
            return tuple(new for node in nodes if (new := made[id(node)]) is not None)

        for node in self.all_nodes():
            made[id(node)] = change(node, tuple(map(kept, node.outputs)))
        return kept(self.nodes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a table of nodes: nested ones would go as deep as the unit has steps."""
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
    """A source and the unit behind it (None if only SQL reads it). Times outside [from, to) are left out."""

    step: str
    source: Source[Any]
    event_time: EventTime | None
    unit: Unit | None
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True)
class Table:
    """A scan whose columns a reducer reads in SQL, and the schemas that its records pass before.

    ``alone``: Catalyst checks and types the columns by itself; else a ``mapInArrow`` makes them, by the Python rule.
    """

    scan: str
    schemas: tuple[SchemaStep, ...] = ()
    alone: bool = False


@dataclass(frozen=True)
class JoinSide:
    """A side of a join that SQL computes: the step that would mark its records in Python, the column that is its key,
    and the event time of its own (None: the source's)."""

    step: str
    key: str
    time: EventTime | None


@dataclass(frozen=True)
class Join:
    """A join that SQL computes; ``how`` as ``heronry.streamlet.joins.KINDS``, the sides left and right."""

    how: str
    sides: tuple[JoinSide, JoinSide]


@dataclass(frozen=True)
class Reduction:
    """A reducer, what feeds it and the unit behind it.

    ``inputs`` are (entry of a unit, tag of its output). ``sql``: Catalyst computes it from the columns of ``tables``,
    what it reads directly, or behind schemas; no function of the user's sees its input. With ``join`` these are the two
    sides, and the unit begins behind the pairs. ``why_python``: what keeps a join from being SQL.
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
    """A sink, and the (unit, tag) pairs that feed it. ``schema``: of its records, where it is known."""

    step: str
    sink: Sink
    inputs: tuple[tuple[str, int], ...]
    reduce: ReduceStep | None = None  # of a view
    schema: RecordSchema | None = None


@dataclass(frozen=True)
class Plan:
    """A job: scans, then reductions in the order in which they can run, then outputs. ``notes`` are for the user."""

    program: str
    scans: tuple[Scan, ...]
    reductions: tuple[Reduction, ...]
    outputs: tuple[Output, ...]
    notes: tuple[str, ...] = ()


class CannotPlan(InvalidTopology):
    """The program has something Spark cannot run; the message names the step and the cure."""

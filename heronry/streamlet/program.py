"""The program: a frozen graph of steps, the same for every engine. No I/O, no engine in sight.

Theory of operation. ``Builder`` (builder.py) records what the user writes; ``build`` checks it (check.py) and makes a
``Program``: steps in an order in which every step comes after its inputs. A step has a name that is unique in the
program and safe in file names, and a parallelism (None: the engine's choice; online 1). ``key_by`` and ``window`` are
no steps of their own: they are parts of the reducer that follows them, so an engine sees one ``ReduceStep`` with all it
must know. What each step means is in its docstring; docs/reference/streamlet-semantics.md has the same as tables.

A stream is a bag of records: order between records means nothing unless a step says so. Functions depend on their
argument alone; an engine may call them again for the same record (replays), on any machine.

Every record has an *event time* if its source was declared with one; what comes of a record by map, flat_map, filter,
branch, union or tap has the record's event time. What a windowed reducer emits has the time ``end - 1`` (the last
millisecond of the window); what a reducer without windows emits has none. What ``process`` emits has the time of the
record or timer that it was emitted for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias

from typing_extensions import TypeVar

from heronry.streamlet.conform import RecordConverter
from heronry.streamlet.endpoints import Sink, Source
from heronry.streamlet.extract import Extractor
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.process import Handlers
from heronry.streamlet.schema import RecordSchema
from heronry.streamlet.server_sinks import ServerSink
from heronry.streamlet.windows import Window


class Ref(NamedTuple):
    """An output of a step. ``output`` is 0 but for a branch (its number) and late data (1)."""

    step: str
    output: int = 0


LATE = 1  # the output of a windowed reducer that carries late data


K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
R = TypeVar("R", default=Any)


class KeyValue(NamedTuple, Generic[K, V]):
    """Result of a reducer without windows."""

    key: K
    value: V


class Windowed(NamedTuple, Generic[K, V]):
    """Result of a windowed reducer; ``start`` and ``end`` (exclusive) are milliseconds since 1970 UTC."""

    key: K
    start: int
    end: int
    value: V


class Matched(NamedTuple, Generic[V, R]):
    """Result of a lookup: a record, and a row of the table (None without a match)."""

    record: V
    row: R


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where a record's event time stands, and what a number counts ("s" or "ms")."""

    extractor: Extractor
    unit: str = "s"


StepKind = Literal[
    "source", "map", "schema", "flat_map", "filter", "branch", "union", "tap", "log", "lookup", "reduce", "sink"
]


@dataclass(frozen=True)
class _Step:
    """What every step has."""

    kind: ClassVar[StepKind]
    name: str
    parallelism: int | None = field(default=None, kw_only=True)

    @property
    def told(self) -> str:
        """What it is, for plans."""
        return self.kind


@dataclass(frozen=True)
class SourceStep(_Step):
    """Emits each record of the source at least once; in batch exactly once."""

    kind = "source"
    inputs: ClassVar[tuple[Ref, ...]] = ()
    source: Source[Any]
    event_time: EventTime | None = None


@dataclass(frozen=True)
class _OneInput(_Step):
    """What steps with one input share."""

    input: Ref

    @property
    def inputs(self) -> tuple[Ref, ...]:
        return (self.input,)


@dataclass(frozen=True)
class _FunctionStep(_OneInput):
    """What steps with one function of a record share."""

    function: Callable[[Any], Any]


class MapStep(_FunctionStep):
    """Emits ``function(record)``."""

    kind: ClassVar[StepKind] = "map"


@dataclass(frozen=True)
class SchemaStep(MapStep):
    """Emits the record as a dict of the schema's fields, typed (conform.py); one that does not fit fails. An engine may
    do it without Python, and carry the fields as columns, where that gives the same."""

    kind: ClassVar[StepKind] = "schema"
    function: RecordConverter

    @property
    def schema(self) -> RecordSchema:
        """Of what it emits."""
        return self.function.schema

    @property
    def told(self) -> str:
        """With the fields."""
        return f"schema {self.schema}"


class FlatMapStep(_FunctionStep):
    """Emits each element of the iterable ``function(record)``, none if it is empty."""

    kind = "flat_map"


class FilterStep(_FunctionStep):
    """Emits the record if ``function(record)`` is true."""

    kind = "filter"


class TapStep(_FunctionStep):
    """Calls ``function(record)`` at least once for each record, leaves the result alone and emits the record."""

    kind = "tap"


@dataclass(frozen=True)
class BranchStep(_OneInput):
    """Emits the record on output i, the first whose ``predicates[i](record)`` is true, else on the last output."""

    kind = "branch"
    predicates: tuple[Callable[[Any], Any], ...]


@dataclass(frozen=True)
class UnionStep(_Step):
    """Emits every record of every input."""

    kind = "union"
    inputs: tuple[Ref, ...]


@dataclass(frozen=True)
class LogStep(_OneInput):
    """Writes each record to the task's log and emits it. An end may follow it, or nothing."""

    kind = "log"
    level: str = "INFO"


@dataclass(frozen=True)
class LookupStep(_OneInput):
    """Emits ``Matched(record, row)`` for each row of ``table`` whose ``table_key`` equals the record's ``on``; with
    ``how`` "left" also ``Matched(record, None)`` for a record without a row. The table is a finite source that does not
    change, read whole wherever the step runs."""

    kind = "lookup"
    table: Source[Any]
    table_key: Extractor
    on: Extractor
    how: str = "inner"


@dataclass(frozen=True, slots=True)
class Windowing:
    """``event_time`` None: the time the record has from its source."""

    window: Window
    event_time: EventTime | None
    allowed_lateness_ms: int = 0

    @property
    def wait_ms(self) -> int:
        """A window is closed when the watermark is so far beyond its end."""
        return self.allowed_lateness_ms + self.window.merges


@dataclass(frozen=True)
class ReduceStep(_OneInput):
    """One result per key, or per key and window: ``monoid`` over ``value(record)`` of the records of equal key.

    Keys are equal when their canonical encodings are (``heron_runtime.model.keys``): 1, 1.0 and True are one key. The
    key that is emitted is one of those that were equal; which one is not said.

    With ``windowing`` (output 0, ``Windowed``): each record counts in each of its windows, or in its session. Batch:
    every window that got a record. Online: once, when the watermark reaches ``end + allowed_lateness`` (of a session:
    passes it); the watermark is the least, over all source tasks that are neither idle nor at their end, of the
    greatest event time seen of that task; a source at its end closes everything. What comes for a closed window goes,
    reduced, to output 1 (``LATE``) as ``Windowed`` rows and is counted there; batch has no late data.

    Without (``KeyValue``): batch: one per key. Online: a running result for each key that has changed, at most once a
    second, if ``updates``; and when all (finite) sources are at their end, the final one for each key. So the last
    result of each key is the batch's.

    With ``process`` its windows are moments and its monoid gathers their records; what is emitted is what the handlers
    emit, when the watermark has passed the moment and the allowed lateness (process.py). Late data is as elsewhere.

    ``plain``: key, value and time are fields and the monoid is built in, so an engine may compute it without Python
    if it knows the fields' types.
    """

    kind = "reduce"
    key: Extractor
    value: Extractor
    monoid: Monoid[Any, Any]
    windowing: Windowing | None = None
    updates: bool = True
    key_step: str = ""  # the names the user gave to key_by and window, for messages
    window_step: str = ""
    process: Handlers | None = None

    @property
    def merges(self) -> bool:
        """Its windows are sessions: an accumulator is a pair (sessions.py)."""
        return self.windowing is not None and self.windowing.window.merges

    @property
    def counts(self) -> bool:
        """Its accumulators are numbers of records."""
        return self.monoid.builtin == "count" and not self.merges

    @property
    def plain(self) -> bool:
        """See above."""
        time = self.windowing.event_time if self.windowing else None
        own = time is None or time.extractor.plain
        return self.key.plain and self.value.plain and own and self.monoid.builtin is not None


@dataclass(frozen=True)
class SinkStep(_OneInput):
    """Gives each record to the sink."""

    kind = "sink"
    sink: Sink

    @property
    def told(self) -> str:
        """Description of the sink, with the address of a server."""
        return f"{self.kind}: {self.sink}" if isinstance(self.sink, ServerSink) else self.kind


Step: TypeAlias = (
    SourceStep
    | MapStep
    | SchemaStep
    | FlatMapStep
    | FilterStep
    | BranchStep
    | UnionStep
    | TapStep
    | LogStep
    | LookupStep
    | ReduceStep
    | SinkStep
)
ENDS = (SinkStep, TapStep, LogStep)  # a stream may end behind these


@dataclass(frozen=True)
class Program:
    """Checked steps, inputs first. ``config`` is the topology's (online); engines that know it not leave it alone."""

    name: str
    steps: tuple[Step, ...]
    config: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Step]:
        """Every step by its name."""
        return {step.name: step for step in self.steps}

    def sources(self) -> Iterator[SourceStep]:
        """In order."""
        return (step for step in self.steps if isinstance(step, SourceStep))

    def reads(self) -> Iterator[tuple[str, Source[Any]]]:
        """Everything the program reads, by its step: sources and tables, in order."""
        for step in self.steps:
            if isinstance(step, SourceStep):
                yield step.name, step.source
            elif isinstance(step, LookupStep):
                yield step.name, step.table

    def sinks(self) -> Iterator[SinkStep]:
        """In order."""
        return (step for step in self.steps if isinstance(step, SinkStep))

    def schema_at(self, ref: Ref) -> RecordSchema | None:
        """The schema that every record of a stream is known to have: that of the step it comes of, or of those before
        where steps pass records on as they are."""
        found: dict[str, RecordSchema | None] = {}
        for step in self.steps:  # inputs come first
            if isinstance(step, SchemaStep):
                found[step.name] = step.schema
            elif isinstance(step, FilterStep | BranchStep | UnionStep | TapStep | LogStep):
                first, *others = (found[before.step] for before in step.inputs)
                found[step.name] = first if all(other == first for other in others) else None
            else:
                found[step.name] = None
        return found[ref.step]

    def readers(self, step: str, output: int | None = None) -> list[Step]:
        """The steps that read this one (one of its outputs, or any), in order."""
        return [
            reader
            for reader in self.steps
            for ref in reader.inputs
            if ref.step == step and (output is None or ref.output == output)
        ]

    def describe(self) -> str:
        """One line a step, for people."""
        lines = []
        for step in self.steps:
            inputs = ", ".join(ref.step + (f"[{ref.output}]" if ref.output else "") for ref in step.inputs)
            lines.append(f"{step.name}: {step.told}" + (f" <- {inputs}" if inputs else ""))
        return "\n".join(lines)

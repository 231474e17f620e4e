"""Program: a frozen graph of steps, the same for every engine, and its segments. No I/O and no engine code.

Theory of operation. ``Builder`` (builder.py) records the user's calls. ``build`` checks them (check.py) and makes a
``Program``: steps in an order in which every step comes after its inputs. A step has a name that is unique in the
program and safe in file names, and a parallelism (None: chosen by the engine; online 1).

``key_by`` and ``window`` are not steps. They become part of the reducer that follows them, so an engine sees one
``ReduceStep`` with everything it needs. The semantics of each step are in its docstring.
docs/reference/streamlet-semantics.md has the same as tables.

A stream is a bag of records: their order has no meaning unless a step says so. Functions depend only on their argument.
An engine may call them again for the same record (replays), on any machine.

Every record has an *event time* if its source was declared with one. Records derived by map, flat_map, filter, branch,
union or tap have the event time of the original record. Results of a windowed reducer have the time ``end - 1`` (the
last millisecond of the window). Results of a reducer without windows have none. Records that ``process`` emits have the
time of the record or timer that they were emitted for.

Every engine cuts at the reducers: the steps before a reducer and those after it run separately. A
*segment* is named by its entry, the step that it begins with. It contains every step that its records reach before the
next cut. A stream into the step that begins another segment is an *exchange*. An engine may cut at additional steps
(``begins``). Without such a cut, a step whose inputs are of several segments runs in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias

from typing_extensions import TypeVar

from heronry.streamlet.endpoints import Sink, Source
from heronry.streamlet.extract import Extractor
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.process import Handlers
from heronry.streamlet.schema import RecordConverter, RecordSchema
from heronry.streamlet.server_sinks import ServerSink
from heronry.streamlet.windows import Window


class Ref(NamedTuple):
    """Output of a step. ``output`` is 0, except for a branch (its number) and late data (1)."""

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
    """Result of a windowed reducer. ``start`` and ``end`` (exclusive) are milliseconds since 1970 UTC."""

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
    """Extractor of a record's event time, and the unit of a number ("s" or "ms")."""

    extractor: Extractor
    unit: str = "s"


StepKind = Literal[
    "source", "map", "schema", "flat_map", "filter", "branch", "union", "tap", "log", "lookup", "reduce", "sink"
]


@dataclass(frozen=True)
class _Step:
    """Base class of all steps."""

    kind: ClassVar[StepKind]
    name: str
    parallelism: int | None = field(default=None, kw_only=True)

    @property
    def description(self) -> str:
        """Description of the step, for plans."""
        return self.kind


@dataclass(frozen=True)
class SourceStep(_Step):
    """Step that emits each record of the source at least once; in batch exactly once."""

    kind = "source"
    inputs: ClassVar[tuple[Ref, ...]] = ()
    source: Source[Any]
    event_time: EventTime | None = None


@dataclass(frozen=True)
class _OneInput(_Step):
    """Base class of steps with one input."""

    input: Ref

    @property
    def inputs(self) -> tuple[Ref, ...]:
        return (self.input,)


@dataclass(frozen=True)
class _FunctionStep(_OneInput):
    """Base class of steps with one function of a record."""

    function: Callable[[Any], Any]


class MapStep(_FunctionStep):
    """Step that emits ``function(record)``."""

    kind: ClassVar[StepKind] = "map"


@dataclass(frozen=True)
class SchemaStep(MapStep):
    """Step that emits the record as a dict of the schema's fields, typed (conform.py).

    A record that does not fit fails. An engine may do this without Python, and carry the fields as columns, if the
    result is the same.
    """

    kind: ClassVar[StepKind] = "schema"
    function: RecordConverter

    @property
    def schema(self) -> RecordSchema:
        """Schema of the records that the step emits."""
        return self.function.schema

    @property
    def description(self) -> str:
        """Description of the step, with the fields."""
        return f"schema {self.schema}"


class FlatMapStep(_FunctionStep):
    """Step that emits each element of the iterable ``function(record)``, which may be empty."""

    kind = "flat_map"


class FilterStep(_FunctionStep):
    """Step that emits the record if ``function(record)`` is true."""

    kind = "filter"


class TapStep(_FunctionStep):
    """Step that calls ``function(record)`` at least once for each record, ignores the result and emits the record."""

    kind = "tap"


@dataclass(frozen=True)
class BranchStep(_OneInput):
    """Step that emits each record on one of several outputs.

    This is output i for the first i whose ``predicates[i](record)`` is true, or else the last output.
    """

    kind = "branch"
    predicates: tuple[Callable[[Any], Any], ...]


@dataclass(frozen=True)
class UnionStep(_Step):
    """Step that emits every record of every input."""

    kind = "union"
    inputs: tuple[Ref, ...]


@dataclass(frozen=True)
class LogStep(_OneInput):
    """Step that writes each record to the task's log and emits it. A stream may end at this step."""

    kind = "log"
    level: str = "INFO"


@dataclass(frozen=True)
class LookupStep(_OneInput):
    """Step that emits ``Matched(record, row)`` for each row of ``table`` whose key equals that of the record.

    The keys are ``table_key`` of the row and ``on`` of the record. With ``how`` "left" the step also emits
    ``Matched(record, None)`` for a record without a row. The table is a finite source that does not change. It is read
    whole wherever the step runs.
    """

    kind = "lookup"
    table: Source[Any]
    table_key: Extractor
    on: Extractor
    how: str = "inner"


@dataclass(frozen=True, slots=True)
class Windowing:
    """Windows of a reducer. ``event_time`` None: the time that the record has from its source."""

    window: Window
    event_time: EventTime | None
    allowed_lateness_ms: int = 0

    @property
    def wait_ms(self) -> int:
        """Distance of the watermark from the end of a window at which the window is closed."""
        return self.allowed_lateness_ms + self.window.merges


@dataclass(frozen=True)
class ReduceStep(_OneInput):
    """Step that emits one result per key, or per key and window.

    The result is ``monoid`` over ``value(record)`` of the records with an equal key. Keys are equal if their canonical
    encodings are (``heron_runtime.model.keys``): 1, 1.0 and True are one key. The emitted key is one of those that were
    equal; which one is unspecified.

    With ``windowing`` (output 0, ``Windowed``), each record counts in each of its windows, or in its session. In batch,
    every window that got a record has a result. Online, a window has one result, when the watermark reaches ``end +
    allowed_lateness`` (for a session: passes it). The watermark is the minimum, over all source tasks that are neither
    idle nor at their end, of the greatest event time seen of that task. If the task reads several splits that grow,
    it is the least of its active splits. A source at its end closes everything. Records for a closed window are reduced
    and emitted on output 1 (``LATE``) as ``Windowed`` rows, and counted there. Batch has no late data.

    Without windows (``KeyValue``), batch has one result per key. Online, with ``updates``, there is a running result
    for each key that has changed, at most once a second. When all (finite) sources are at their end, the final result
    of each key is emitted. The last result of each key therefore equals that of the batch.

    With ``process``, windows are moments, and the monoid gathers their records. The step emits what the handlers emit,
    when the watermark has passed the moment and the allowed lateness (process.py). Late data is as above.

    ``plain`` means that key, value and time are fields and the monoid is built in. An engine may then compute the
    result without Python, if it knows the fields' types.
    """

    kind = "reduce"
    key: Extractor
    value: Extractor
    monoid: Monoid[Any, Any]
    windowing: Windowing | None = None
    updates: bool = True
    key_step: str = ""  # names that the user gave to key_by and window, for messages
    window_step: str = ""
    process: Handlers | None = None

    @property
    def merges(self) -> bool:
        """True if its windows are sessions: an accumulator is a pair (sessions.py)."""
        return self.windowing is not None and self.windowing.window.merges

    @property
    def counts(self) -> bool:
        """True if its accumulators are numbers of records."""
        return self.monoid.builtin == "count" and not self.merges

    @property
    def plain(self) -> bool:
        """True if key, value and time are fields and the monoid is built in."""
        time = self.windowing.event_time if self.windowing else None
        own = time is None or time.extractor.plain
        return self.key.plain and self.value.plain and own and self.monoid.builtin is not None


@dataclass(frozen=True)
class SinkStep(_OneInput):
    """Step that gives each record to the sink."""

    kind = "sink"
    sink: Sink

    @property
    def description(self) -> str:
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
ENDS = (SinkStep, TapStep, LogStep)  # a stream may end with one of these


@dataclass(frozen=True)
class Program:
    """Checked steps, inputs first.

    ``config`` is that of the topology (online). Other engines ignore settings that they do not know.
    """

    name: str
    steps: tuple[Step, ...]
    config: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Step]:
        """Steps by name."""
        return {step.name: step for step in self.steps}

    def sources(self) -> Iterator[SourceStep]:
        """Return the source steps, in order."""
        return (step for step in self.steps if isinstance(step, SourceStep))

    def reads(self) -> Iterator[tuple[str, Source[Any]]]:
        """Yield everything that the program reads, with its step's name: sources and tables, in order."""
        for step in self.steps:
            if isinstance(step, SourceStep):
                yield step.name, step.source
            elif isinstance(step, LookupStep):
                yield step.name, step.table

    def sinks(self) -> Iterator[SinkStep]:
        """Return the sink steps, in order."""
        return (step for step in self.steps if isinstance(step, SinkStep))

    def schema_at(self, ref: Ref) -> RecordSchema | None:
        """Return the schema that every record of a stream is known to have, or None.

        This is the schema of the step that emits the stream, or of earlier steps if the steps between pass on records
        unchanged.
        """
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
        """Return the steps that read this step (one of its outputs, or any), in order."""
        return [
            reader
            for reader in self.steps
            for ref in reader.inputs
            if ref.step == step and (output is None or ref.output == output)
        ]

    def drops_late(self) -> list[str]:
        """Return the steps with windows whose late data no step reads, in order."""
        windowed = (step.name for step in self.steps if isinstance(step, ReduceStep) and step.windowing is not None)
        return [name for name in windowed if not self.readers(name, LATE)]

    def describe(self) -> str:
        """Return a readable description, with one line per step."""
        lines = []
        for step in self.steps:
            inputs = ", ".join(ref.step + (f"[{ref.output}]" if ref.output else "") for ref in step.inputs)
            lines.append(f"{step.name}: {step.description}" + (f" <- {inputs}" if inputs else ""))
        return "\n".join(lines)


class Exchange(NamedTuple):
    """Stream that leaves its segment. ``reader`` is the step that begins another segment."""

    ref: Ref
    reader: str


@dataclass(frozen=True, slots=True)
class Segment:
    """Segment of a program. ``steps`` are in the program's order, the entry first."""

    entry: str
    steps: tuple[str, ...]
    exchanges: tuple[Exchange, ...]


def at_reducers(step: Step, entries: list[str]) -> bool:
    """Return True for the steps at which every engine cuts."""
    return isinstance(step, SourceStep | ReduceStep)


def split_into_segments(
    program: Program, begins: Callable[[Step, list[str]], bool] = at_reducers
) -> dict[str, Segment]:
    """Return the segments by their entries, inputs first.

    Args:
        program: The program.
        begins: Function that returns True if a segment begins at a step. It is called once for each step, in order,
            with the entries of the segments that the step reads. It must return True where ``at_reducers`` does.
    """
    steps: dict[str, list[str]] = {}
    exchanges: dict[str, list[Exchange]] = {}
    homes: dict[str, list[str]] = {}  # segments that contain a step
    for step in program.steps:
        entries = list(dict.fromkeys(entry for ref in step.inputs for entry in homes[ref.step]))
        if begins(step, entries):
            for ref in step.inputs:
                for entry in homes[ref.step]:
                    exchanges[entry].append(Exchange(ref, step.name))
            steps[step.name], exchanges[step.name] = [], []
            entries = [step.name]
        homes[step.name] = entries
        for entry in entries:
            steps[entry].append(step.name)
    return {
        entry: Segment(entry, tuple(inside), tuple(dict.fromkeys(exchanges[entry]))) for entry, inside in steps.items()
    }

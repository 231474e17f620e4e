"""Planner of the stages of a program: which steps run together online, in one component. Pure.

A *stage* is one of three kinds:

- a spout (one source step);
- a chain (fused record-wise steps);
- a reducer (one reduce step, fused with the record-wise steps downstream of it).

Each segment of the program becomes one stage; the segment of a source becomes two. A source is never fused
with the steps that follow it, so reading and forwarding blocks has a process of its own (figures:
docs/explanation/streamlet.md). Besides reducers, a segment begins at a step whose parallelism differs from that of its
input, and at a union of several segments.

The map side of a reducer runs in the stage of its input: rows are combined there per key before they are shuffled.
The submitting process and the instances compute the same stages from the same program, so only names are transmitted.

The streams between the components:

- ``blocks``: source to chain. Each tuple is a piece of a file or of a sequence.
- ``hop-STEP-OUTPUT``: an exchange, to a chain. Each tuple is a block of records. The sender pickles them, so that a
  record that cannot be sent is detected while it can still be put aside.
- ``rows-REDUCER``: to a reducer. One row for each key of a block, grouped by key. With windows, one for each key and
  window, with the number of records that have this window as their first one. A late record is thus counted once.
- ``marks``: to every downstream component. The progress of event time.
- ``splits``: the progress of event time by split (split_reports.py). It exists downstream of a source that grows, if a
  window takes the event time from its own records.

Records that are late for a window, if a step reads them, are sent on ``hop-REDUCER-1`` or stay in the reducer's own
stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from heronry.api.errors import TopologyError
from heronry.streamlet.endpoints import ArchiveSink, ViewSink
from heronry.streamlet.program import (
    Exchange,
    Program,
    ReduceStep,
    Ref,
    Segment,
    SinkStep,
    SourceStep,
    Step,
    at_reducers,
    split_into_segments,
)


class StageKind(StrEnum):
    """Kind of component that a stage becomes."""

    SOURCE = "source"
    CHAIN = "chain"
    REDUCER = "reducer"


@dataclass(frozen=True, slots=True)
class ProgramStage:
    """Stage of a program, which becomes one component.

    Attributes:
        steps: Names of its steps, in order.
        exchanges: Outputs that go to chains, as blocks.
        combines: Reducers whose map side runs in this stage.
    """

    name: str
    kind: StageKind
    parallelism: int
    steps: tuple[str, ...]
    exchanges: tuple[Exchange, ...] = ()
    combines: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # names of the stages it reads


@dataclass(frozen=True)
class StageGraph:
    """All stages of a program. Each stage comes after its inputs."""

    program: Program
    stages: tuple[ProgramStage, ...]

    def stage(self, name: str) -> ProgramStage:
        """Return the stage of a component name.

        Raises:
            KeyError: The name is unknown.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def origins(self, name: str) -> dict[str, list[str]]:
        """Return, for each stage that this one reads, the stages whose tasks are the origins of its blocks.

        Sources and reducers are origins. A chain forwards the origins of its input.
        """
        found: dict[str, list[str]] = {}
        for stage in self.stages:  # inputs come first
            passed_on = dict.fromkeys(origin for before in stage.inputs for origin in found.get(before, ()))
            found[stage.name] = list(passed_on) if stage.kind is StageKind.CHAIN else [stage.name]
        return {before: found[before] for before in self.stage(name).inputs}

    def reported(self, name: str) -> dict[str, list[str]]:
        """Return, for each stage that this one reads, the sources whose progress arrives by split."""
        program = self.program
        sources = {step.name for step in program.sources() if reports_splits(program, step)}
        found = {before: [o for o in origins if o in sources] for before, origins in self.origins(name).items()}
        return {before: origins for before, origins in found.items() if origins}


def plan_stages(program: Program) -> StageGraph:
    """Return the stages of a program.

    Raises:
        TopologyError: The program cannot run online.
    """
    tasks = _Tasks(program)
    segments = split_into_segments(program, tasks.begins)
    order = {step.name: place for place, step in enumerate(program.steps)}
    stages = [stage for segment in segments.values() for stage in _stages_of(program, segment, tasks[segment.entry])]
    stages.sort(key=lambda s: min(order[name] for name in (*s.steps, *s.combines)))  # a separate map side comes first
    wired = []
    for stage in stages:
        inputs = [
            before.name
            for before in stages
            if stage.name in before.combines or any(exchange.reader == stage.name for exchange in before.exchanges)
        ]
        wired.append(replace(stage, inputs=tuple(inputs)))
    return StageGraph(program, tuple(wired))


class _Tasks(dict[str, int]):
    """Parallelism of each segment, by the name of its entry step."""

    def __init__(self, program: Program) -> None:
        self._sources = {step.name for step in program.sources()}

    def begins(self, step: Step, entries: list[str]) -> bool:
        """Return True if the online engine begins a segment at this step.

        Raises:
            TopologyError: A view would run in another stage than its reducer.
        """
        width = step.parallelism or max((self[entry] for entry in entries), default=1)
        # A source is a separate stage, so a union of a source and a stream derived from it also spans several stages.
        read = {ref.step for ref in step.inputs}
        several = len(entries) > 1 or (len(read) > 1 and not read.isdisjoint(self._sources))
        apart = several or any(width != self[entry] for entry in entries)
        if apart and isinstance(step, SinkStep) and isinstance(step.sink, ViewSink):
            raise TopologyError(
                f"step {step.name!r}: a view is written where its reducer {step.input.step!r} runs; leave parallelism "
                "out"
            )
        if apart or at_reducers(step, entries):
            self[step.name] = width
            return True
        return False


def _stages_of(program: Program, segment: Segment, tasks: int) -> list[ProgramStage]:
    entry = program.by_name[segment.entry]
    combines = tuple(e.reader for e in segment.exchanges if isinstance(program.by_name[e.reader], ReduceStep))
    exchanges = tuple(e for e in segment.exchanges if e.reader not in combines)
    if not isinstance(entry, SourceStep):
        kind = StageKind.REDUCER if isinstance(entry, ReduceStep) else StageKind.CHAIN
        return [ProgramStage(entry.name, kind, tasks, segment.steps, exchanges, combines)]
    # The stage of the source, and the chain directly downstream of it, named by its first step.
    own, fused = Ref(entry.name), segment.steps[1:]
    first = next((step.name for step in program.steps if step.name in fused or step.name in combines), None)
    if first is None:
        return [ProgramStage(entry.name, StageKind.SOURCE, tasks, segment.steps[:1], exchanges)]
    chain = first if first in fused else f"{first}-combine"
    from_source = (Exchange(own, chain), *(e for e in exchanges if e.ref == own))
    from_chain = tuple(e for e in exchanges if e.ref != own)
    return [
        ProgramStage(entry.name, StageKind.SOURCE, tasks, segment.steps[:1], from_source),
        ProgramStage(chain, StageKind.CHAIN, tasks, fused, from_chain, combines),
    ]


def needs_times(program: Program, step: Step) -> bool:
    """Return True if this step, or one downstream of it, needs the event times that the source provides."""

    def asks(end: Step) -> bool:
        if isinstance(end, ReduceStep):
            if end.windowing is not None:
                return end.windowing.event_time is None
            return view_of(program, end) is not None
        return isinstance(end, SinkStep) and isinstance(end.sink, ArchiveSink) and end.sink.event_time is None

    return any(map(asks, _reached(program, step)))


def reports_splits(program: Program, step: SourceStep) -> bool:
    """Return True if the source grows, and a window downstream takes the event time from its own records."""
    return getattr(step.source, "grows", False) and any(
        isinstance(end, ReduceStep) and end.windowing is not None and end.windowing.event_time is not None
        for end in _reached(program, step)
    )


def needs_ids(program: Program, step: Step) -> bool:
    """Return True if this step is an archive, or one is downstream of it."""
    return any(isinstance(end, SinkStep) and isinstance(end.sink, ArchiveSink) for end in _reached(program, step))


def _reached(program: Program, step: Step) -> list[Step]:
    """Return the step and all steps that its records reach, each once.

    Reducers are included. The steps downstream of them are not.
    """
    names, found = {step.name}, [step]
    for later in program.steps:  # inputs come first
        before = {ref.step for ref in later.inputs} & names
        if any(not isinstance(program.by_name[name], ReduceStep) for name in before):
            names.add(later.name)
            found.append(later)
    return found


def view_of(program: Program, step: ReduceStep) -> ViewSink | None:
    """Return the first view that the reducer is published as, or None."""
    for reader in program.readers(step.name, 0):
        if isinstance(reader, SinkStep) and isinstance(reader.sink, ViewSink):
            return reader.sink
    return None


BLOCKS = "blocks"
MARKS = "marks"
BLOCK_FIELDS = ("file", "first", "count", "header", "data")
RECORDS = "records"  # field of rows: number of records
EXCHANGE_FIELDS = ("origin", "records", "times", "ids")
SPLIT = "split"  # field of blocks of records, where the progress of event time is reported by split
MARK_FIELDS = ("kind", "origin", "time", "target")
SPLITS = "splits"
SPLITS_FIELDS = ("origin", "number", "reducer", "active", "idle", "times")


def has_stream(context: Any, component: str, stream: str) -> bool:
    """Return True if the component declares the stream. A topology of an earlier version may lack it."""
    try:
        return bool(context.get_fields(component, stream))
    except KeyError:
        return False


def exchange_stream(ref: Ref) -> str:
    """Return the name of the stream that carries an output to chains."""
    return f"hop-{ref.step}-{ref.output}"  # metrics use this name


def rows_stream(reducer: str) -> str:
    """Return the name of the stream that carries rows to a reducer."""
    return f"rows-{reducer}"

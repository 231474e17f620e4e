"""Which steps run together online: a program cut into stages, one component each. Pure.

Theory of operation. A *stage* is a spout (one source step), a chain (record-wise steps, fused) or a reducer (one reduce
step, and the record-wise steps behind it, fused). Each segment of the program (cut.py) is one, and that of a source
two: a source is never fused with what follows, so reading and passing on blocks has a process of its own (figures:
docs/explanation/streamlet.md). Besides the reducers, a segment begins at a step that asks for another parallelism than
its input has, and at a union of several segments.

The map side of a reducer runs in the stage of its input: rows are combined there per key before they are shuffled.
Submitting process and instances compute the same stages from the same program, so nothing but names travels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from heronry.api.errors import TopologyError
from heronry.streamlet.cut import Exchange, Segment, at_reducers, split_into_segments
from heronry.streamlet.endpoints import ArchiveSink, ViewSink
from heronry.streamlet.program import (
    Program,
    ReduceStep,
    Ref,
    SinkStep,
    SourceStep,
    Step,
)


class StageKind(StrEnum):
    """What the component is."""

    SOURCE = "source"
    CHAIN = "chain"
    REDUCER = "reducer"


@dataclass(frozen=True, slots=True)
class ProgramStage:
    """One component. ``steps`` in order; ``exchanges`` go to chains, as blocks; ``combines``: reducers whose map side
    runs here."""

    name: str
    kind: StageKind
    parallelism: int
    steps: tuple[str, ...]
    exchanges: tuple[Exchange, ...] = ()
    combines: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # stages it reads


@dataclass(frozen=True)
class StageGraph:
    """All of a program, inputs first."""

    program: Program
    stages: tuple[ProgramStage, ...]

    def stage(self, name: str) -> ProgramStage:
        """By component name. Raises KeyError."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def origins(self, name: str) -> dict[str, list[str]]:
        """For each stage that this one reads: the stages whose tasks give its blocks their origin.

        Sources are origins, and reducers; a chain passes the origins of its input on.
        """
        found: dict[str, list[str]] = {}
        for stage in self.stages:  # inputs come first
            passed_on = dict.fromkeys(origin for before in stage.inputs for origin in found.get(before, ()))
            found[stage.name] = list(passed_on) if stage.kind is StageKind.CHAIN else [stage.name]
        return {before: found[before] for before in self.stage(name).inputs}


def plan_stages(program: Program) -> StageGraph:
    """The stages of a program. Raises TopologyError for what cannot run online."""
    tasks = _Tasks(program)
    segments = split_into_segments(program, tasks.begins)
    order = {step.name: place for place, step in enumerate(program.steps)}
    stages = [stage for segment in segments.values() for stage in _stages_of(program, segment, tasks[segment.entry])]
    stages.sort(key=lambda s: min(order[name] for name in (*s.steps, *s.combines)))  # a map side of its own comes first
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
    """The parallelism of each segment, by its entry."""

    def __init__(self, program: Program) -> None:
        self._sources = {step.name for step in program.sources()}

    def begins(self, step: Step, entries: list[str]) -> bool:
        """Where the online engine cuts. Raises TopologyError."""
        width = step.parallelism or max((self[entry] for entry in entries), default=1)
        # A source is a stage of its own, so a union of it and of what comes of it is of several stages too.
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
    # The stage of a source, and the chain right behind it, named by its first step.
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
    """True if something behind this step (or the step itself) asks for a record's event time from its source."""

    def asks(end: Step) -> bool:
        if isinstance(end, ReduceStep):
            if end.windowing is not None:
                return end.windowing.event_time is None
            return view_of(program, end) is not None
        return isinstance(end, SinkStep) and isinstance(end.sink, ArchiveSink) and end.sink.event_time is None

    return any(map(asks, _reached(program, step)))


def needs_ids(program: Program, step: Step) -> bool:
    """True if an archive stands behind this step, or is it."""
    return any(isinstance(end, SinkStep) and isinstance(end.sink, ArchiveSink) for end in _reached(program, step))


def _reached(program: Program, step: Step) -> list[Step]:
    """Return the step and all that its records come to, up to the next reducers; each once."""
    names, found = {step.name}, [step]
    for later in program.steps:  # inputs come first
        before = {ref.step for ref in later.inputs} & names
        if any(not isinstance(program.by_name[name], ReduceStep) for name in before):
            names.add(later.name)
            found.append(later)
    return found


def view_of(program: Program, step: ReduceStep) -> ViewSink | None:
    """The first view the reducer is published as."""
    for reader in program.readers(step.name, 0):
        if isinstance(reader, SinkStep) and isinstance(reader.sink, ViewSink):
            return reader.sink
    return None

"""Which steps run together online: a program cut into stages, one component each. Pure.

Theory of operation. A *stage* is a spout (one source step), a chain (record-wise steps, fused) or a reducer (one reduce
step, and the record-wise steps behind it, fused). A record-wise step joins the stage of its input unless it asks for
another parallelism; a union of several stages, and the first step behind a source, begin a new one. A source is never
fused with what follows: a spout's emit opens a root for each row, while a chain in a bolt hangs all rows that come of a
block of records on the block's one root, which is what makes acks cheap here (figures: docs/streamlet.md).

The map side of a reducer runs in the stage of its input: rows are combined there per key before they are shuffled.
Submitting process and instances compute the same stages from the same program, so nothing but names travels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from heronry.api.errors import TopologyError
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
class Hop:
    """A stream from a stage to a chain: what a step's output carries, as blocks."""

    ref: Ref
    destination: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One component. ``steps`` in order; ``combines``: reducers whose map side runs here."""

    name: str
    kind: StageKind
    parallelism: int
    steps: tuple[str, ...]
    hops: tuple[Hop, ...] = ()
    combines: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # stages it reads


@dataclass(frozen=True)
class Stages:
    """All of a program, inputs first."""

    program: Program
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """By component name. Raises KeyError."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def origins(self, name: str) -> dict[str, list[str]]:
        """For each stage that this one reads: the stages whose tasks give its blocks their origin.

        Sources are origins, and reducers; a chain passes the origins of its input on.
        """
        return {before: self._origins_of(before) for before in self.stage(name).inputs}

    def pulse_source(self, name: str) -> str | None:
        """Whose pulses confirm the results of this reducer (pulses.py); None if they stay in its process."""
        stage = self.stage(name)
        if stage.kind is not StageKind.REDUCER or not (stage.hops or stage.combines):
            return None
        return next(s.name for s in self.stages if s.kind is StageKind.SOURCE and s.name in self._ahead_of(name))

    def pulse_edges(self) -> set[tuple[str, str]]:
        """The pairs of stages (sender, receiver) between which pulses travel."""
        edges = set()
        for stage in self.stages:
            source = self.pulse_source(stage.name)
            if source is not None:
                ahead = self._ahead_of(stage.name)
                on_way = {s for s in ahead if source in self._ahead_of(s)}
                edges |= {(before, s) for s in on_way for before in self.stage(s).inputs if before in on_way}
        return edges

    def _ahead_of(self, name: str) -> set[str]:
        """The stage and all it lives on."""
        found = {name}
        for before in self.stage(name).inputs:
            found |= self._ahead_of(before)
        return found

    def _origins_of(self, name: str) -> list[str]:
        stage = self.stage(name)
        if stage.kind is not StageKind.CHAIN:
            return [name]
        return list(dict.fromkeys(origin for before in stage.inputs for origin in self._origins_of(before)))


class _Draft:
    def __init__(self, name: str, kind: StageKind, parallelism: int) -> None:
        self.name, self.kind, self.parallelism = name, kind, parallelism
        self.steps: list[str] = []
        self.hops: list[Hop] = []
        self.combines: list[str] = []
        self.inputs: list[str] = []

    def frozen(self) -> Stage:
        hops, combines, inputs = (
            tuple(dict.fromkeys(self.hops)),
            tuple(self.combines),
            tuple(dict.fromkeys(self.inputs)),
        )
        return Stage(self.name, self.kind, self.parallelism, tuple(self.steps), hops, combines, inputs)


def cut(program: Program) -> Stages:
    """The stages of a program. Raises TopologyError for what cannot run online."""
    cutter = _Cutter(program)
    for step in program.steps:
        cutter.place(step)
    return Stages(program, tuple(draft.frozen() for draft in cutter.drafts))


class _Cutter:
    """Gives each step its home, inputs first."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._home: dict[str, _Draft] = {}
        self._chains: dict[str, _Draft] = {}  # by source: the chain right behind it that has its parallelism
        self.drafts: list[_Draft] = []

    def place(self, step: Step) -> None:
        """Put the step into a stage, and connect it."""
        if isinstance(step, SourceStep):
            draft = self._begin(step.name, StageKind.SOURCE, step.parallelism or 1)
        elif isinstance(step, ReduceStep):
            host = self._host(step)
            draft = self._begin(step.name, StageKind.REDUCER, step.parallelism or host.parallelism)
            host.combines.append(step.name)
            draft.inputs.append(host.name)
        else:
            draft = self._join(step) or self._begin_chain(step)
            for ref in step.inputs:
                self._hop(ref, draft)
        draft.steps.append(step.name)
        self._home[step.name] = draft

    def _begin(self, name: str, kind: StageKind, parallelism: int) -> _Draft:
        draft = _Draft(name, kind, parallelism)
        self.drafts.append(draft)
        return draft

    def _begin_chain(self, step: Step) -> _Draft:
        before = {home.name: home for home in (self._home[ref.step] for ref in step.inputs)}
        widest = max(home.parallelism for home in before.values())
        draft = self._begin(step.name, StageKind.CHAIN, step.parallelism or widest)
        only = next(iter(before.values())) if len(before) == 1 else None
        if only is not None and only.kind is StageKind.SOURCE and only.parallelism == draft.parallelism:
            self._chains[only.name] = draft
        return draft

    def _join(self, step: Step) -> _Draft | None:
        """The stage the step joins, or None if it begins one."""
        before = {home.name: home for home in (self._home[ref.step] for ref in step.inputs)}
        if len(before) > 1:
            return None
        (draft,) = before.values()
        same = step.parallelism in (None, draft.parallelism)
        if isinstance(step, SinkStep) and isinstance(step.sink, ViewSink) and not same:
            raise TopologyError(
                f"step {step.name!r}: a view is written where its reducer {step.input.step!r} runs; leave parallelism "
                "out"
            )
        if not same:
            return None
        return self._chains.get(draft.name) if draft.kind is StageKind.SOURCE else draft

    def _host(self, step: ReduceStep) -> _Draft:
        """The stage in which the reducer's map side runs: right behind a source it may need one of its own."""
        before = self._home[step.input.step]
        if before.kind is not StageKind.SOURCE:
            return before
        chain = self._chains.get(before.name)
        if chain is None:
            chain = self._chains[before.name] = self._begin(f"{step.name}-combine", StageKind.CHAIN, before.parallelism)
        self._hop(step.input, chain)
        return chain

    def _hop(self, ref: Ref, draft: _Draft) -> None:
        before = self._home[ref.step]
        if before is not draft:
            before.hops.append(Hop(ref, draft.name))
            draft.inputs.append(before.name)


def needs_times(program: Program, step: Step) -> bool:
    """True if something behind this step (or the step itself) asks for a record's event time from its source."""
    if isinstance(step, ReduceStep):
        if step.windowing is not None:
            return step.windowing.event_time is None
        return view_of(program, step) is not None
    if isinstance(step, SinkStep):
        return isinstance(step.sink, ArchiveSink) and step.sink.event_time is None
    return any(needs_times(program, reader) for reader in program.readers(step.name))


def needs_ids(program: Program, step: Step) -> bool:
    """True if an archive stands behind this step, or is it."""
    if isinstance(step, ReduceStep):
        return False
    if isinstance(step, SinkStep):
        return isinstance(step.sink, ArchiveSink)
    return any(needs_ids(program, reader) for reader in program.readers(step.name))


def view_of(program: Program, step: ReduceStep) -> ViewSink | None:
    """The first view the reducer is published as."""
    for reader in program.readers(step.name, 0):
        if isinstance(reader, SinkStep) and isinstance(reader.sink, ViewSink):
            return reader.sink
    return None

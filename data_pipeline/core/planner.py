"""Planner: turns a program into the plan of its batch job, with fused steps, SQL and shuffles. Pure.

The planner first rewrites the program (``prepare``): inputs that replace the declared ones, an archive that replaces
the step whose records it holds, and separate reducers for views with buckets. Then it cuts the program at the reducers
(plan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

from data_pipeline.core.columns import Columns, Decision, decided
from data_pipeline.core.plan import CannotPlan, Kind, Node, Output, Plan, Reduction, Scan, TaggedOutput, Unit
from heronry.streamlet.endpoints import BUILT_IN_SINKS, ArchiveSink, FileSource, ViewSink
from heronry.streamlet.lookup import without_lookups
from heronry.streamlet.program import (
    BranchStep,
    FilterStep,
    FlatMapStep,
    LogStep,
    MapStep,
    Program,
    ReduceStep,
    Ref,
    SinkStep,
    SourceStep,
    Step,
    TapStep,
    Windowing,
    split_into_segments,
)
from heronry.streamlet.windows import Window

VIEW_SUFFIX = "@"


@dataclass(frozen=True)
class Choice:
    """Options that the command line adds to a program.

    Attributes:
        inputs: Source step to the source that replaces it.
        archive: Source of format archive that replaces the step an archive sink reads.
        from_ms: First event time to include, in ms.
        to_ms: Event time in ms from which on records are left out.
    """

    inputs: Mapping[str, FileSource[Any]] = field(default_factory=dict)
    archive: FileSource[Any] | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    sinks: frozenset[str] | None = None  # only these sinks; None: all
    sql: bool = True  # False: no reducer is computed by SQL, which cannot say which record fails
    columns: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # source of Parquet or ORC → column → Spark type


def plan(program: Program, choice: Choice | None = None) -> Plan:
    """Return the plan of a program. Raises CannotPlan, naming the step."""
    choice = choice or Choice()
    prepared, notes = prepare(program, choice)
    return _Planner(prepared, choice).plan(notes)


def prepare(program: Program, choice: Choice) -> tuple[Program, tuple[str, ...]]:
    """Return the program as the batch runs it, and notes for the user. Raises CannotPlan."""
    notes = []
    steps = list(without_lookups(program).steps)
    for step in steps:
        if step.kind not in ("source", *get_args(Kind)):
            raise CannotPlan(f"step {step.name!r}: Spark cannot run the operator {type(step).__name__}")
    for name in choice.inputs:
        if not isinstance(program.by_name.get(name), SourceStep):
            raise CannotPlan(f"unknown source step {name!r}: its input cannot be replaced")
    steps = [
        replace(step, source=choice.inputs[step.name])
        if isinstance(step, SourceStep) and step.name in choice.inputs
        else step
        for step in steps
    ]
    if choice.archive is not None:
        steps = _from_archive(program, steps, choice.archive)
    prepared_steps: list[Step] = []
    for step in steps:
        if isinstance(step, SinkStep) and isinstance(step.sink, ArchiveSink):
            # The text must not change: ``portions.former_identity`` is a digest of descriptions.
            notes.append(f"step {step.name!r}: the archive is for the online topology; the batch leaves it alone")
        elif isinstance(step, SinkStep) and choice.sinks is not None and step.name not in choice.sinks:
            continue
        elif isinstance(step, SinkStep) and not isinstance(step.sink, BUILT_IN_SINKS):
            raise CannotPlan(
                f"step {step.name!r}: the sink {step.sink.kind!r} serves the online engine only, not spark"
            )
        else:
            prepared_steps.append(step)
    return replace(program, steps=tuple(_needed(_buckets(prepared_steps)))), tuple(notes)


def _from_archive(program: Program, steps: list[Step], source: FileSource[Any]) -> list[Step]:
    """Return the steps with the archived stream in place of the step that made it."""
    sinks = [step for step in program.sinks() if isinstance(step.sink, ArchiveSink)]
    if len(sinks) == 1:
        before = program.by_name[sinks[0].input.step]
        if sinks[0].input.output:
            raise CannotPlan(
                f"step {sinks[0].name!r} archives one output of the branch {before.name!r}; "
                "archive in front of the branch, or give --input-path without --input-format archive"
            )
    else:
        sources = list(program.sources())
        if len(sources) != 1:
            raise CannotPlan(
                f"the program has {len(sinks)} archive sinks and {len(sources)} sources, so it is not clear whose "
                "records the archive holds; write --input-path STEP=URL"
            )
        before = sources[0]
    time = before.event_time if isinstance(before, SourceStep) else None
    return [SourceStep(before.name, source, time) if step.name == before.name else step for step in steps]


def _buckets(steps: list[Step]) -> Iterator[Step]:
    """Give a view that reads a reducer without windows its own reducer, by key and bucket."""
    by_name = {step.name: step for step in steps}
    for step in steps:
        if isinstance(step, SinkStep) and isinstance(step.sink, ViewSink):
            before = by_name[step.input.step]
            if isinstance(before, ReduceStep) and before.windowing is None:
                name = f"{before.name}{VIEW_SUFFIX}{step.sink.name}"
                window = Window(step.sink.bucket_ms, step.sink.bucket_ms)
                yield replace(before, name=name, windowing=Windowing(window, None))
                step = replace(step, input=Ref(name))
        yield step


def _needed(steps: Iterator[Step]) -> list[Step]:
    """Return only the steps that a sink, tap or log needs; a reducer that was read only by a view is dropped."""
    needed = list(steps)
    wanted = {step.name for step in needed if isinstance(step, SinkStep | TapStep | LogStep)}
    for step in reversed(needed):
        if step.name in wanted:
            wanted |= {ref.step for ref in step.inputs}
    return [step for step in needed if step.name in wanted]


class _Planner:
    def __init__(self, program: Program, choice: Choice) -> None:
        self.program = program
        self.choice = choice
        self.by_name = {step.name: step for step in program.steps}
        self.segments = split_into_segments(program)
        self.feeds: dict[str, list[tuple[str, int]]] = {}  # reducer or sink → the outputs of units that feed it

    def plan(self, notes: tuple[str, ...]) -> Plan:
        self._check()
        reducers = [step for step in self.program.steps if isinstance(step, ReduceStep)]
        bounded = self.choice.from_ms is not None or self.choice.to_ms is not None
        columns = Columns(self.program, self.choice.columns, bounded)
        joins = {step.name: decided(columns, step) if self.choice.sql else Decision() for step in reducers}
        tables = {step.name: columns.tables(step) if self.choice.sql else () for step in reducers}
        tables |= {name: entry.tables for name, entry in joins.items() if entry.join is not None}
        sql = {name for name, entry in tables.items() if entry}
        scans = [self._scan(step, sql) for step in self.program.sources()]
        units = {step.name: self._unit(step.name, sql) for step in reducers}
        reductions = []
        for step in reducers:
            inputs, (join, _, why) = tuple(self.feeds.get(step.name, ())), joins[step.name]
            unit = units[step.name] if join is None else _behind_pairs(units[step.name])
            reductions.append(Reduction(step, inputs, unit, step.name in sql, tables[step.name], join, why))
        outputs = [self._output(step) for step in self.program.sinks()]
        return Plan(self.program.name, tuple(scans), tuple(reductions), tuple(outputs), notes)

    def _check(self) -> None:
        for step in self.program.steps:
            if isinstance(step, SourceStep):
                self._check_source(step)
        if not self.program.steps:
            raise CannotPlan(f"program {self.program.name!r} has nothing that the batch would compute")

    def _check_source(self, step: SourceStep) -> None:
        source = step.source
        if source.kind not in ("files", "sequence", "server"):
            raise CannotPlan(f"step {step.name!r}: Spark cannot read the source {type(source).__name__}")
        if source.kind == "sequence" and source.stop is None:
            raise CannotPlan(
                f"step {step.name!r}: an infinite sequence has no batch result; write "
                "sequence(stop), or replace it: --input-path"
            )
        bounded = self.choice.from_ms is not None or self.choice.to_ms is not None
        if bounded and step.event_time is None and not _is_archive(step):
            raise CannotPlan(
                f"step {step.name!r}: --from and --to choose by event time, and this source has none; "
                "write source(…, event_time='field')"
            )

    def _scan(self, step: SourceStep, sql: set[str]) -> Scan:
        unit = self._unit(step.name, sql)
        return Scan(
            step.name, step.source, step.event_time, unit if unit.nodes else None,
            self.choice.from_ms, self.choice.to_ms,
        )  # fmt: skip

    def _unit(self, entry: str, sql: set[str]) -> Unit:
        """Return the unit of a segment; reducers in ``sql`` receive their input another way."""
        segment = self.segments[entry]
        ends = {*segment.steps[1:], *(exchange.reader for exchange in segment.exchanges)} - sql
        outputs: dict[str, TaggedOutput] = {}
        for step in self.program.steps:
            if step.name in ends and isinstance(step, ReduceStep | SinkStep):
                is_view = isinstance(step, SinkStep) and isinstance(step.sink, ViewSink)
                outputs[step.name] = TaggedOutput(len(outputs), step.name, "view" if is_view else _kind(step))
                self.feeds.setdefault(step.name, []).append((entry, outputs[step.name].tag))
        inside, readers = {*segment.steps[1:]}, dict[Ref, list[Node]]()
        for step in reversed(self.program.steps):  # readers before the steps they read
            if step.name in inside or step.name in outputs:
                node = self._node(step, outputs, readers)
                for ref in step.inputs if node is not None else ():  # a stream united with itself counts twice
                    assert node is not None
                    readers.setdefault(ref, []).insert(0, node)
        unit = Unit(entry, tuple(readers.get(Ref(entry), ())), tuple(outputs.values()))
        return replace(unit, timed=any(map(_needs_time, unit.all_nodes())))

    def _node(
        self, step: Step, outputs: Mapping[str, TaggedOutput], known: Mapping[Ref, Sequence[Node]]
    ) -> Node | None:
        """Return the node of a step whose readers are known; None if the step has no effect here."""
        if isinstance(step, ReduceStep | SinkStep):
            out = outputs.get(step.name)
            reduce = step if isinstance(step, ReduceStep) else None
            return None if out is None else Node(step.name, out.kind, tag=out.tag, reduce=reduce)
        count = len(step.predicates) + 1 if isinstance(step, BranchStep) else 1
        readers = tuple(tuple(known.get(Ref(step.name, n), ())) for n in range(count))
        if not any(readers) and not isinstance(step, TapStep | LogStep):
            return None
        level = step.level if isinstance(step, LogStep) else "INFO"
        return Node(step.name, _kind(step), _functions(step), readers, level=level)

    def _output(self, step: SinkStep) -> Output:
        before = self.by_name[step.input.step]
        view = before if isinstance(step.sink, ViewSink) and isinstance(before, ReduceStep) else None
        feeds = tuple(self.feeds.get(step.name, ()))
        return Output(step.name, step.sink, feeds, view, self.program.schema_at(step.input))


def _needs_time(node: Node) -> bool:
    """Return True for a reducer that uses the event time carried by its records."""
    windowing = node.reduce.windowing if node.reduce else None
    return windowing is not None and windowing.event_time is None


def _behind_pairs(unit: Unit) -> Unit:
    """Return the rest of the unit downstream of a join whose pairs SQL makes."""
    (pairs,) = unit.nodes
    return replace(unit, nodes=pairs.outputs[0])


def _kind(step: Step) -> Kind:
    return cast(Kind, step.kind)  # ``prepare`` has rejected all other kinds


def _functions(step: Step) -> tuple[Callable[[Any], Any], ...]:
    if isinstance(step, BranchStep):
        return step.predicates
    if isinstance(step, MapStep | FlatMapStep | FilterStep | TapStep):
        return (step.function,)
    return ()


def _is_archive(step: SourceStep) -> bool:
    return isinstance(step.source, FileSource) and step.source.format == "archive"

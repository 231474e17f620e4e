"""Validation of a program for all engines, by inspection of the frozen steps. Pure.

``validate_program`` reports every problem, each as a sentence that names the step and the remedy.
"""

from __future__ import annotations

import inspect
import io
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

from heron_runtime.failures import did_you_mean
from heronry.api.validate import find_name_problem
from heronry.streamlet.endpoints import BUILT_IN_SINKS, ArchiveSink, FileSink, FileSource, SequenceSource, ViewSink
from heronry.streamlet.extract import Extractor, Function
from heronry.streamlet.joins import SideMarker
from heronry.streamlet.program import (
    ENDS,
    LATE,
    BranchStep,
    FilterStep,
    FlatMapStep,
    LogStep,
    LookupStep,
    MapStep,
    Program,
    ReduceStep,
    SinkStep,
    SourceStep,
    Step,
    TapStep,
)
from heronry.streamlet.server_sinks import ServerSink
from heronry.streamlet.servers import ServerSource

MAX_PARALLELISM = 10_000
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def validate_program(program: Program) -> list[str]:
    """Return all problems, in the order of the steps. Empty for a valid program."""
    problems = [*_names(program)]
    known = {step.name for step in program.steps}
    order = [*_order(program, known)]
    problems += order
    for step in program.steps:
        own = [*_step(step)]
        if not order:
            own += [*_wiring(program, step)]
        problems += [f"step {step.name!r}: {problem}" for problem in own]
    if not any(isinstance(step, SourceStep) for step in program.steps):
        problems.append("the program has no source; add builder.source(files(…)) or builder.source(sequence(…))")
    return problems


def _names(program: Program) -> Iterator[str]:
    problem = find_name_problem("program", program.name)
    if problem is not None:
        yield problem
    for step in program.steps:
        problem = find_name_problem("step", step.name)
        if problem is not None:
            yield problem
    for name, count in Counter(step.name for step in program.steps).items():
        if count > 1:
            yield f"{count} steps are named {name!r}; names must differ, so rename all but one"
    views = Counter(step.sink.name for step in program.sinks() if isinstance(step.sink, ViewSink))
    for name, count in views.items():
        if count > 1:
            yield f"{count} views are named {name!r}; names must differ, so rename all but one"
    yield from _folders(program)


def _folders(program: Program) -> Iterator[str]:
    """Yield problems of conflicting paths.

    Sinks must not overwrite each other, and sources must not read the program's own output.
    """
    into = [(s.name, s.sink) for s in program.sinks() if isinstance(s.sink, FileSink | ArchiveSink | ViewSink)]
    for path, count in Counter(sink.path for _, sink in into if isinstance(sink, ViewSink | ArchiveSink)).items():
        if count > 1:
            steps = ", ".join(repr(name) for name, sink in into if sink.path == path)
            yield f"steps {steps} write into one folder, {path}; a view and an archive need their own"
    for source in program.sources():
        for name, sink in into:
            if isinstance(source.source, FileSource) and sink.path == source.source.path:
                yield f"step {name!r} writes into the folder that step {source.name!r} reads, {sink.path}; name another"


def _order(program: Program, known: set[str]) -> Iterator[str]:
    """Yield problems of inputs that do not exist, or that do not come first."""
    seen: set[str] = set()
    for step in program.steps:
        for ref in step.inputs:
            if ref.step not in known:
                yield f"step {step.name!r} reads {ref.step!r}, which does not exist{did_you_mean(ref.step, known)}"
            elif ref.step not in seen:
                yield (
                    f"step {step.name!r} reads {ref.step!r}, which comes after it; a program has no cycles, and its "
                    "steps are in the order of the data flow"
                )
        seen.add(step.name)


def _step(step: Step) -> Iterator[str]:
    """Yield problems of a step that do not depend on other steps."""
    par = step.parallelism
    if par is not None and (isinstance(par, bool) or not isinstance(par, int) or not 1 <= par <= MAX_PARALLELISM):
        yield f"parallelism is {par!r}; write a whole number from 1 to {MAX_PARALLELISM}"
    for what, function in _functions(step):
        yield from _function(what, function, isinstance(step, FlatMapStep))
    if isinstance(step, BranchStep) and not step.predicates:
        yield "branch needs at least one predicate: branch(lambda record: …)"
    if isinstance(step, LogStep) and step.level not in LEVELS:
        yield f"level is {step.level!r}; write one of {', '.join(LEVELS)}"
    if isinstance(step, SinkStep) and not all(hasattr(step.sink, name) for name in _of_a_sink(step.sink)):
        yield f"{step.sink!r} is not a sink; use to_files(…), to_table(…), archive(…), view(…), collect(), sink_of(…)"
    if isinstance(step, SourceStep) and not isinstance(step.source, FileSource | SequenceSource | ServerSource):
        yield f"{step.source!r} is not a source; write files(…), sequence(…), redis_stream(…), sql_rows(…), …"
    if isinstance(step, SourceStep) and isinstance(step.source, ServerSource):
        yield from step.source.problems()
    if isinstance(step, SinkStep) and isinstance(step.sink, ServerSink):
        yield from step.sink.problems()
    if isinstance(step, SourceStep) and isinstance(step.source, SequenceSource):
        yield from _sequence(step.source)
    if isinstance(step, LookupStep):
        yield from _lookup(step)


def _lookup(step: LookupStep) -> Iterator[str]:
    table = step.table
    if step.how not in ("inner", "left"):
        yield f"how is {step.how!r}; lookup supports inner and left joins only"
    if isinstance(table, SequenceSource):
        yield from _sequence(table)
    elif isinstance(table, ServerSource):
        yield "its table is in a server; write files(…), sequence(stop) or a list, or join two streams within a window"
    elif not isinstance(table, FileSource):
        yield f"its table is {table!r}; write files(…), sequence(stop) or a list"
    if (isinstance(table, FileSource) and table.grows) or (isinstance(table, SequenceSource) and table.stop is None):
        yield (
            "its table is infinite, but must be read before the first record; omit grows, write "
            "sequence(stop), or join two streams within a window: a.key_by(…).window(…).join(b.key_by(…))"
        )


def _of_a_sink(sink: Any) -> tuple[str, ...]:
    """Return the attributes that a value must have to be a sink."""
    return ("kind",) if isinstance(sink, BUILT_IN_SINKS) else ("kind", "writer", "__slots__")


def _sequence(source: SequenceSource[Any]) -> Iterator[str]:
    for what, number in (("start", source.start), ("stop", source.stop)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            yield f"{what} of sequence is {number!r}; write a whole number"
            return
    if source.stop is not None and source.stop < source.start:
        yield f"sequence from {source.start} to {source.stop} runs backwards; exchange the two"


def _functions(step: Step) -> Iterator[tuple[str, Any]]:
    if isinstance(step, MapStep | FlatMapStep | FilterStep | TapStep):
        yield "its function", step.function
        if isinstance(step.function, SideMarker):
            time = step.function.time
            yield from _extractors([("key", step.function.key), *([("event_time", time.extractor)] if time else [])])
    elif isinstance(step, LookupStep):
        yield from _extractors([("on", step.on), ("key of its table", step.table_key)])
    elif isinstance(step, BranchStep):
        yield from ((f"predicate {number}", function) for number, function in enumerate(step.predicates))
    elif isinstance(step, ReduceStep):
        yield from _extractors([("key", step.key), ("value", step.value)])
        if step.windowing is not None and step.windowing.event_time is not None:
            yield from _extractors([("event_time", step.windowing.event_time.extractor)])
        yield from (("add of its monoid", step.monoid.add), ("finish of its monoid", step.monoid.finish))
        if step.process is not None:
            yield from (("on_record", step.process.on_record), ("on_timer", step.process.on_timer))
    elif isinstance(step, SourceStep):
        if step.event_time is not None:
            yield from _extractors([("event_time", step.event_time.extractor)])
        if isinstance(step.source, SequenceSource) and step.source.make is not None:
            yield "make of its sequence", step.source.make


def _extractors(named: list[tuple[str, Extractor]]) -> Iterator[tuple[str, Any]]:
    yield from ((what, extractor.function) for what, extractor in named if isinstance(extractor, Function))


_TIED = (io.IOBase, socket.socket)


def _function(what: str, function: Any, many: bool) -> Iterator[str]:
    if not callable(function):
        yield f"{what} is {function!r}; write a function of one record"
        return
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        yield f"{what} is a coroutine function, which is never awaited; write a plain function"
    elif not many and inspect.isgeneratorfunction(function):
        cure = "call context.emit(…)" if what.startswith("on_") else "use flat_map, which emits its elements"
        yield f"{what} is a generator function; {cure}"
    for name, value in _held(function):
        if isinstance(value, _TIED) or type(value).__module__ in ("_thread", "sqlite3", "_ssl"):
            yield (
                f"{what} holds {name} = {type(value).__name__}, which belongs to this process and cannot go to "
                "another; open it inside the function"
            )


def _held(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values that a function holds: closed-over variables and defaults."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet bound
            continue
    yield from (
        (f"a default {number}", value) for number, value in enumerate(getattr(function, "__defaults__", ()) or ())
    )


def _wiring(program: Program, step: Step) -> Iterator[str]:
    """Yield problems between this step and its neighbours."""
    if not isinstance(step, ENDS) and not program.readers(step.name):
        yield "nothing reads it; end with sink(…), log() or tap(…)"
    for ref in step.inputs:
        yield from _output_exists(program.by_name[ref.step], ref.output)
    if isinstance(step, ReduceStep):
        yield from _reducer(program, step)
    if isinstance(step, SinkStep):
        yield from _sink(program, step)


def _output_exists(step: Step, output: int) -> Iterator[str]:
    last = 0
    if isinstance(step, BranchStep):
        last = len(step.predicates)
    elif isinstance(step, ReduceStep) and step.windowing is not None:
        last = LATE
    if not 0 <= output <= last:
        yield f"reads output {output} of {step.name!r}, whose last one is {last}"


def _reducer(program: Program, step: ReduceStep) -> Iterator[str]:
    running = [s.name for s in upstream(program, step) if isinstance(s, ReduceStep) and not s.windowing and s.updates]
    if running:
        yield (
            f"reduces the running results of {running[0]!r}, which would count updates again; give that a window, or "
            "updates=False so that it emits only its final results"
        )
    if step.windowing is not None and step.windowing.event_time is None:
        for origin in timeless(program, step):
            by = "process" if step.process is not None else "window"
            yield (
                f"{step.window_step or 'its window'!r} has no event time: {origin.name!r} does not set one; "
                f"write {by}(…, event_time='field'), or give event_time= to the source"
            )


def _sink(program: Program, step: SinkStep) -> Iterator[str]:
    before = program.by_name[step.input.step]
    sink = step.sink
    if isinstance(sink, ViewSink):
        if not isinstance(before, ReduceStep) or before.process is not None or step.input.output == LATE:
            yield f"a view must directly follow a reducer, not {before.name!r}"
        elif sum(isinstance(getattr(r, "sink", None), ViewSink) for r in program.readers(before.name)) > 1:
            yield f"{before.name!r} has more than one view; keep one"
        elif find_name_problem("view", sink.name) is not None:
            yield str(find_name_problem("view", sink.name))
        elif before.merges:
            yield (
                f"view {sink.name!r} stands behind the sessions of {before.name!r}, whose start may still move, and a "
                "view's buckets stay where they are; give it tumbling or sliding windows, or none"
            )
        elif before.windowing is None:
            for origin in timeless(program, before):
                yield (
                    f"view {sink.name!r} needs event time for its buckets, and {origin.name!r} does not set one; "
                    "write source(…, event_time='field'), or give the reducer a window"
                )
    if isinstance(sink, ArchiveSink):
        reducers = [s.name for s in upstream(program, step) if isinstance(s, ReduceStep)]
        if reducers:
            yield f"an archive keeps records of sources; move it before the reducer {reducers[0]!r}"
        elif sink.event_time is None:
            for origin in timeless(program, step):
                yield (
                    f"the archive has no event time: {origin.name!r} does not set one; write "
                    "archive(…, event_time='field'), or give event_time= to the source"
                )


def upstream(program: Program, step: Step) -> list[Step]:
    """Return every step whose records pass to this one, nearest first."""
    steps: dict[str, Step] = {}
    waiting = [ref.step for ref in step.inputs]
    while waiting:
        name = waiting.pop(0)
        if name not in steps:
            steps[name] = program.by_name[name]
            waiting += [ref.step for ref in steps[name].inputs]
    return list(steps.values())


def timeless(program: Program, step: Step) -> list[Step]:
    """Return the sources and unwindowed reducers that feed this step with records without an event time.

    The records may pass through record-wise steps, but not through other reducers.
    """
    steps: dict[str, Step] = {}
    waiting = [ref.step for ref in step.inputs]
    while waiting:
        before = program.by_name[waiting.pop(0)]
        if isinstance(before, SourceStep):
            archived = isinstance(before.source, FileSource) and before.source.format == "archive"
            if before.event_time is None and not archived:
                steps[before.name] = before
        elif isinstance(before, ReduceStep):
            if before.windowing is None:
                steps[before.name] = before
        else:
            waiting += [ref.step for ref in before.inputs]
    return list(steps.values())

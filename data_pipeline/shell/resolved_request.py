"""Resolved request: the user's program with all options of the command line applied to its sources, and its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from data_pipeline.core import stream_sinks
from data_pipeline.core.plan import CannotPlan, Output, Plan, Scan
from data_pipeline.core.planner import Choice, plan, prepare
from data_pipeline.core.portions import by_parts
from data_pipeline.shell import backfill, until
from data_pipeline.shell.output import local_path
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request
from data_pipeline.shell.scan import Tables
from data_pipeline.shell.servers import Ranges, ranges_there
from heron_runtime.failures import UsageError
from heronry.streamlet.aside import FailurePolicy, policy_of
from heronry.streamlet.endpoints import COLUMNAR, ArchiveSink, FileSource, ViewSink, is_url
from heronry.streamlet.program import LookupStep, Program, SourceStep
from heronry.streamlet.reading import refusals

ARCHIVE = "archive"


@dataclass(frozen=True)
class ResolvedRequest:
    """Request with its T, the program, the options chosen for it, and the policy for failed records.

    ``ranges`` are those of servers that a batch reads. ``appended_files`` are the sinks whose files micro-batches
    append to OUTPUT.
    """

    request: Request
    loaded: Loaded
    choice: Choice
    policy: FailurePolicy
    ranges: Ranges = field(default_factory=dict)
    appended_files: tuple[Output, ...] = ()


def resolve_request(request: Request, loaded: Loaded) -> ResolvedRequest:
    """Return the resolved request; programs that cannot be planned or read are rejected before Spark starts.

    Raises:
        CannotPlan: Spark cannot run the program.
        UsageError: An option is invalid.
        ConnectError: A server cannot be reached.
    """
    program = loaded.program
    if request.views:
        request = backfill.begun(until.bounded(request, program), program)
    choice = _chosen(program, request.input_paths, request.input_format, request.from_ms, request.to_ms)
    if request.views:
        choice = replace(_of_archive(program, choice), sinks=frozenset(_views(program)))
    policy = policy_of({**dict(program.config), **request.config})
    resolved_plan = plan(program, replace(choice, sql=False))
    files: list[Output] = []
    if request.streaming is not None:
        stream_sinks.check(resolved_plan)
        files = stream_sinks.appended_files(resolved_plan)
    if request.views:
        backfill.check(request, program, resolved_plan.outputs)
    check_readable(program, choice)
    is_batch = request.streaming is None and not request.dry_run
    prepared, _ = prepare(program, choice)
    sources = list(prepared.sources())
    ranges = ranges_there(sources) if is_batch else dict.fromkeys((step.name for step in sources), ())
    return ResolvedRequest(request, loaded, choice, policy, ranges, tuple(files))


def make_plan(resolved: ResolvedRequest, tables: Tables, *, careful: bool) -> Plan:
    """Return the plan over these tables.

    It is without SQL if ``careful`` is set, as SQL cannot say which record fails, and where Python functions have
    already made the tables. Parts that SQL has made (``tables.parts``) are still completed by SQL. After micro-batches
    the plan omits the sinks that these have written.
    """
    program, choice = resolved.loaded.program, resolved.choice
    if careful or tables.made:
        made = by_parts(plan(program, replace(choice, sql=False)), tables.parts)
        return stream_sinks.without_appended(made) if tables.made else made
    return plan(program, with_columns(tables, program, choice))


def _views(program: Program) -> list[str]:
    views = [step.name for step in program.sinks() if isinstance(step.sink, ViewSink)]
    if not views:
        raise CannotPlan(f"program {program.name!r} has no view; add .sink(view(name, path)) after a reducer")
    return views


def _chosen(program: Program, paths: Sequence[str], form: str, from_ms: int | None, to_ms: int | None) -> Choice:
    """Return the choice for ``--input-path [STEP=]URL …`` and ``--input-format``. Raises UsageError or CannotPlan."""
    inputs: dict[str, FileSource[Any]] = {}
    archive: FileSource[Any] | None = None
    by_step = {step.name: step for step in program.sources()}
    for given in paths:
        step, url = _split(given, by_step)
        if step is None and form == ARCHIVE:
            if archive is not None:
                raise _twice("the archive", archive.path, url)
            archive = FileSource(_absolute(url), ARCHIVE, by_hour=True)
            continue
        if step is None:
            if len(by_step) != 1:
                raise UsageError(
                    f"the program has {len(by_step)} sources: {', '.join(by_step)}",
                    "Say which one the path is for: --input-path STEP=URL, once for each.",
                )
            (step,) = by_step
        if step in inputs:
            raise _twice(f"step {step!r}", inputs[step].path, url)
        inputs[step] = _replaced(by_step[step], url, form)
    return Choice(inputs, archive, from_ms, to_ms)


def _twice(what: str, first: str, second: str) -> UsageError:
    return UsageError(
        f"--input-path: {what} has two paths, {first} and {second}",
        "Give one path for each source. A pattern in a path, like /in/*/2026-*, reads several folders.",
    )


def _of_archive(program: Program, choice: Choice) -> Choice:
    """Return the choice with the program's own archive as input, if it has exactly one and no input was given."""
    sinks = [step.sink for step in program.sinks() if isinstance(step.sink, ArchiveSink)]
    if choice.inputs or choice.archive is not None or len(sinks) != 1:
        return choice
    return replace(choice, archive=FileSource(sinks[0].path, ARCHIVE, by_hour=True))


def with_columns(tables: Tables, program: Program, choice: Choice) -> Choice:
    """Return the choice with the column types of every Parquet or ORC source. Raises InputNotFound or CannotPlan."""
    prepared, _ = prepare(program, choice)
    types = {
        step.name: tables.columns(Scan(step.name, step.source, None, None, choice.from_ms, choice.to_ms))
        for step in prepared.sources()
        if isinstance(step.source, FileSource) and step.source.format in COLUMNAR
    }
    return replace(choice, columns=types)


def check_readable(program: Program, choice: Choice) -> None:
    """Check that engines can read the existing files, and that lookup tables exist. Raises CannotPlan."""
    prepared, _ = prepare(program, choice)
    lookups = [step for step in program.steps if isinstance(step, LookupStep)]
    problems = refusals(prepared) + refusals(replace(program, steps=tuple(lookups)))
    for step in lookups:
        table = step.table
        if isinstance(table, FileSource) and not is_url(table.path) and not Path(table.path).exists():
            problems.append(f"step {step.name!r}: its table {table.path} is missing")
    if problems:
        raise CannotPlan("; ".join(problems))


def _split(given: str, by_step: Mapping[str, SourceStep]) -> tuple[str | None, str]:
    name, equals, url = given.partition("=")
    if equals and name in by_step:
        return name, url
    if equals and "/" not in name:
        cure = f"The program's sources are {', '.join(by_step)}. (A path with = in it may begin with ./ to be a path.)"
        raise UsageError(f"unknown source step {name!r}", cure)
    return None, given


def _replaced(step: SourceStep, url: str, form: str) -> FileSource[Any]:
    own = step.source
    if isinstance(own, FileSource):
        if own.partitions and form in ("text", ARCHIVE):
            raise UsageError(
                f"step {step.name!r} has fields in its folders, which records of {form} cannot have",
                "Give --input-format json, csv, parquet or orc.",
            )
        by_hour = own.by_hour or form == ARCHIVE
        return replace(own, path=_absolute(url), format=form or own.format, grows=False, by_hour=by_hour)
    if not form:
        raise UsageError(
            f"step {step.name!r} is not of files, so it is unknown what the files at {url} hold",
            "Add --input-format text, json, csv, parquet, orc or archive.",
        )
    return FileSource(_absolute(url), form, by_hour=form == ARCHIVE)


def _absolute(url: str) -> str:
    local = local_path(url)
    return str(local) if local is not None else url

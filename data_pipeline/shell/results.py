"""Output of an execution: files in folders of the sinks, new versions of views, or the plan as text.

All output appears atomically, by one rename (output.py). Only the files that micro-batches append are in OUTPUT before.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import SparkSession

from data_pipeline.core import stream_sinks
from data_pipeline.core.describe import described
from data_pipeline.core.plan import Plan
from data_pipeline.core.staged import Report
from data_pipeline.shell import backfill, sinks, until
from data_pipeline.shell.appended_files import AppendedFiles
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.output import OutputFolder
from data_pipeline.shell.portions import is_of
from data_pipeline.shell.progress import shown
from data_pipeline.shell.request import Request
from data_pipeline.shell.resolved_request import ResolvedRequest
from data_pipeline.shell.staged import Staging, clear_journal, settle, tasks_run
from heronry.pipeline.registry import Registered, register
from heronry.pipeline.views import describe_view, next_version, prune
from heronry.streamlet.aside import TooManyFailures
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.server_sinks import ServerSink
from heronry.version import VERSION

FAILED = "_failed.jsonl"  # next to the folders of sinks; see heronry/streamlet/aside.py


def written(spark: SparkSession, resolved: ResolvedRequest, made_plan: Plan, execution: Execution, out: TextIO) -> str:
    """Run the execution, write the requested output, and return the text to print at the end."""
    if resolved.request.dry_run:
        return _explained(resolved.request, made_plan, execution)
    write = _views if resolved.request.views else _appended if resolved.appended_files else _folder
    with shown(spark, out) as say:
        return write(spark, resolved, made_plan, execution, say)


def _folder(
    spark: SparkSession, resolved: ResolvedRequest, made_plan: Plan, execution: Execution, say: Callable[[str], None]
) -> str:
    """Write every sink into its folder below the output path, and publish all of them at once."""
    request = resolved.request
    may_go = request.replace or (bool(request.checkpoint) and is_of(spark, request.output_path, request.checkpoint))
    staging = Staging(made_plan.program, made_plan.outputs, partial(tasks_run, spark))
    clear = partial(clear_journal, out=say)
    with (
        OutputFolder(spark, request.output_path, replace=may_go, clear=clear) as folder,
        staging.into(folder, say),
    ):
        say(f"writing {', '.join(output.step for output in made_plan.outputs)}")
        reports = sinks.write_all(spark, made_plan.outputs, execution, folder.work, staging)
        for output in made_plan.outputs:
            if not isinstance(output.sink, ServerSink):
                folder.rename_parts(output.step, ".json")
        for frame in execution.ends():
            frame.write.format("noop").mode("overwrite").save()
        aside = _put_aside(execution, folder, resolved.policy.most)
        manifest = _manifest(request, made_plan, [output.step for output in made_plan.outputs], aside)
        folder.commit(manifest | staging.counted(reports))
    settle(folder.place)
    return _wrote(request.output_path, made_plan, reports) + _describe_aside(aside, request.output_path)


def _appended(
    spark: SparkSession, resolved: ResolvedRequest, made_plan: Plan, execution: Execution, say: Callable[[str], None]
) -> str:
    """Bring the manifest and the failed records of a result up to date to which micro-batches have appended files."""
    request, files = resolved.request, AppendedFiles(spark, resolved)
    aside = _put_aside(execution, files, resolved.policy.most)
    files.describe(_manifest(request, made_plan, files.steps, aside))
    return f"appended {', '.join(files.steps)} to {request.output_path}" + _describe_aside(aside, request.output_path)


def _wrote(place: str, made_plan: Plan, reports: Mapping[str, list[Report]]) -> str:
    """Return a description of the destination of each sink."""
    steps = ", ".join(o.step for o in made_plan.outputs if not isinstance(o.sink, ServerSink))
    parts = [f"{steps or 'nothing'} to {place}"] if steps or not made_plan.outputs else []
    parts += [
        f"{o.step}, {sum(report.records for report in reports[o.step])} records, to {o.sink}"
        for o in made_plan.outputs
        if isinstance(o.sink, ServerSink)
    ]
    return f"wrote {'; '.join(parts)}" + ("" if steps or not made_plan.outputs else f"; {place} says so")


def _put_aside(execution: Execution, folder: OutputFolder | AppendedFiles, most: int) -> int:
    """Write the letters of failed records, if there are any, and return their number. Raises TooManyFailures."""
    letters = execution.letters(most + 1)
    if len(letters) > most:
        failed = json.loads(letters[0])
        raise TooManyFailures(
            f"more than {most} records fail; step {failed['step']!r} failed on the record {failed['failed_on']} "
            f"({failed['where'] or 'its file is unknown'}): {failed['error']}"
        )
    if letters:
        folder.write(FAILED, b"".join(letters))
    return len(letters)


def _describe_aside(aside: int, place: str) -> str:
    return f"; {aside} records that fail are put aside in {place}/{FAILED}" if aside else ""


def _views(
    spark: SparkSession, resolved: ResolvedRequest, made_plan: Plan, execution: Execution, say: Callable[[str], None]
) -> str:
    """Write a new version of every view's batch, and register the views for ``heron pipeline``."""
    request, lines = resolved.request, []
    for output in made_plan.outputs:
        assert isinstance(output.sink, ViewSink)
        view = Path(output.sink.path)
        say(f"computing view {output.sink.name}")
        part = backfill.of_view(request, view)
        owned = replace(request, to_ms=request.to_ms if part is None else part.owned_to_ms)
        version = next_version(view, owned.to_ms)
        describe_view(view, backfill.described(resolved.loaded.program, output))
        with OutputFolder(spark, str(version)) as folder:
            rows = sinks.view_rows(output, execution.output(output.step), request.to_ms)
            rows = rows if part is None else rows.unionByName(part.taken_over(spark))
            sinks.write_view(rows, f"{folder.work}/{backfill.ROWS}")
            aside = _put_aside(execution, folder, resolved.policy.most)
            more = {} if part is None else {"backfill": part.manifest()}
            folder.commit(_manifest(owned, made_plan, [backfill.ROWS], aside) | more)
        prune(view)
        register(
            Registered(
                output.sink.name, str(view), str(request.file.absolute()), request.program or "", request.arguments,
                request.input_paths, request.input_format,
            )
        )  # fmt: skip
        lines.append(
            f"view {output.sink.name}: version {version.name}, the batch owns buckets up to {until.iso(owned.to_ms)}"
            + ("" if part is None else f"; recomputed from {until.iso(part.from_ms)} to {until.iso(part.to_ms)}")
            + _describe_aside(aside, str(version))
        )
    return "\n".join(lines)


def _explained(request: Request, made_plan: Plan, execution: Execution) -> str:
    """Return our plan and Spark's as text."""
    parts = [described(made_plan), *(stream_sinks.describe_sinks(made_plan) if request.streaming is not None else ())]
    for output in made_plan.outputs:
        printed, fields = io.StringIO(), execution.fields(output.step)
        with contextlib.redirect_stdout(printed):
            (execution.output(output.step) if fields is None else fields).explain()
        parts.append(f"\n{output.step}:\n{printed.getvalue().rstrip()}")
    return "\n".join(parts)


def _manifest(request: Request, made_plan: Plan, parts: list[str], aside: int) -> dict[str, Any]:
    return {
        "program": made_plan.program, "from_ms": request.from_ms, "to_ms": request.to_ms, "outputs": parts,
        "put_aside": aside, **({"checkpoint": request.checkpoint} if request.checkpoint else {}),
        "written_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), "version": VERSION,
        "master": request.master, "input_paths": list(request.input_paths),
    }  # fmt: skip

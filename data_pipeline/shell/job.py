"""One batch job from request to result: load, plan, run, give the result its name."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession

from data_pipeline.core.describe import described
from data_pipeline.core.failure import failure_in
from data_pipeline.core.plan import CannotPlan, Output, Plan
from data_pipeline.core.planner import Choice, plan
from data_pipeline.core.render import to_json
from data_pipeline.shell import inputs, sinks, until
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.origin import with_file
from data_pipeline.shell.output import MANIFEST, OutputExists, OutputFolder, is_taken, local_path
from data_pipeline.shell.portions import has_letters, is_of
from data_pipeline.shell.program import Loaded, check_shippable, load
from data_pipeline.shell.progress import shown, summary
from data_pipeline.shell.scan import Tables
from data_pipeline.shell.session import SessionOptions, session
from data_pipeline.shell.stream import Stream, Streaming
from heron_runtime.failures import ExistsAlready, Unavailable, UsageError
from heronry.pipeline.registry import Registered, register
from heronry.pipeline.views import Description, describe_view, next_version, prune
from heronry.streamlet.aside import Policy, TooManyAside, policy_of
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.program import Program
from heronry.version import VERSION

CONNECT_SECS = 5.0
FAILED = "_failed.jsonl"  # beside the folders of sinks; see heronry/streamlet/aside.py


@dataclass(frozen=True)
class Request:
    """What the command line asks for. Times are milliseconds since 1970 UTC. ``views``: publish views, nothing else."""

    file: Path
    program: str | None = None
    arguments: tuple[str, ...] = ()
    input_paths: tuple[str, ...] = ()
    input_format: str = ""
    output_path: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    master: str = "local[*]"
    conf: dict[str, str] = field(default_factory=dict)
    replace: bool = False
    dry_run: bool = False
    views: bool = False
    config: dict[str, str] = field(default_factory=dict)  # above the program's own
    force: bool = False  # T may lie beyond what the online layer has seen
    streaming: Streaming | None = None  # None: one batch


def run(request: Request, out: TextIO) -> str:
    """Do it; ``out`` shows progress. What to print at the end. Raises Failure of every kind, and Spark's errors."""
    began = time.monotonic()
    check_master(request.master)
    if request.output_path and not request.dry_run:
        _check_place(request)
    with tempfile.TemporaryDirectory(prefix="heronry-spark-") as folder:
        sys.argv = [str(request.file), *request.arguments]
        loaded = load(request.file, request.program, Path(folder))
        check_shippable(loaded.program)
        if request.views:
            request = until.bounded(request, loaded.program)
        choice = inputs.chosen(
            loaded.program, request.input_paths, request.input_format, request.from_ms, request.to_ms
        )
        if request.views:
            choice = inputs.of_archive(loaded.program, choice)
            choice = replace(choice, sinks=frozenset(_views(loaded.program)))
        policy = policy_of({**dict(loaded.program.config), **request.config})
        plan(loaded.program, choice)  # what cannot be planned is told before Spark is started
        inputs.check_readable(loaded.program, choice)
        options = SessionOptions(loaded.program.name, request.master, request.conf, loaded.ship)
        with _shown_start(out, request.master), contextlib.ExitStack() as stack:
            spark = stack.enter_context(session(options))
            if request.views:
                until.wait_for_archives(began)
            if request.streaming is not None and not request.dry_run:
                return _streamed(spark, request, loaded, replace(choice, sql=False), policy, out)
            tables = Tables(spark)
            choice = inputs.with_columns(tables, loaded.program, choice)
            try:
                return _planned(spark, request, loaded, plan(loaded.program, choice), tables, out)
            except Exception as error:
                failure = failure_in(str(error))
                if failure is None or not policy.aside or request.dry_run:
                    raise
                out.write(f"{failure.step!r} failed on a record: running again with care, to put such records aside\n")
            found = plan(loaded.program, replace(choice, sql=False))
            return _planned(spark, request, loaded, found, Tables(spark, numbered=True), out, policy)


def _streamed(
    spark: SparkSession, request: Request, loaded: Loaded, choice: Choice, policy: Policy, out: TextIO
) -> str:
    """By micro-batches; the result is written anew when there is something new."""
    assert request.streaming is not None
    found = plan(loaded.program, choice)
    stream = Stream(spark, found, request.streaming, policy, out)
    ours = is_of(spark, request.output_path, request.streaming.checkpoint)
    request = replace(request, replace=request.replace or ours)

    def publish() -> str:
        nonlocal request
        text = _with_care(spark, request, loaded, found, policy, out, stream.rows())
        request = replace(request, replace=True)
        return text

    return stream.run(publish)


def _with_care(
    spark: SparkSession, request: Request, loaded: Loaded, found: Plan, policy: Policy, out: TextIO,
    given: Mapping[str, DataFrame],
) -> str:  # fmt: skip
    """A result of what scans have given; records put aside are among that, or fail in it."""
    aside = policy if policy.aside and has_letters(given) else None
    try:
        return _planned(spark, request, loaded, found, Tables(spark), out, aside, given)
    except Exception as error:
        if failure_in(str(error)) is None or not policy.aside or aside is not None:
            raise
    return _planned(spark, request, loaded, found, Tables(spark), out, policy, given)


@contextlib.contextmanager
def _shown_start(out: TextIO, master: str) -> Iterator[None]:
    out.write(f"starting Spark at {master}\n")
    out.flush()
    yield


def _planned(
    spark: SparkSession, request: Request, loaded: Loaded, found: Plan, tables: Tables, out: TextIO,
    policy: Policy | None = None, given: Mapping[str, DataFrame] | None = None,
) -> str:  # fmt: skip
    """``policy``: put aside what fails, as it says. That is a second run: it tries each record by itself first.
    ``given``: what scans have made already."""
    for note in found.notes:
        out.write(f"{note}\n")
    execution = Execution(spark, found, collect=to_json, tables=tables, aside=policy is not None, given=given)
    most = policy.most if policy is not None else 0
    try:
        if request.dry_run:
            return _explained(found, execution)
        began = time.monotonic()
        with shown(spark, out) as say:
            if request.views:
                text = _publish(spark, request, loaded.program, found, execution, most, say)
            else:
                text = _write(spark, request, found, execution, most, say)
        out.write(f"{summary(spark)}, {time.monotonic() - began:.1f} s\n")
        return text
    except Exception as error:
        told = with_file(spark, tables, found, error)
        if told is error:
            raise
        raise told from error
    finally:
        execution.close()


def _write(spark: SparkSession, request: Request, found: Plan, execution: Execution, most: int, say: Any) -> str:
    """Every sink into its folder below the output path, all of it at once."""
    folder = OutputFolder(spark, request.output_path, replace=request.replace)
    try:
        say(f"writing {', '.join(output.step for output in found.outputs)}")
        sinks.write_all(spark, found.outputs, execution, folder.work)
        for output in found.outputs:
            folder.rename_parts(output.step, ".json")
        _run_ends(execution)
        aside = _put_aside(execution, folder, most)
        folder.commit(_manifest(request, found, [output.step for output in found.outputs], aside))
    finally:
        folder.discard()
    wrote = ", ".join(output.step for output in found.outputs) or "nothing"
    return f"wrote {wrote} to {request.output_path}{_told(aside, request.output_path)}"


def _put_aside(execution: Execution, folder: OutputFolder, most: int) -> int:
    """Write the letters, if there are any; how many there are. Raises TooManyAside."""
    letters = execution.letters(most + 1)
    if len(letters) > most:
        failed = json.loads(letters[0])
        raise TooManyAside(
            f"more than {most} records fail; step {failed['step']!r} failed on the record {failed['failed_on']} "
            f"({failed['where'] or 'its file is not known'}): {failed['error']}"
        )
    if letters:
        folder.write(FAILED, b"".join(letters))
    return len(letters)


def _told(aside: int, place: str) -> str:
    return f"; {aside} records that fail are put aside in {place}/{FAILED}" if aside else ""


def _run_ends(execution: Execution) -> None:
    for frame in execution.ends():
        frame.write.format("noop").mode("overwrite").save()


def _publish(
    spark: SparkSession, request: Request, program: Program, found: Plan, execution: Execution, most: int, say: Any
) -> str:
    """A new version of every view's batch, and what ``heron pipeline`` has to remember."""
    told = []
    for output in found.outputs:
        assert isinstance(output.sink, ViewSink)
        view = Path(output.sink.path)
        say(f"computing view {output.sink.name}")
        version = next_version(view, request.to_ms)
        describe_view(view, description(program, output))
        folder = OutputFolder(spark, str(version))
        try:
            sinks.write_view(output, execution.output(output.step), f"{folder.work}/rows", request.to_ms)
            aside = _put_aside(execution, folder, most)
            folder.commit(_manifest(request, found, ["rows"], aside))
        finally:
            folder.discard()
        prune(view)
        register(
            Registered(
                output.sink.name, str(view), str(request.file.absolute()), request.program or "", request.arguments,
                request.input_paths, request.input_format,
            )
        )  # fmt: skip
        told.append(
            f"view {output.sink.name}: version {version.name}, the batch owns buckets up to {until.iso(request.to_ms)}"
            + _told(aside, str(version))
        )
    return "\n".join(told)


def description(program: Program, output: Output) -> Description:
    """What ``view.json`` says of a view."""
    assert isinstance(output.sink, ViewSink)
    assert output.reduce is not None
    assert output.reduce.windowing is not None
    monoid = output.reduce.monoid
    length = output.reduce.windowing.window.length_ms
    return Description(output.sink.name, program.name, output.reduce.name, length, monoid.builtin, monoid.parameters)


def _views(program: Program) -> list[str]:
    found = [step.name for step in program.sinks() if isinstance(step.sink, ViewSink)]
    if not found:
        raise CannotPlan(f"program {program.name!r} has no view; add .sink(view(name, path)) behind a reducer")
    return found


def _explained(found: Plan, execution: Execution) -> str:
    """Our plan and Spark's."""
    parts = [described(found)]
    for output in found.outputs:
        printed, fields = io.StringIO(), execution.fields(output.step)
        with contextlib.redirect_stdout(printed):
            (execution.output(output.step) if fields is None else fields).explain()
        parts.append(f"\n{output.step}:\n{printed.getvalue().rstrip()}")
    return "\n".join(parts)


def _manifest(request: Request, found: Plan, parts: list[str], aside: int) -> dict[str, Any]:
    return {
        "program": found.program, "from_ms": request.from_ms, "to_ms": request.to_ms, "outputs": parts,
        "put_aside": aside, **({"checkpoint": request.streaming.checkpoint} if request.streaming is not None else {}),
        "written_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), "version": VERSION,
        "master": request.master, "input_paths": list(request.input_paths),
    }  # fmt: skip


def check_master(master: str) -> None:
    """Raises UsageError for what is no master, Unavailable for a standalone master nobody answers at."""
    if not master.startswith(("local", "spark://", "yarn", "k8s://", "mesos://")):
        raise UsageError(f"{master!r} is no master of Spark", "Write local[*], spark://HOST:PORT, yarn or k8s://URL.")
    if not master.startswith("spark://"):
        return
    for place in master.removeprefix("spark://").split(","):
        parts = urlsplit(f"//{place}")
        with contextlib.suppress(OSError, ValueError):
            socket.create_connection((parts.hostname, parts.port or 7077), CONNECT_SECS).close()
            return
    raise Unavailable(f"nobody answers at {master}", "Is the Spark master running, and is this its address?")


def _check_place(request: Request) -> None:
    """Refuse a local output path early. Raises ExistsAlready."""
    local = local_path(request.output_path)
    if local is None or not is_taken(local):
        return
    if request.streaming is not None and (local / MANIFEST).is_file():
        return  # perhaps this stream's own; that is looked at again
    if not request.replace:
        raise OutputExists(request.output_path)
    if not (local / MANIFEST).is_file():
        raise ExistsAlready(
            f"{request.output_path} holds something that is no result of a program (no {MANIFEST}), and --replace "
            "would remove it",
            "Choose another --output-path, or remove it yourself.",
        )

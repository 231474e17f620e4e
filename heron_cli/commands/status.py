"""Commands that observe a topology: ``heron list``, ``status`` and ``metrics``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import typer

from heron_cli.clusters import connect_cluster
from heron_cli.console import (
    Format,
    format_age,
    format_bytes,
    indent_foreign_text,
    print_json,
    print_line,
    print_message,
    print_table,
    state_text,
    stdout_console,
)
from heron_cli.options import ClusterArgument, OutputOption, TopologyArgument, VerboseOption
from heron_control.inspection import metrics_table
from heron_control.inspection.tasks_state import LastCheckpoint, TasksState, UnderWay, names
from heron_control.inspection.topology_status import TopologyStatus, as_json
from heron_runtime.failures import one_line
from heron_runtime.model.containers import label_of
from heron_runtime.model.dataflow import Cause
from heron_runtime.model.plan import GenerationPhase
from heron_runtime.wire.container import ProcessState, ProcessStatus


def list_topologies(
    place: ClusterArgument, output: OutputOption = Format.TABLE, verbose: VerboseOption = False
) -> None:
    """List the topologies of a cluster, or of one role and environment in it.

    Example: heron list local
    """
    cluster, address = connect_cluster(place)
    rows = cluster.topologies(address)
    if output is Format.JSON:
        print_json(rows)
        return
    if not rows:
        print_message(f"no topology runs at {place}")
        return
    columns = ("topology", "role", "environ", "state", "containers", "tasks", "submitted_at")
    cells = [[state_text(row[c]) if c == "state" else row[c] for c in columns] for row in rows]
    print_table(columns, cells, numbers=("containers", "tasks"))


COLUMNS = ("process", "container", "component", "task", "pid", "state", "since", "restarts", "last error")
NUMBERS = ("container", "task", "pid", "since", "restarts")
MAX_EXCEPTIONS = 10
GUARANTEES = {
    "ATMOST_ONCE": "ATMOST_ONCE (a tuple can be lost)",
    "ATLEAST_ONCE": "ATLEAST_ONCE",
    "EFFECTIVELY_ONCE": "EFFECTIVELY_ONCE",
}
MAX_ERROR_CHARACTERS = 120
MAX_LINE_CHARACTERS = 4000


def status(
    place: ClusterArgument, name: TopologyArgument, output: OutputOption = Format.TABLE, verbose: VerboseOption = False
) -> None:
    """Show the containers and processes of a topology.

    Example: heron status local WordCount
    """
    cluster, address = connect_cluster(place)
    document = cluster.status(address, name)
    if output is Format.JSON:
        print_json(as_json(document))
    else:
        print_status(document, time.time(), verbose)


def print_status(status: TopologyStatus, now: float, verbose: bool = False) -> None:
    """Print the table of processes, and lines about state, backpressure and failures.

    Args:
        status: Status of the topology.
        now: Seconds since 1970.
        verbose: Also print tracebacks and the last lines of logs.
    """
    execution = status.execution
    line = state_text(status.state)
    place = f"{execution.cluster}/{execution.role}/{execution.environ}"
    line = line.__class__.assemble(f"{execution.topology} at {place}: ", line)
    line.append(f", {GUARANTEES[status.mode]}" if status.mode in GUARANTEES else "")
    line.append(f", submitted {format_age(now - execution.submitted_at)} ago by {execution.submission_user}")
    stdout_console().print(line)
    print_table(COLUMNS, [_row(process, now) for process in status.processes], NUMBERS)
    if status.code_user is not None:
        print_line(describe_code_user(status.code_user), "dim")
    for text, style in describe_tasks_state(status.tasks_state, now) if status.tasks_state is not None else ():
        _print_one(text, style)
    if status.all_fail:
        _print_one(f"failing: {status.all_fail}", "red")
    if status.put_aside:
        _print_one(
            f"put aside: {status.put_aside} failed records (see docs/explanation/streamlet.md)",
            "yellow",
        )
    if status.late:
        _print_one(describe_late(status.late), "yellow")
    if status.stalled and not status.all_fail:
        _print_one(f"failing: {status.stalled}", "red")
    if status.update:
        _print_one(f"update: {status.update}", "yellow")
    for text in status.troubles():
        _print_one(text, "red")
    for process in status.processes:
        if process.doing:
            _print_one(f"{process.name} is {process.doing}", "yellow")
    for text in describe_backpressure(status.causes):
        _print_one(text, "yellow")
    for report in status.exceptions[-MAX_EXCEPTIONS:]:
        when = format_age(now - report.last_time)
        _print_one(
            f"{report.class_name} in {report.instance}, {report.count} times, last {when} ago: {report.message}", "red"
        )
        if verbose:
            print_line(indent_foreign_text(report.traceback))
    for process in status.processes:
        if verbose and process.state is not ProcessState.RUNNING and process.last_lines:
            print_line(f"last lines of {process.name}:")
            for text in process.last_lines:
                _print_one("    " + text)


def _print_one(text: str, style: str = "") -> None:
    """Print text of users as one line, so that it cannot pass for other lines of the output."""
    print_line(one_line(text, MAX_LINE_CHARACTERS), style)


def describe_code_user(code_user: str) -> str:
    """Return a line about the operating system user of user code."""
    if code_user:
        return f"user code runs as {code_user}, who cannot read the topology's key"
    return (
        "user code runs as the user of Heronry's own processes, and can read the topology's key "
        "(docs/explanation/security.md)"
    )


def describe_late(late: Mapping[str, int]) -> str:
    """Return a line about records that were late for their windows, by component."""
    steps = ", ".join(f"{step} {count}" for step, count in late.items())
    number = sum(late.values())
    return f"late: {number} records came after their windows had closed ({steps}; see docs/explanation/time.md)"


def describe_backpressure(causes: Sequence[Cause]) -> list[str]:
    """Return lines about the tasks that cause backpressure."""
    if not causes:
        return []
    return ["backpressure: the spouts are paused because of slow tasks:", *(f"  {cause}" for cause in causes)]


def _row(process: ProcessStatus, now: float) -> list[object]:
    error = process.last_error.strip().splitlines()
    text = error[-1] if error else ""
    return [
        process.name,
        label_of(process.container) if process.container >= 0 else None,
        process.component or None,
        process.task or None,
        process.pid or None,
        state_text(str(process.state)),
        format_age(now - process.since) if process.since else None,
        process.restarts,
        text if len(text) <= MAX_ERROR_CHARACTERS else text[: MAX_ERROR_CHARACTERS - 1] + "…",
    ]


def describe_tasks_state(state: TasksState, now: float) -> list[tuple[str, str]]:
    """Return lines with their styles about the generation and checkpoints of a topology.

    Args:
        state: State of the tasks.
        now: Seconds since 1970.
    """
    shown = [_describe_phase(state)]
    if state.storage_fault and state.phase is GenerationPhase.RUNNING:
        shown.append((state.trouble, "bold red"))
    if not state.told:
        shown.append(("state: the topology master does not answer; shown is its last plan", "yellow"))
        return shown
    shown.append((f"last complete checkpoint: {_describe_last(state.last, now)}", ""))
    if state.under_way is not None:
        shown.append((_describe_pending(state.under_way), ""))
    if state.cancelled:
        shown.append((f"checkpoints cancelled: {state.cancelled}, the last one: {state.cancelled_why}", "yellow"))
    return shown


def _describe_phase(state: TasksState) -> tuple[str, str]:
    if state.phase is GenerationPhase.FAILED:
        return f"state: {state.trouble}", "bold red"
    if state.phase is GenerationPhase.RESTORING:
        return f"state: {state.trouble}", "yellow"
    text = f"state: generation {state.generation} runs"
    if state.phase_seconds is not None:
        text += f" for {format_age(state.phase_seconds)}"
    if state.restores:
        text += f"; restores: {state.restores}, the last after {state.cause}"
    elif state.cause:
        text += f"; restored after {state.cause}"
    return text, ""


def _describe_last(last: LastCheckpoint | None, now: float) -> str:
    if last is None:
        return "none"
    if last.completed_at is None or last.duration_ms is None or last.bubble_ms is None:
        return f"{last.number}, {format_bytes(last.bytes)}, taken under an earlier topology master"
    ago = format_age(now - datetime.fromisoformat(last.completed_at).timestamp())
    times = f"in {last.duration_ms:.0f} ms, bubble {last.bubble_ms:.0f} ms"
    text = f"{last.number}, {ago} ago, {times}, {format_bytes(last.bytes)}"
    return f"{text}, waited longest for {last.last_aligned}" if last.last_aligned else text


def _describe_pending(state: UnderWay) -> str:
    text = f"checkpoint {state.number} began {state.seconds:.1f} s ago"
    if not state.waits_for:
        return f"{text}: writing its manifest"
    return f"{text}: waiting for {names(state.waits_for)} to {'write' if state.writing else 'align'}"


def metrics(
    place: ClusterArgument,
    name: TopologyArgument,
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[METRIC]...", help="Metric names, for example __emit-count/default.")
    ] = None,
    component: Annotated[str, typer.Option("--component", help="Only this component.")] = "",
    interval: Annotated[
        float | None,
        typer.Option("--interval", metavar="SECONDS", help="Only the last seconds. Default: since the start."),
    ] = None,
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Print counts, rates and latencies of a topology.

    Example: heron metrics local WordCount --component count --interval 60
    """
    from heron_control.inspection.inspector import SINCE_THE_START  # imported here, since it imports gRPC

    cluster, address = connect_cluster(place)
    seconds = SINCE_THE_START if interval is None else interval
    document = cluster.metrics(address, name, component, seconds, wanted or ())
    if output is Format.JSON:
        print_json({key: value for key, value in document.items() if key != "flow"})
        return
    span = f"the last {document['interval']:.0f} s" if seconds > 0 else "all time"
    print_message(f"{name}, {span}")
    if wanted or component.startswith("__"):
        columns = ("component", "instance", "metric", "total", "rate/s", "p50 ms", "p99 ms")
        print_table(columns, metrics_table.detail_rows(document), columns[3:])
        return
    if not any(row["component"] in document["components"] for row in document["flow"]):
        print_message("no task has reported metrics yet; each reports every few seconds (heron.metrics.interval.secs)")
    print_table(metrics_table.COLUMNS, metrics_table.flow_rows(document), metrics_table.NUMBERS)

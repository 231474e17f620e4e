"""``heron status``: containers and processes of a topology, which tasks cause backpressure, what user code raised."""

from __future__ import annotations

import time
from collections.abc import Sequence

from heron_cli.clusters import cluster_at
from heron_cli.console import Format, age, indented, out, print_json, print_line, print_table, state_text
from heron_cli.kept_state import lines
from heron_cli.options import Name, Output, Place, Verbose
from heron_control.inspection.topology_status import TopologyStatus, as_json
from heron_runtime.failures import one_line
from heron_runtime.model.containers import label_of
from heron_runtime.model.dataflow import Cause
from heron_runtime.wire.container import ProcessState, ProcessStatus

COLUMNS = ("process", "container", "component", "task", "pid", "state", "since", "restarts", "last error")
NUMBERS = ("container", "task", "pid", "since", "restarts")
MAX_EXCEPTIONS = 10
GUARANTEES = {
    "ATMOST_ONCE": "ATMOST_ONCE (a tuple may be lost)",
    "ATLEAST_ONCE": "ATLEAST_ONCE",
    "EFFECTIVELY_ONCE": "EFFECTIVELY_ONCE",
}
MAX_ERROR_CHARACTERS = 120
MAX_LINE_CHARACTERS = 4000


def status(place: Place, name: Name, output: Output = Format.TABLE, verbose: Verbose = False) -> None:
    """Show containers and processes of a topology."""
    cluster, address = cluster_at(place)
    found = cluster.status(address, name)
    if output is Format.JSON:
        print_json(as_json(found))
    else:
        show(found, time.time(), verbose)


def show(status: TopologyStatus, now: float, verbose: bool = False) -> None:
    """The table, and in words what is not as it should be."""
    execution = status.execution
    line = state_text(status.state)
    place = f"{execution.cluster}/{execution.role}/{execution.environ}"
    line = line.__class__.assemble(f"{execution.topology} at {place}: ", line)
    line.append(f", {GUARANTEES[status.mode]}" if status.mode in GUARANTEES else "")
    line.append(f", submitted {age(now - execution.submitted_at)} ago by {execution.submission_user}")
    out().print(line)
    print_table(COLUMNS, [_row(process, now) for process in status.processes], NUMBERS)
    if status.code_user is not None:
        print_line(whose_code(status.code_user), "dim")
    for text, style in lines(status.tasks_state, now) if status.tasks_state is not None else ():
        _print_one(text, style)
    if status.all_fail:
        _print_one(f"failing: {status.all_fail}", "red")
    if status.put_aside:
        _print_one(
            f"put aside: {status.put_aside} records that failed (docs/explanation/streamlet.md says where they are)",
            "yellow",
        )
    if status.stalled and not status.all_fail:
        _print_one(f"failing: {status.stalled}", "red")
    if status.update:
        _print_one(f"update: {status.update}", "yellow")
    for text in status.troubles():
        _print_one(text, "red")
    for process in status.processes:
        if process.doing:
            _print_one(f"{process.name} is {process.doing}", "yellow")
    for text in pressure(status.causes):
        _print_one(text, "yellow")
    for report in status.exceptions[-MAX_EXCEPTIONS:]:
        when = age(now - report.last_time)
        _print_one(
            f"{report.class_name} in {report.instance}, {report.count} times, last {when} ago: {report.message}", "red"
        )
        if verbose:
            print_line(indented(report.traceback))
    for process in status.processes:
        if verbose and process.state is not ProcessState.RUNNING and process.last_lines:
            print_line(f"last lines of {process.name}:")
            for text in process.last_lines:
                _print_one("    " + text)


def _print_one(text: str, style: str = "") -> None:
    """Print foreign text as one line, so that a message cannot pass for lines of ours."""
    print_line(one_line(text, MAX_LINE_CHARACTERS), style)


def whose_code(code_user: str) -> str:
    """As whom user code runs, and what follows."""
    if code_user:
        return f"user code runs as {code_user}, who cannot read the topology's key"
    return (
        "user code runs as the user of Heronry's own processes, and can read the topology's key "
        "(docs/explanation/security.md)"
    )


def pressure(causes: Sequence[Cause]) -> list[str]:
    """Backpressure in words: whom the spouts wait for."""
    if not causes:
        return []
    return ["backpressure: spouts are paused, because these are slow:", *(f"  {cause}" for cause in causes)]


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
        age(now - process.since) if process.since else None,
        process.restarts,
        text if len(text) <= MAX_ERROR_CHARACTERS else text[: MAX_ERROR_CHARACTERS - 1] + "…",
    ]

"""``heron logs``: the last lines of the logs of a component, instance or process, and new lines as they are written."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from heron_cli.cluster_client import TopologyLogs
from heron_cli.clusters import connect_cluster
from heron_cli.console import escape_control_characters, print_line, print_table
from heron_cli.options import ClusterArgument, TopologyArgument, VerboseOption
from heron_control.inspection.inspector import LoggedProcess
from heron_control.inspection.log_reader import Follower, tail
from heron_runtime.failures import NotFound, did_you_mean
from heron_runtime.model.containers import label_of

POLL_SECS = 0.25


def logs(
    place: ClusterArgument,
    name: TopologyArgument,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[COMPONENT|INSTANCE|PROCESS]", help="Component, instance or process. Default: list them."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they are written.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=100_000, help="Number of last lines to print.")
    ] = 100,
    verbose: VerboseOption = False,
) -> None:
    """Print the logs of a component, an instance or another process of a topology.

    Example: heron logs local WordCount count --follow
    """
    cluster, address = connect_cluster(place)
    with cluster.session():
        all_logs = cluster.logs(address, name)
        if target is None:
            columns = ("process", "component", "container")
            rows = [(p.process, p.component, label_of(p.container)) for p in all_logs.processes]
            print_table(columns, rows, numbers=("container",))
            return
        processes = select_processes(all_logs, address.cluster, name, target)
        print_logs(all_logs, processes, target, lines, follow)


def print_logs(logs: TopologyLogs, processes: Sequence[LoggedProcess], target: str, lines: int, follow: bool) -> None:
    """Print the last lines of each log, and new lines with `follow`.

    Raises:
        NotFound: No process has written a log, and `follow` is false.
    """
    width = max(len(p.process) for p in processes) if len(processes) > 1 else 0
    followers = []
    missing = 0
    for p in processes:
        read = functools.partial(logs.read, p.container)
        try:
            data, end = tail(read, f"{p.process}.log", lines)
        except FileNotFoundError:
            missing += 1
            data, end = b"", 0
        _print(p.process, data.splitlines(), width)
        followers.append((p.process, Follower(read, f"{p.process}.log", end)))
    if missing == len(processes) and not follow:
        raise NotFound(f"{target} has written no log yet")
    while follow:
        new = [(process, follower.lines()) for process, follower in followers]
        for process, added in new:
            _print(process, added, width)
        sys.stdout.flush()
        if not any(added for _, added in new):
            time.sleep(POLL_SECS)


def select_processes(logs: TopologyLogs, cluster: str, name: str, target: str) -> list[LoggedProcess]:
    """Return the process, or the tasks of the component, that `target` names. Raises NotFound."""
    processes = [p for p in logs.processes if target in (p.process, p.component)]
    if processes:
        return processes
    known = [*(p.process for p in logs.processes), *logs.components]
    raise NotFound(
        f"{name} has no component, instance or process {target!r}{did_you_mean(target, known)}",
        f"`heron logs {cluster} {name}` lists them.",
    )


def _print(process: str, lines: Iterable[bytes] | Sequence[bytes], width: int) -> None:
    for line in lines:
        text = escape_control_characters(line.decode(errors="replace").rstrip("\r\n"))
        if width:
            print_line(f"{process:<{width}} | {text}")
        else:
            sys.stdout.write(text + "\n")

"""``heron logs``: the end of a process's log, and what comes, by component, instance or process name."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from heron_cli.cluster import Logs
from heron_cli.clusters import cluster_at
from heron_cli.console import print_line, print_table, visible
from heron_cli.options import Name, Place, Verbose
from heron_control.inspection.inspector import LoggedProcess
from heron_control.inspection.log_reading import Follower, tail
from heron_runtime.failures import NotFound, did_you_mean
from heron_runtime.model.containers import label_of

POLL_SECS = 0.25


def logs(
    place: Place,
    name: Name,
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
    verbose: Verbose = False,
) -> None:
    """Print the logs of a component, an instance or another process of a topology."""
    cluster, address = cluster_at(place)
    with cluster.session():
        found = cluster.logs(address, name)
        if target is None:
            columns = ("process", "component", "container")
            rows = [(p.process, p.component, label_of(p.container)) for p in found.processes]
            print_table(columns, rows, numbers=("container",))
            return
        show(found, choose(found, address.cluster, name, target), target, lines, follow)


def show(found: Logs, chosen: Sequence[LoggedProcess], target: str, lines: int, follow: bool) -> None:
    """The last lines of each, and what comes. Raises NotFound if none has written anything and nobody waits for it."""
    width = max(len(p.process) for p in chosen) if len(chosen) > 1 else 0
    followers = []
    missing = 0
    for p in chosen:
        read = functools.partial(found.read, p.container)
        try:
            data, end = tail(read, f"{p.process}.log", lines)
        except FileNotFoundError:
            missing += 1
            data, end = b"", 0
        _print(p.process, data.splitlines(), width)
        followers.append((p.process, Follower(read, f"{p.process}.log", end)))
    if missing == len(chosen) and not follow:
        raise NotFound(f"{target} has written no log yet")
    while follow:
        new = [(process, follower.lines()) for process, follower in followers]
        for process, added in new:
            _print(process, added, width)
        sys.stdout.flush()
        if not any(added for _, added in new):
            time.sleep(POLL_SECS)


def choose(found: Logs, cluster: str, name: str, target: str) -> list[LoggedProcess]:
    """What ``target`` names: one process, or all tasks of a component. Raises NotFound."""
    chosen = [p for p in found.processes if target in (p.process, p.component)]
    if chosen:
        return chosen
    known = [*(p.process for p in found.processes), *found.components]
    raise NotFound(
        f"{name} has no component, instance or process {target!r}{did_you_mean(target, known)}",
        f"`heron logs` without it lists them: `heron logs {cluster} {name}`.",
    )


def _print(process: str, lines: Iterable[bytes] | Sequence[bytes], width: int) -> None:
    for line in lines:
        text = visible(line.decode(errors="replace").rstrip("\r\n"))
        if width:
            print_line(f"{process:<{width}} | {text}")
        else:
            sys.stdout.write(text + "\n")

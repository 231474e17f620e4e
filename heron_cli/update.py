"""``heron update``: another parallelism, number of containers or settings of a topology that runs; ``heron move``: a
new container for the tasks of one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from heron_cli.clusters import cluster_at
from heron_cli.console import Format, print_json, print_line, say, spinner
from heron_cli.options import Name, Output, Place, Verbose
from heron_control.packing.runtime_config import read_settings
from heron_control.packing.update import UpdateRequest, read_parallelism
from heron_runtime.failures import UsageError

SHOWN = 20  # tasks in one line
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the changes and change nothing.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=1.0, metavar="SECONDS", help="Time after which the old plan is restored.")
]


def update(
    place: Place,
    name: Name,
    component_parallelism: Annotated[
        list[str] | None,
        typer.Option("--component-parallelism", metavar="COMPONENT:TASKS", help="New number of tasks. Repeatable."),
    ] = None,
    container_number: Annotated[
        int | None,
        typer.Option(
            "--container-number",
            min=1,
            help="New number of containers. Default: running tasks stay in their container.",
        ),
    ] = None,
    runtime_config: Annotated[
        list[str] | None,
        typer.Option("--runtime-config", metavar="[COMPONENT:]KEY:VALUE", help="New value of a setting. Repeatable."),
    ] = None,
    dry_run: DryRun = False,
    timeout: Timeout = 120.0,
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Change the parallelism of components, the number of containers, or settings, while the topology runs.

    It gets the new plan or keeps the old one. Where state is kept all tasks stop at a checkpoint and go on from it.
    """
    settings = read_settings(runtime_config or ())
    asked = UpdateRequest(read_parallelism(component_parallelism or ()), container_number, settings)
    _run(place, name, asked, timeout, output, dry_run=dry_run)


def move(
    place: Place,
    name: Name,
    container: Annotated[
        int, typer.Argument(metavar="CONTAINER", min=1, help="Number of the container in `heron status`.")
    ],
    host: Annotated[
        str | None, typer.Argument(metavar="[HOST]", help="Not supported: the scheduler chooses the host.")
    ] = None,
    dry_run: DryRun = False,
    timeout: Timeout = 120.0,
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Move all tasks of a container to a new one while the topology runs."""
    if host is not None:
        raise UsageError(
            f"{place}: what runs its containers has no hosts to choose from, so none goes to {host!r}",
            "Leave HOST out.",
        )
    _run(place, name, UpdateRequest(move=container), timeout, output, dry_run=dry_run)


def _run(place: str, name: str, asked: UpdateRequest, timeout: float, output: Format, *, dry_run: bool) -> None:
    cluster, address = cluster_at(place)
    with cluster.session(), spinner(f"updating {name}") as progress:
        done = cluster.update(address, name, asked, timeout, progress, dry_run=dry_run)
    if output is Format.JSON:
        print_json(done)
        return
    for line in lines(done):
        print_line(line)
    if not dry_run:
        say(f"topology {name} is updated", "green")


def lines(done: dict[str, Any]) -> list[str]:
    """What was done, or would be."""
    found = [f"{component}: {old} -> {new} tasks" for component, (old, new) in done["parallelism"].items()]
    old, new = done["containers"]
    if old != new:
        found.append(f"containers: {old} -> {new}")
    for each in done["settings"]:
        whose = f"{each['component']}: " if each["component"] else ""
        found.append(f"{whose}{each['key']}: {each['from']!r} -> {each['to']!r}")
    for key, word in (("new_containers", "new containers"), ("removed_containers", "removed containers")):
        if done[key]:
            found.append(f"{word}: {', '.join(map(str, done[key]))}")
    for key, word in (("new_tasks", "new tasks"), ("removed_tasks", "removed tasks")):
        if done[key]:
            tasks = [f"{task['component']} {task['task']}" for task in done[key]]
            found.append(f"{word}: {_some(tasks)}")
    moves = [f"{t['component']} {t['task']} from container {t['from']} to {t['to']}" for t in done["moved_tasks"]]
    found.append(f"moved tasks: {_some(moves)}" if moves else "no task moves")
    return found + list(done["notes"])


def _some(texts: list[str]) -> str:
    more = len(texts) - SHOWN
    return ", ".join(texts[:SHOWN]) + (f" and {more} more" if more > 0 else "")

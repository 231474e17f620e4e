"""``heron update``: another parallelism, or number of containers, of a topology that runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from heron_cli.clusters import cluster_at
from heron_cli.console import Format, print_json, print_line, say, spinner
from heron_cli.options import Name, Output, Place, Verbose
from heron_control.packing.update import UpdateRequest, read_parallelism

SHOWN = 20  # tasks in one line


def update(
    place: Place,
    name: Name,
    component_parallelism: Annotated[
        list[str] | None,
        typer.Option("--component-parallelism", metavar="COMPONENT:TASKS", help="How many tasks; may be repeated."),
    ] = None,
    container_number: Annotated[
        int | None,
        typer.Option("--container-number", min=1, help="How many containers; without it tasks stay where they are."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1.0, metavar="SECONDS", help="Then it gets its old plan again.")
    ] = 120.0,
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Change the parallelism of components, or the number of containers, while the topology runs.

    It gets the new plan or keeps the old one. Where state is kept all tasks stop at a checkpoint and go on from it.
    """
    asked = UpdateRequest(read_parallelism(component_parallelism or ()), container_number)
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

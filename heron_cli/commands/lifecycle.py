"""``heron kill``, ``activate``, ``deactivate``, ``restart``, ``update`` and ``move``: changes of a running topology."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from heron_cli.clusters import SPARK, connect_cluster, parse_cluster_address
from heron_cli.console import Format, print_json, print_line, print_message, spinner
from heron_cli.options import (
    ClusterArgument,
    OutputOption,
    TopologyArgument,
    VerboseOption,
    WaitOption,
    WaitTimeoutOption,
    given_options,
)
from heron_cli.wait import wait_for_state
from heron_control.inspection import streaming_runs
from heron_control.packing.runtime_settings import read_settings
from heron_control.packing.update import UpdateRequest, read_parallelism
from heron_control.schedulers.scheduler import ALL
from heron_runtime.failures import UsageError
from heron_runtime.model.topology import TopologyState

MAX_TASKS_SHOWN = 20  # in one line
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the changes and change nothing.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=1.0, metavar="SECONDS", help="Time after which the old plan is restored.")
]


def kill(
    context: typer.Context,
    place: ClusterArgument,
    name: TopologyArgument,
    keep_logs: Annotated[bool, typer.Option("--keep-logs", help="Keep the log files and print their path.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Process everything read so far first. If that fails, nothing is killed.")
    ] = False,
    drain_timeout: Annotated[
        float, typer.Option("--drain-timeout", min=1.0, metavar="SECONDS", help="Longest wait for --drain.")
    ] = 300.0,
    verbose: VerboseOption = False,
) -> None:
    """Kill a topology and remove its processes, sockets and state. With CLUSTER spark: stop a streaming run.

    Example: heron kill local WordCount --drain
    """
    if parse_cluster_address(place).cluster == SPARK:
        unused = [flag for option, flag in given_options(context).items() if option not in ("place", "name", "verbose")]
        if unused:
            raise UsageError(f"{unused[0]} is not for `heron kill {SPARK}`", "Leave it out.")
        with spinner(f"stopping {name}"):
            run = streaming_runs.stop(name)
        print_message(f"the run of {name} has stopped; the same command continues from {run.checkpoint}", "green")
        return
    cluster, address = connect_cluster(place)
    with spinner(f"killing {name}") as progress:
        checkpoint = cluster.drain(address, name, drain_timeout, progress) if drain else 0
        logs = cluster.kill(address, name, progress, keep_logs=keep_logs)
    if checkpoint:
        print_message(f"its last checkpoint {checkpoint} is committed")
    print_message(f"topology {name} is killed", "green")
    if keep_logs:
        print_message(f"its logs are kept in {logs}" if logs else "it had no logs")


def activate(place: ClusterArgument, name: TopologyArgument, verbose: VerboseOption = False) -> None:
    """Activate the spouts of a topology.

    Example: heron activate local WordCount
    """
    _set_state(place, name, TopologyState.RUNNING)


def deactivate(place: ClusterArgument, name: TopologyArgument, verbose: VerboseOption = False) -> None:
    """Pause the spouts of a topology. Emitted tuples are still processed.

    Example: heron deactivate local WordCount
    """
    _set_state(place, name, TopologyState.PAUSED)


def _set_state(place: str, name: str, state: TopologyState) -> None:
    cluster, address = connect_cluster(place)
    verb = "activated" if state is TopologyState.RUNNING else "deactivated"
    with spinner(f"waiting for the topology master of {name}") as progress:
        cluster.set_state(address, name, state, progress)
    print_message(f"topology {name} is {verb}", "green")


def restart(
    place: ClusterArgument,
    name: TopologyArgument,
    container: Annotated[
        int, typer.Argument(metavar="[CONTAINER]", help="Number of the container. Default: all.")
    ] = ALL,
    wait: WaitOption = True,
    wait_timeout: WaitTimeoutOption = 120.0,
    verbose: VerboseOption = False,
) -> None:
    """Restart one container of a topology, or all of them.

    Example: heron restart local WordCount 2
    """
    cluster, address = connect_cluster(place)
    with cluster.session(), spinner(f"restarting {name}") as progress:
        topology_id = cluster.status(address, name).execution.topology_id if wait else ""
        containers = cluster.restart(address, name, container, wait_timeout)
        if wait:
            wait_for_state(cluster, address, name, topology_id, timeout_secs=wait_timeout, progress=progress)
    print_message(f"restarted container {', '.join(str(number) for number in containers)} of {name}", "green")


def update(
    place: ClusterArgument,
    name: TopologyArgument,
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
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Change the parallelism of components, the number of containers, or settings, while the topology runs.

    If the update fails, the old plan is restored. Tasks with state stop at a checkpoint and continue from it.

    Example: heron update local WordCount --component-parallelism count:4
    """
    settings = read_settings(runtime_config or ())
    request = UpdateRequest(read_parallelism(component_parallelism or ()), container_number, settings)
    _update(place, name, request, timeout, output, dry_run=dry_run)


def move(
    place: ClusterArgument,
    name: TopologyArgument,
    container: Annotated[
        int, typer.Argument(metavar="CONTAINER", min=1, help="Number of the container in `heron status`.")
    ],
    host: Annotated[
        str | None, typer.Argument(metavar="[HOST]", help="Not supported: the scheduler chooses the host.")
    ] = None,
    dry_run: DryRun = False,
    timeout: Timeout = 120.0,
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Move all tasks of a container to a new one while the topology runs.

    Example: heron move local WordCount 2
    """
    if host is not None:
        raise UsageError(
            f"{place}: this cluster cannot place containers on a host such as {host!r}",
            "Leave HOST out.",
        )
    _update(place, name, UpdateRequest(move=container), timeout, output, dry_run=dry_run)


def _update(place: str, name: str, request: UpdateRequest, timeout: float, output: Format, *, dry_run: bool) -> None:
    cluster, address = connect_cluster(place)
    with cluster.session(), spinner(f"updating {name}") as progress:
        document = cluster.update(address, name, request, timeout, progress, dry_run=dry_run)
    if output is Format.JSON:
        print_json(document)
        return
    for line in describe_update(document):
        print_line(line)
    if not dry_run:
        print_message(f"topology {name} is updated", "green")


def describe_update(document: dict[str, Any]) -> list[str]:
    """Return lines about the changes of an update (``PlannedUpdate.document``)."""
    lines = [f"{component}: {old} -> {new} tasks" for component, (old, new) in document["parallelism"].items()]
    old, new = document["containers"]
    if old != new:
        lines.append(f"containers: {old} -> {new}")
    for each in document["settings"]:
        owner = f"{each['component']}: " if each["component"] else ""
        lines.append(f"{owner}{each['key']}: {each['from']!r} -> {each['to']!r}")
    for key, word in (("new_containers", "new containers"), ("removed_containers", "removed containers")):
        if document[key]:
            lines.append(f"{word}: {', '.join(map(str, document[key]))}")
    for key, word in (("new_tasks", "new tasks"), ("removed_tasks", "removed tasks")):
        if document[key]:
            tasks = [f"{task['component']} {task['task']}" for task in document[key]]
            lines.append(f"{word}: {_shorten(tasks)}")
    moves = [f"{t['component']} {t['task']} from container {t['from']} to {t['to']}" for t in document["moved_tasks"]]
    lines.append(f"moved tasks: {_shorten(moves)}" if moves else "no task moves")
    return lines + list(document["notes"])


def _shorten(texts: list[str]) -> str:
    more = len(texts) - MAX_TASKS_SHOWN
    return ", ".join(texts[:MAX_TASKS_SHOWN]) + (f" and {more} more" if more > 0 else "")

"""``heron kill``."""

from __future__ import annotations

from typing import Annotated

import typer

from heron_cli.address import SPARK, parse_address
from heron_cli.clusters import cluster_at
from heron_cli.console import say, spinner
from heron_cli.options import Name, Place, Verbose, typed
from heron_control.inspection import stream_runs
from heron_runtime.failures import UsageError


def kill(
    context: typer.Context,
    place: Place,
    name: Name,
    keep_logs: Annotated[bool, typer.Option("--keep-logs", help="Keep the log files and print their path.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Process everything read so far first. If that fails, nothing is killed.")
    ] = False,
    drain_timeout: Annotated[
        float, typer.Option("--drain-timeout", min=1.0, metavar="SECONDS", help="Longest wait for --drain.")
    ] = 300.0,
    verbose: Verbose = False,
) -> None:
    """Kill a topology and remove its processes, sockets and state. With CLUSTER spark: stop a streaming run."""
    if parse_address(place).cluster == SPARK:
        unused = [flag for option, flag in typed(context).items() if option not in ("place", "name", "verbose")]
        if unused:
            raise UsageError(f"{unused[0]} is not for `heron kill {SPARK}`", "Leave it out.")
        with spinner(f"ending {name}"):
            run = stream_runs.stop(name)
        say(f"the run of {name} has ended; the same command goes on from {run.checkpoint}", "green")
        return
    cluster, address = cluster_at(place)
    with cluster.session(), spinner(f"killing {name}") as progress:
        number = cluster.drain(address, name, drain_timeout, progress) if drain else 0
        kept = cluster.kill(address, name, progress, keep_logs=keep_logs)
    if number:
        say(f"checkpoint {number} was its last, and is committed")
    say(f"topology {name} is killed", "green")
    if keep_logs:
        say(f"its logs are kept in {kept}" if kept else "it had no logs to keep")

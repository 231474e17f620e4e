"""``heron kill``."""

from __future__ import annotations

from typing import Annotated

import typer

from heronry.cli.address import parse_address
from heronry.cli.clusters import cluster_named
from heronry.cli.console import progress, say
from heronry.cli.options import Name, Place, Verbose


def kill(
    place: Place,
    name: Name,
    keep_logs: Annotated[bool, typer.Option("--keep-logs", help="Keep the log files, and say where.")] = False,
    verbose: Verbose = False,
) -> None:
    """Kill a topology: no process, socket or state stays behind."""
    address = parse_address(place)
    cluster = cluster_named(address.cluster)
    with progress(f"killing {name}") as spinner:
        kept = cluster.kill(address, name, spinner.update, keep_logs=keep_logs)
    say(f"topology {name} is killed", "green")
    if keep_logs:
        say(f"its logs are kept in {kept}" if kept else "it had no logs to keep")

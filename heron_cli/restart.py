"""``heron restart``: stop and start one container, or all."""

from __future__ import annotations

from typing import Annotated

import typer

from heron_cli.clusters import cluster_at
from heron_cli.console import say, spinner
from heron_cli.options import Name, Place, Verbose, Wait, WaitTimeout
from heron_cli.wait import wait_for_state
from heron_control.schedulers.scheduler import ALL


def restart(
    place: Place,
    name: Name,
    container: Annotated[
        int, typer.Argument(metavar="[CONTAINER]", help="Number of the container. Default: all.")
    ] = ALL,
    wait: Wait = True,
    wait_timeout: WaitTimeout = 120.0,
    verbose: Verbose = False,
) -> None:
    """Restart one container of a topology, or all of them."""
    cluster, address = cluster_at(place)
    with cluster.session(), spinner(f"restarting {name}") as progress:
        topology_id = cluster.status(address, name).execution.topology_id if wait else ""
        done = cluster.restart(address, name, container, wait_timeout)
        if wait:
            wait_for_state(cluster, address, name, topology_id, timeout_secs=wait_timeout, progress=progress)
    say(f"restarted container {', '.join(str(number) for number in done)} of {name}", "green")

"""``heron restart``: stop and start one container, or all."""

from __future__ import annotations

from typing import Annotated

import typer

from heronry.cli.address import parse_address
from heronry.cli.clusters import cluster_named
from heronry.cli.console import progress, say
from heronry.cli.options import Name, Place, Verbose, Wait, WaitTimeout
from heronry.cli.wait import wait_for_state

ALL = -1


def restart(
    place: Place,
    name: Name,
    container: Annotated[int, typer.Argument(metavar="[CONTAINER]", help="Its number; all if left out.")] = ALL,
    wait: Wait = True,
    wait_timeout: WaitTimeout = 120.0,
    verbose: Verbose = False,
) -> None:
    """Restart a container of a topology, or all of them."""
    address = parse_address(place)
    cluster = cluster_named(address.cluster)
    with cluster.session(), progress(f"restarting {name}") as spinner:
        topology_id = cluster.status(address, name).execution.topology_id if wait else ""
        done = cluster.restart(address, name, container, wait_timeout)
        if wait:
            wait_for_state(cluster, address, name, topology_id, timeout_secs=wait_timeout, talk=spinner.update)
    say(f"restarted container {', '.join(str(number) for number in done)} of {name}", "green")

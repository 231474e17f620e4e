"""``heron restart``: stop and start one container, or all."""

from __future__ import annotations

from typing import Annotated

import typer

from heronry.cli.address import parse_address
from heronry.cli.clusters import cluster_named, find_topology
from heronry.cli.console import progress, say
from heronry.cli.errors import NotFound
from heronry.cli.options import Name, Place, Verbose, Wait, WaitTimeout
from heronry.cli.wait import wait_for_state
from heronry.model.ids import MASTER_CONTAINER

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
    with cluster.open_store() as store:
        record = find_topology(store, address, name)
        numbers = [MASTER_CONTAINER, *(plan.container for plan in record.packing.containers)]
        if container != ALL and container not in numbers:
            raise NotFound(f"{name} has no container {container}", f"It has {numbers[0]} to {numbers[-1]}.")
        with progress(f"restarting {name}") as spinner:
            done = cluster.restart(record, container, wait_timeout)
            if wait:
                wait_for_state(
                    cluster, store, name, record.definition.id, timeout_secs=wait_timeout, talk=spinner.update
                )
    say(f"restarted container {', '.join(str(number) for number in done)} of {name}", "green")

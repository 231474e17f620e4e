"""``heron activate`` and ``heron deactivate``: spouts emit, or pause. The topology master decides and tells them."""

from __future__ import annotations

from heronry.cli.address import parse_address
from heronry.cli.clusters import cluster_named
from heronry.cli.console import progress, say
from heronry.cli.options import Name, Place, Verbose
from heronry.model.topology import TopologyState


def activate(place: Place, name: Name, verbose: Verbose = False) -> None:
    """Let the spouts of a topology emit."""
    _set_state(place, name, TopologyState.RUNNING)


def deactivate(place: Place, name: Name, verbose: Verbose = False) -> None:
    """Pause the spouts of a topology; what they have emitted is processed."""
    _set_state(place, name, TopologyState.PAUSED)


def _set_state(place: str, name: str, state: TopologyState) -> None:
    address = parse_address(place)
    cluster = cluster_named(address.cluster)
    verb = "activated" if state is TopologyState.RUNNING else "deactivated"
    with progress(f"asking the topology master of {name}") as spinner:
        cluster.set_state(address, name, state, spinner.update)
    say(f"topology {name} is {verb}", "green")

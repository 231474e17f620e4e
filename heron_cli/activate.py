"""``heron activate`` and ``heron deactivate``: spouts emit, or pause. The topology master decides and tells them."""

from __future__ import annotations

from heron_cli.clusters import cluster_at
from heron_cli.console import say, spinner
from heron_cli.options import Name, Place, Verbose
from heron_runtime.model.topology import TopologyState


def activate(place: Place, name: Name, verbose: Verbose = False) -> None:
    """Let the spouts of a topology emit."""
    _set_state(place, name, TopologyState.RUNNING)


def deactivate(place: Place, name: Name, verbose: Verbose = False) -> None:
    """Pause the spouts of a topology; what they have emitted is processed."""
    _set_state(place, name, TopologyState.PAUSED)


def _set_state(place: str, name: str, state: TopologyState) -> None:
    cluster, address = cluster_at(place)
    verb = "activated" if state is TopologyState.RUNNING else "deactivated"
    with spinner(f"asking the topology master of {name}") as progress:
        cluster.set_state(address, name, state, progress)
    say(f"topology {name} is {verb}", "green")

"""``heron activate`` and ``heron deactivate``: spouts emit, or pause. The topology master decides and tells them."""

from __future__ import annotations

import time

import grpc

from heronry.cli.address import parse_address
from heronry.cli.clusters import Cluster, Talk, cluster_named, find_topology
from heronry.cli.console import progress, say
from heronry.cli.errors import Unavailable
from heronry.cli.options import Name, Place, Verbose
from heronry.model.topology import TopologyState
from heronry.net.services import MASTER_SERVICE
from heronry.state.store import StateStore
from heronry.state.topologies import TopologyRecord, read_topology
from heronry.wire.master import SetState

TIMEOUT_SECS = 30.0
RETRY_SECS = 0.3


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
    with cluster.open_store() as store:
        record = find_topology(store, address, name)
        with progress(f"asking the topology master of {name}") as spinner:
            ask_master(cluster, store, record, state, spinner.update)
    say(f"topology {name} is {verb}", "green")


def ask_master(cluster: Cluster, store: StateStore, record: TopologyRecord, state: TopologyState, talk: Talk) -> None:
    """Ask until the acting master has stored the plan that says so. Raises Unavailable, NoSuchTopology, grpc.RpcError.

    A master that was just elected, or is being restarted, gets a little time.
    """
    deadline = time.monotonic() + TIMEOUT_SECS
    asker = cluster.asker(record)
    while True:
        record = read_topology(store, record.definition.name)
        if record.master is not None:
            try:
                asker.call(record.master, MASTER_SERVICE, "SetState", SetState(state))
                return
            except grpc.RpcError as error:
                passing = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.ABORTED)
                if not isinstance(error, grpc.Call) or error.code() not in passing:
                    raise
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{record.definition.name} has had no acting topology master for {TIMEOUT_SECS:g} s",
                "`heron status` tells why; its container restarts it.",
            )
        talk("waiting for the topology master")
        time.sleep(RETRY_SECS)

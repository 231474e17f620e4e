"""What a cluster offers to the commands, and which clusters there are.

A command knows a cluster by this protocol only. ``local`` runs topologies on this machine; a cluster behind an api
server joins by a class of its own and an entry in ``CLUSTERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from heronry.api.errors import did_you_mean, listing
from heronry.cli.address import Address
from heronry.cli.ask import Asker
from heronry.cli.errors import NotFound, topology_not_found
from heronry.cli.home import Home
from heronry.model.plan import PackingPlan
from heronry.model.topology import TopologyDefinition, TopologyState
from heronry.state import topologies
from heronry.state.store import StateStore
from heronry.state.topologies import NoSuchTopology, TopologyRecord

Talk = Callable[[str], None]  # shows what goes on


@dataclass(frozen=True)
class Submission:
    """A topology that is ready to run: validated and packed."""

    address: Address
    definition: TopologyDefinition
    packing: PackingPlan
    package: Path  # the staged package (heronry.api.package), which the cluster may move to where it belongs
    state: TopologyState = TopologyState.RUNNING
    settings: Mapping[str, Any] = field(default_factory=dict)  # heron.* keys


class Cluster(Protocol):
    """Where topologies run."""

    name: str

    def open_store(self) -> AbstractContextManager[StateStore]:
        """The cluster's state store, open for the length of the block. Raises StoreError."""

    def asker(self, record: TopologyRecord) -> Asker:
        """Who may ask the topology's processes. Raises CliError."""

    def submit(self, submission: Submission, talk: Talk, *, replace: bool = False) -> Callable[[], bool]:
        """Start it. All or nothing: when this raises, nothing of it is left behind.

        ``replace`` kills a topology of this name first, once everything else is prepared. Returns a question: does that
        which starts the topology still live? Raises CliError and what ``translate`` knows.
        """

    def kill(self, address: Address, name: str, talk: Talk, *, keep_logs: bool = False) -> None:
        """End it, and return when no process, socket or state is left. Raises NotFound, CliError."""

    def restart(self, record: TopologyRecord, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Stop and start one container, or all (-1); returns which. Raises SchedulerError."""

    def log_folder(self, record: TopologyRecord) -> Path | None:
        """Where the topology's log files are on this machine; None if they are elsewhere."""


def _local(home: Home) -> Cluster:
    from heronry.cli.local_cluster import LocalCluster

    return LocalCluster(home)


CLUSTERS: Mapping[str, Callable[[Home], Cluster]] = {"local": _local}


def cluster_named(name: str) -> Cluster:
    """The cluster of this name. Raises NotFound."""
    make = CLUSTERS.get(name)
    if make is None:
        raise NotFound(f"there is no cluster {name!r}{did_you_mean(name, CLUSTERS)}", f"There is {listing(CLUSTERS)}.")
    return make(Home.of_user())


def find_topology(store: StateStore, address: Address, name: str) -> TopologyRecord:
    """The topology of this name, which must run at ``address``. Raises NotFound, StoreError."""
    try:
        record = topologies.read_topology(store, name)
    except NoSuchTopology:
        known = [state.topology for state in topologies.list_topologies(store)]
        raise topology_not_found(name, address.cluster, known) from None
    check_place(address, name, record.execution.role, record.execution.environ)
    return record


def check_place(address: Address, name: str, role: str, environ: str) -> None:
    """Raises NotFound if the topology runs for another role or environment than ``address`` says."""
    if (role, environ) != (address.role, address.environ):
        place = f"{address.cluster}/{role}/{environ}"
        raise NotFound(f"topology {name!r} is not at {address} but at {place}", f"Write {place}.")

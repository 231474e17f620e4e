"""What a cluster offers to the commands, and which clusters there are.

A command knows a cluster by this protocol only. ``local`` runs topologies on this machine; every name with an entry in
``credentials.json`` (``heron login``) is a cluster behind an api server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from heronry.api.errors import did_you_mean, listing
from heronry.api.fitting import Target
from heronry.cli.address import Address
from heronry.cli.credentials import read_credentials
from heronry.cli.home import Home
from heronry.failures import NotFound
from heronry.inspection.inspector import SINCE_THE_START, LoggedProcess
from heronry.inspection.topology_status import TopologyStatus
from heronry.model.plan import PackingPlan
from heronry.model.topology import TopologyDefinition, TopologyState
from heronry.wire.container import FileData

Talk = Callable[[str], None]  # shows what goes on
LOCAL = "local"


@dataclass(frozen=True)
class Submission:
    """A topology that is ready to run: validated and packed."""

    address: Address
    definition: TopologyDefinition
    packing: PackingPlan
    package: Path  # the staged package (heronry.api.package), which the cluster may move to where it belongs
    state: TopologyState = TopologyState.RUNNING
    settings: Mapping[str, Any] = field(default_factory=dict)  # heron.* keys


@dataclass(frozen=True)
class Logs:
    """The logs of a topology: who writes one, and how a part of one is read (container, path, offset, length)."""

    processes: tuple[LoggedProcess, ...]
    components: tuple[str, ...]
    read: Callable[[int, str, int, int], FileData]


class Cluster(Protocol):
    """Where topologies run. Every method may raise what ``heronry.failures.translate`` knows."""

    name: str

    def session(self) -> AbstractContextManager[object]:
        """What is asked within shares one connection; may be nested, and may be left out."""

    def target(self) -> Target | None:
        """What the topologies' packages must fit; None where this very interpreter runs them."""

    def submit(self, submission: Submission, talk: Talk, *, replace: bool = False) -> Callable[[], bool]:
        """Start it. All or nothing: when this raises, nothing of it is left behind.

        ``replace`` kills a topology of this name first, once everything else is prepared. Returns a question: does that
        which starts the topology still live?
        """

    def kill(self, address: Address, name: str, talk: Talk, *, keep_logs: bool = False) -> str:
        """End it; returns when no process, socket or state is left, and where its logs are kept ("" if nowhere)."""

    def restart(self, address: Address, name: str, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Stop and start one container, or all (-1); returns which."""

    def set_state(self, address: Address, name: str, state: TopologyState, talk: Talk) -> None:
        """Let the spouts emit, or pause them; returns when the topology master has decided so."""

    def topologies(self, address: Address) -> list[dict[str, Any]]:
        """The rows of ``heron list``, for the parts of the address that were given."""

    def status(self, address: Address, name: str) -> TopologyStatus:
        """What all of its processes say."""

    def metrics(
        self,
        address: Address,
        name: str,
        component: str = "",
        interval: float = SINCE_THE_START,
        wanted: Iterable[str] = (),
    ) -> dict[str, Any]:
        """See ``heronry.inspection.metrics_table.document``."""

    def logs(self, address: Address, name: str) -> Logs:
        """Its logs."""


def cluster_named(name: str) -> Cluster:
    """The cluster of this name. Raises NotFound, Failure."""
    home = Home.of_user()
    if name == LOCAL:
        from heronry.cli.local_cluster import LocalCluster

        return LocalCluster(home)
    logins = read_credentials(home)
    login = logins.get(name)
    if login is None:
        known = (LOCAL, *logins)
        raise NotFound(
            f"there is no cluster {name!r}{did_you_mean(name, known)}",
            f"There is {listing(known)}; `heron login {name} --api URL` adds a cluster behind an api server.",
        )
    from heronry.cli.api_cluster import ApiCluster

    return ApiCluster(name, login)

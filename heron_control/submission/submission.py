"""What is submitted, and to where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heron_control.schedulers.grants import Quota
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heron_runtime.state.local import StoreAddress


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What all submissions of a cluster share: the home with their folders, the cluster's name, the store's address,
    whether other homes of this user share that (``Homes``), and the most that all of them may be granted."""

    home: Path
    cluster: str
    store: StoreAddress
    shared: bool = False
    quota: Quota = field(default_factory=Quota)

    @property
    def homes(self) -> Homes:
        """Where the folders are."""
        return Homes(self.home, self.cluster, self.shared)


@dataclass(frozen=True, slots=True)
class StartFrom:
    """The checkpoint that a topology begins with. ``may_drop``: state that has no place there is left behind."""

    reference: str
    may_drop: bool = False


@dataclass(frozen=True, slots=True)
class Carry:
    """Where a topology is replaced whose state is kept, the new one goes on with that. ``seconds``: so long what it has
    read may take to get through."""

    may_drop: bool = False
    seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Submission:
    """A topology that is ready to run: validated and packed.

    ``package`` is its code: a folder, which may be moved to where it belongs, or a tar.gz whose digest is
    ``package_digest``. ``settings`` are heron.* keys. ``start``: the checkpoint it begins with, if one;
    ``carry``: what it replaces, if that keeps state, is drained first, and it goes on from there.
    """

    definition: TopologyDefinition
    packing: PackingPlan
    package: Path
    role: str
    environ: str
    user: str
    state: TopologyState = TopologyState.RUNNING
    settings: Mapping[str, Any] = field(default_factory=dict)
    package_digest: str = ""
    start: StartFrom | None = None
    carry: Carry | None = None

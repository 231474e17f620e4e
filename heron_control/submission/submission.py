"""Values of a submission: the topology, its start checkpoint and its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heron_control.schedulers.grants import Quota
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heron_runtime.state import StoreAddress


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Settings shared by all submissions of a cluster.

    The home with their folders, the cluster's name, the store's address, whether other homes of this user share the
    store (``Homes``), and the quota.
    """

    home: Path
    cluster: str
    store: StoreAddress
    shared: bool = False
    quota: Quota = field(default_factory=Quota)

    @property
    def homes(self) -> Homes:
        """Homes with the topologies' folders."""
        return Homes(self.home, self.cluster, self.shared)


@dataclass(frozen=True, slots=True)
class StartFrom:
    """Start checkpoint. With ``may_drop``, state that no component can restore is dropped."""

    reference: str
    may_drop: bool = False


@dataclass(frozen=True, slots=True)
class StateHandover:
    """Handover of state from a replaced topology. ``seconds`` is the timeout of its drain."""

    may_drop: bool = False
    seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Submission:
    """Validated and packed topology.

    ``package`` is its code: a folder that may be moved to its place, or a tar.gz with the digest ``package_digest``.
    ``settings`` are heron.* keys. ``start`` is the start checkpoint. With ``handover`` a replaced stateful topology is
    drained first, and this one continues from its state.
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
    handover: StateHandover | None = None

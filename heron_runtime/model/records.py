"""Records of the state store: small ones beside definition and plans, and all of one submission as a value."""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.plan import PackingPlan, PhysicalPlan
from heron_runtime.model.topology import TopologyDefinition, TopologyState


@dataclass(frozen=True, slots=True)
class ExecutionState:
    """Who submitted the topology, when, where it lives, and what state the user wants it in.

    What stands in the store is the state that was wanted at submit (``WantedState``); readers put in the newest.
    """

    topology: str
    topology_id: str
    cluster: str
    role: str
    environ: str
    state: TopologyState
    submission_user: str = ""
    submitted_at: float = 0.0
    release_version: str = ""
    home: str = ""


@dataclass(frozen=True, slots=True)
class MasterLocation:
    """Where the acting topology master listens. Ephemeral: it goes with its owner's session."""

    topology_id: str
    host: str
    port: int
    epoch: int
    pid: int = 0
    container: int = 0


@dataclass(frozen=True, slots=True)
class SchedulerLocation:
    """Where the topology's scheduler listens. Ephemeral."""

    topology_id: str
    host: str
    port: int
    pid: int = 0


@dataclass(frozen=True, slots=True)
class ContainerLocation:
    """Where a container's ``heron_container`` listens (status and logs)."""

    topology_id: str
    container: int
    host: str
    port: int
    pid: int
    incarnation: int
    metrics_port: int = 0


@dataclass(frozen=True, slots=True)
class MasterEpoch:
    """The highest epoch won so far; raised by compare-and-set."""

    epoch: int


@dataclass(frozen=True, slots=True)
class WantedState:
    """The state that the user asked for since the submit, RUNNING or PAUSED. The acting master writes it."""

    topology_id: str
    state: TopologyState


@dataclass(frozen=True)
class TopologyRecord:
    """All the store knows about one submission of a topology."""

    definition: TopologyDefinition
    packing: PackingPlan
    physical: PhysicalPlan | None
    execution: ExecutionState
    master: MasterLocation | None
    scheduler: SchedulerLocation | None
    containers: tuple[ContainerLocation, ...]

    def container(self, number: int) -> ContainerLocation | None:
        """Where this container's ``heron_container`` listens, if it is there."""
        return next((c for c in self.containers if c.container == number), None)

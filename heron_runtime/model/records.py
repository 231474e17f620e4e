"""Records of the state store besides definition and plans, and all records of one submission as a value."""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.plan import PackingPlan, PhysicalPlan
from heron_runtime.model.topology import TopologyDefinition, TopologyState


@dataclass(frozen=True, slots=True)
class ExecutionState:
    """Submission of a topology: user, time, location and wanted state.

    The store keeps the state that was wanted at submit; readers replace it with the newest (`WantedState`).
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
    """Address of the acting topology master. Ephemeral: it ends with the session of its owner."""

    topology_id: str
    host: str
    port: int
    epoch: int
    pid: int = 0
    container: int = 0


@dataclass(frozen=True, slots=True)
class SchedulerLocation:
    """Address of the scheduler of the topology. Ephemeral."""

    topology_id: str
    host: str
    port: int
    pid: int = 0


@dataclass(frozen=True, slots=True)
class ContainerLocation:
    """Address of the `heron_container` of a container (status and logs)."""

    topology_id: str
    container: int
    host: str
    port: int
    pid: int
    incarnation: int
    metrics_port: int = 0


@dataclass(frozen=True, slots=True)
class MasterEpoch:
    """Highest epoch won so far, increased by compare-and-set."""

    epoch: int


@dataclass(frozen=True, slots=True)
class WantedState:
    """State that the user has requested since the submission, RUNNING or PAUSED. The acting master writes it."""

    topology_id: str
    state: TopologyState


@dataclass(frozen=True)
class TopologyRecord:
    """All records of one submission of a topology."""

    definition: TopologyDefinition
    packing: PackingPlan
    physical: PhysicalPlan | None
    execution: ExecutionState
    master: MasterLocation | None
    scheduler: SchedulerLocation | None
    containers: tuple[ContainerLocation, ...]

    def container(self, number: int) -> ContainerLocation | None:
        """Return the address of `heron_container` in this container, or None if it does not run."""
        return next((c for c in self.containers if c.container == number), None)

"""The ``swarm`` cluster: each container of a topology is a task of a Docker Swarm, on any of its nodes.

The api server runs on a manager. What to start, end and start again is decided as on one engine (``docker``); what
differs is how a container looks (``swarm_plan``) and what becomes of files. What a container writes is on the disk of
its node and goes with it. Where the operator gives storage that all nodes see (HERONRY_SWARM_STORAGE), each topology
has a folder in it: for its checkpoints, and for whatever user code keeps in ``/var/lib/heronry/shared``. Without, a
topology that keeps state is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heron_control.schedulers.docker import DockerOptions, DockerScheduler
from heron_control.schedulers.engine import Engine
from heron_control.schedulers.grants import read_granted
from heron_control.schedulers.scheduler import SchedulerContext, SchedulerError
from heron_control.schedulers.shared_storage import check_state
from heron_control.schedulers.swarm_engine import SwarmEngine
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.failures import NotAllowed
from heron_runtime.launch import Launch
from heron_runtime.state.store import StateStore

_CURE = "Start the api server with HERONRY_SWARM_STORAGE (docs/how-to/deploy/swarm.md)"


@dataclass(frozen=True, slots=True)
class SwarmOptions(DockerOptions):
    """``constraints`` of all tasks; ``storage``: a folder that all nodes and this process see alike."""

    constraints: tuple[str, ...] = ()
    storage: Path | None = None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> SwarmOptions:
        """As for Docker, and from HERONRY_SWARM_CONSTRAINTS (separated by commas) and HERONRY_SWARM_STORAGE.

        Raises SchedulerError for storage that is not there.
        """
        docker = DockerOptions.of_environment(environment)
        given = environment.get("HERONRY_SWARM_CONSTRAINTS", "").split(",")
        storage = Path(found) if (found := environment.get("HERONRY_SWARM_STORAGE", "")) else None
        if storage is not None and not (storage.is_absolute() and storage.is_dir()):
            raise SchedulerError(f"HERONRY_SWARM_STORAGE: {storage} is no folder; mount it here and on every node")
        return cls(
            docker.project, docker.image, docker.api_url, docker.address,
            tuple(part.strip() for part in given if part.strip()), storage,
        )  # fmt: skip


class SwarmScheduler(DockerScheduler):
    """See ``heron_control.schedulers.scheduler.Scheduler`` and ``Watching``."""

    kind = "swarm"

    def __init__(self, store: StateStore, homes: Homes, options: SwarmOptions, engine: Engine | None = None) -> None:
        made = engine or SwarmEngine(
            options.project, options.address, options.constraints, options.storage, options.image
        )  # fmt: skip
        super().__init__(store, homes, options, made)
        self._storage = options.storage

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """As with Docker; and what keeps state has to keep it where all nodes see it."""
        granted = read_granted(folder)
        if granted is not None:
            check_state(granted.definition.config, self._storage, _CURE)
        return super().prepare(launch, folder, package)

    def hold(self, launch: Launch) -> None:
        """Raises NotAllowed: log files are on the nodes."""
        raise NotAllowed(
            "cluster swarm keeps no log files of a topology that is killed: they are on its nodes, and go with its "
            "containers",
            "Read them before with heron logs, or kill it without --keep-logs.",
        )

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """Never asked, for ``hold`` refuses."""
        self.hold(launch)


def scheduler_of(context: SchedulerContext) -> SwarmScheduler:
    """For an api server."""
    return SwarmScheduler(context.store, context.homes, SwarmOptions.of_environment(context.environment))

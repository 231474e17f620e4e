"""The ``swarm`` cluster: each container of a topology is a task of a Docker Swarm, on any of its nodes.

The API server runs on a manager. It decides which containers to start, stop and restart as on a single engine
(``docker``). The differences are the form of a container (``swarm_plan``) and the location of its files. A container
writes to the disk of its node, and these files are removed with it. If the operator provides storage that all nodes
share (HERONRY_SWARM_STORAGE), each topology has a folder in it: for its checkpoints, and for files that user code keeps
in ``/var/lib/heronry/shared``. Without such storage, a topology that keeps state is refused.
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
    """Options of the swarm scheduler.

    ``constraints`` apply to all tasks. ``storage`` is a folder that all nodes and this process share at the same path.
    """

    constraints: tuple[str, ...] = ()
    storage: Path | None = None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> SwarmOptions:
        """Read the options from the environment.

        Besides the variables of the Docker scheduler these are HERONRY_SWARM_CONSTRAINTS (separated by commas) and
        HERONRY_SWARM_STORAGE.

        Raises:
            SchedulerError: The storage is not an existing folder with an absolute path.
        """
        docker = DockerOptions.of_environment(environment)
        given = environment.get("HERONRY_SWARM_CONSTRAINTS", "").split(",")
        storage = Path(found) if (found := environment.get("HERONRY_SWARM_STORAGE", "")) else None
        if storage is not None and not (storage.is_absolute() and storage.is_dir()):
            raise SchedulerError(f"HERONRY_SWARM_STORAGE: {storage} is not a directory; mount it here and on all nodes")
        return cls(
            docker.project, docker.image, docker.api_url, docker.address,
            tuple(part.strip() for part in given if part.strip()), storage,
        )  # fmt: skip


class SwarmScheduler(DockerScheduler):
    """Implementation of ``heron_control.schedulers.scheduler.Scheduler`` and ``Watching`` for a Docker Swarm."""

    kind = "swarm"

    def __init__(self, store: StateStore, homes: Homes, options: SwarmOptions, engine: Engine | None = None) -> None:
        made = engine or SwarmEngine(
            options.project, options.address, options.constraints, options.storage, options.image
        )  # fmt: skip
        super().__init__(store, homes, options, made)
        self._storage = options.storage

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Prepare as on Docker, after checking that checkpoints go to storage that all nodes share."""
        granted = read_granted(folder)
        if granted is not None:
            check_state(granted.definition.config, self._storage, _CURE)
        return super().prepare(launch, folder, package)

    def hold(self, launch: Launch) -> None:
        """Raise NotAllowed: the log files are on the nodes."""
        raise NotAllowed(
            "cluster swarm keeps no log files of a topology that is killed: they are on its nodes, and go with its "
            "containers",
            "Read them before with heron logs, or kill it without --keep-logs.",
        )

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """Raise NotAllowed, like ``hold``, which is called first."""
        self.hold(launch)


def scheduler_of(context: SchedulerContext) -> SwarmScheduler:
    """Return the scheduler for an API server."""
    return SwarmScheduler(context.store, context.homes, SwarmOptions.of_environment(context.environment))

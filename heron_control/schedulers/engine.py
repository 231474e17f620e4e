"""Container engine protocol: what schedulers need of a Docker engine, a swarm or Kubernetes, in plain values.

``docker_engine`` implements it for a Docker engine, ``swarm`` for the manager of a Docker Swarm, ``kubernetes_engine``
for the API server of Kubernetes. The tests have one in memory that keeps the same contract
(``tests/support/contracts/engine.py``). Implementations are thread-safe.
A method may take as long as the engine does, at most a minute.

A *volume* holds the files of a topology that outlive its containers: a volume with Docker, its secrets and its folder
of the shared storage (if there is one) on a swarm, the Secrets and ConfigMaps of its containers on Kubernetes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.scheduler import SchedulerError

READ_BY_ALL = 0o644  # mode of files put into a volume: access is restricted by their folders


class EngineError(SchedulerError):
    """Raised if the engine does not carry out a request."""


class TopologyOwner(NamedTuple):
    """Submission that a network or volume belongs to."""

    topology: str
    topology_id: str


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """Container of a topology as the engine shows it.

    ``state``: created, starting (it waits for a node, or the node prepares it), running, paused, restarting, removing,
    exited, dead. ``trouble``: reason why it does not run, if the engine gives one.
    """

    id: str
    name: str
    topology: str
    topology_id: str
    number: int
    state: str
    networks: tuple[str, ...]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ClusterService:
    """Running service that must be on the networks of all topologies, and its current networks."""

    id: str
    alias: str
    networks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """End of a container, and the last line it wrote.

    ``exit_code`` is None if the engine does not know it; then the last line holds what it knows. ``out_of_memory`` is
    None if unknown.
    """

    exit_code: int | None
    out_of_memory: bool | None
    last_line: str
    limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ObservedState:
    """State of a container that an engine of several nodes derives from its own objects.

    ``state`` is a state of ``EngineContainer``. ``trouble`` is the reason why it does not run yet, or how it ended.
    ``lost`` is True if it ended because its node was lost.
    """

    state: str
    trouble: str = ""
    lost: bool = False
    exit_code: int | None = None
    out_of_memory: bool | None = None


class ContainerEngine(Protocol):
    """Engine, limited to one cluster (compose project).

    Every method raises EngineError if the engine fails or does not answer. Missing objects count as removed.
    """

    @property
    def project(self) -> str:
        """Name of the cluster, part of every name and label."""

    def cores(self) -> float:
        """Return the processor cores of its machine, or of the largest of several."""

    def host(self, name: str, network: str) -> str:
        """Return the host name of a container for others on the network."""

    def require_image(self, image: str) -> None:
        """Raise EngineError if the engine lacks the image."""

    def containers(self) -> list[EngineContainer]:
        """Return the containers of all topologies of the cluster in any state."""

    def joiners(self) -> list[ClusterService]:
        """Return the services that must be on every topology's network."""

    def ending(self, container: str) -> ContainerExit:
        """Return how a container ended."""

    def events(self, since: int, until: int) -> Iterator[object]:
        """Yield container events between two instants (seconds since 1970) as they happen."""

    def create(self, spec: ContainerSpec, files: Mapping[str, bytes]) -> str:
        """Create a container, put files (0400) into its start folder, and return its id."""

    def start(self, container: str) -> int:
        """Start a container; return its process id on the engine's machine, 0 if unknown or ended."""

    def signal(self, container: str, name: str) -> None:
        """Send SIGTERM or SIGKILL. Does nothing if the container does not run.

        For a swarm, SIGTERM ends the task; the swarm sends SIGKILL itself after ``stop_grace_seconds``.
        """

    def remove(self, container: str) -> None:
        """Remove a container (id or name) in any state."""

    def networks(self) -> dict[str, TopologyOwner]:
        """Return the owner of each topology network by name."""

    def volumes(self) -> dict[str, TopologyOwner]:
        """Return the owner of each topology volume by name."""

    def make_network(self, name: str, labels: Mapping[str, str], *, internal: bool = True) -> None:
        """Create a network unless it exists. An ``internal`` network does not have a route to the outside."""

    def expect(self, network: str, labels: Mapping[str, str], containers: int) -> None:
        """Announce the number of containers of a topology to engines that end containers themselves."""

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a volume unless it exists."""

    def connect(self, joiner: ClusterService, network: str) -> None:
        """Connect a service to a network, unless it is connected."""

    def remove_network(self, name: str) -> None:
        """Disconnect services (with Docker all containers) from a network and remove it."""

    def remove_volume(self, name: str) -> None:
        """Remove a volume."""

    def read_folder(self, spec: ContainerSpec, path: str) -> Generator[bytes, None, None]:
        """Yield the tar of a folder, read through a container that never runs.

        Yields nothing if the folder does not exist.

        Raises:
            EngineError: The engine keeps no files of ended containers.
        """

    def write_folder(self, spec: ContainerSpec, folder: Path, path: str) -> None:
        """Copy a local folder below ``path`` of a volume, through a container that never runs.

        The files belong to the user of Heronry's own processes there and are readable by all, regardless of the local
        umask. Folders are accessible to that user only. Containers started later see all of it.

        Raises:
            EngineError: The engine does not have such a path, or the copy fails.
        """

    def close(self) -> None:
        """Close the connection to the engine."""

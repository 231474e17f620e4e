"""What the schedulers of containers need of what runs them, in plain values: of a Docker engine, a swarm, Kubernetes.

``docker_engine`` asks a real engine, ``swarm_engine`` the manager of a Docker Swarm, ``k8s_engine`` the API server of
Kubernetes. The tests have one in memory,
which keeps the same contract (``tests/engine_contract.py``). Thread-safe. Each method may take as long as the engine
does, a minute at most.

A *volume* is where files of a topology are that outlive its containers: with Docker a volume, on a swarm its secrets
and its folder of the shared storage, if there is one, on Kubernetes the Secrets and ConfigMaps of its containers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from heron_control.schedulers.scheduler import SchedulerError

READ_BY_ALL = 0o644  # of files that are put into a volume: the folders around them say who comes there


class EngineError(SchedulerError):
    """The engine did not do what was asked."""


class Owner(NamedTuple):
    """Which submission a network or volume belongs to."""

    topology: str
    topology_id: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A container of a topology, as the engine shows it.

    ``state``: created, starting (it waits for a node, or the node makes it ready), running, paused, restarting,
    removing, exited, dead. ``trouble``: what keeps it from running, if the engine says so.
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
class Joiner:
    """A running service that is to be on the networks of all topologies, and the networks it is on."""

    id: str
    alias: str
    networks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a container ended, and the last line it wrote.

    ``exit_code`` is None where the engine does not know it: the last line says what it does know. ``out_of_memory`` is
    None where it does not tell.
    """

    exit_code: int | None
    out_of_memory: bool | None
    last_line: str
    limit_bytes: int = 0


class Engine(Protocol):
    """One engine, and what of it belongs to one cluster (compose project).

    Every method raises EngineError if the engine does not do what is asked, or does not answer. What is gone already
    counts as removed.
    """

    @property
    def project(self) -> str:
        """The cluster's, which stands in every name and label."""

    def cores(self) -> float:
        """Processor cores of its machine; of the largest, where there are several."""

    def host(self, name: str, network: str) -> str:
        """Under which host name a container of this name is found, by those who are on this network with it."""

    def require_image(self, image: str) -> None:
        """Raises EngineError if the engine lacks it."""

    def containers(self) -> list[Seen]:
        """Every container of every topology of the cluster, whatever its state."""

    def joiners(self) -> list[Joiner]:
        """The services that are to be on every topology's network."""

    def ending(self, container: str) -> Ending:
        """How it ended."""

    def events(self, since: int, until: int) -> Iterator[object]:
        """What happens to containers between two instants (seconds since 1970), as it happens."""

    def create(self, name: str, body: Mapping[str, Any], files: Mapping[str, bytes], folder: str) -> str:
        """Make a container and put files (0400) into a folder of its volume; returns its id.

        ``body``: as a Docker engine's API has it.
        """

    def start(self, container: str) -> int:
        """Start it; returns its process id on the engine's machine, 0 if it has ended already, or nobody knows."""

    def signal(self, container: str, name: str) -> None:
        """Send a signal (SIGTERM, SIGKILL); one that does not run is left alone.

        A swarm makes SIGTERM the end of the task, and sends SIGKILL itself when the body's ``StopTimeout`` is over.
        """

    def remove(self, container: str) -> None:
        """Remove it (id or name), whatever it does at the moment."""

    def networks(self) -> dict[str, Owner]:
        """Name of each network of a topology to its owner."""

    def volumes(self) -> dict[str, Owner]:
        """Name of each volume of a topology to its owner."""

    def make_network(self, name: str, labels: Mapping[str, str], *, internal: bool = True) -> None:
        """Make it unless it is there. ``internal``: nothing leads out of it."""

    def expect(self, network: str, labels: Mapping[str, str], containers: int) -> None:
        """Say how many containers a topology is to have, for who else ends some on purpose; again when that changes."""

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Make it unless it is there."""

    def connect(self, joiner: Joiner, network: str) -> None:
        """Put a service on a network, unless it is there."""

    def remove_network(self, name: str) -> None:
        """Disconnect the services that are on it, and remove it; with Docker whoever is on it."""

    def remove_volume(self, name: str) -> None:
        """Remove it."""

    def read_folder(self, reader: str, body: Mapping[str, Any], path: str) -> Generator[bytes, None, None]:
        """The tar of a folder, as a container ``reader`` of this body sees it, which is made for it and never runs.

        Nothing if there is no such folder. Raises EngineError where what a container writes goes with it.
        """

    def write_folder(self, writer: str, body: Mapping[str, Any], folder: Path, path: str) -> None:
        """Put the files of a folder of this machine, and of those in it, below ``path`` of a volume (``make_volume``),
        as a container ``writer`` of this body sees it, which is made for it and never runs. They belong to whom
        Heronry's own processes run as there, and may be read by all, whatever this process's umask has made of them
        here; folders are for that user alone.

        Whoever starts a container later sees all of it. Raises EngineError also where the engine has no such place.
        """

    def close(self) -> None:
        """Let go of the engine."""

"""What the Docker scheduler needs of a Docker engine, in plain values.

``docker_engine`` asks a real one. The tests have one in memory, which keeps the same contract
(``tests/engine_contract.py``). Thread-safe. Each method may take as long as the engine does, a minute at most.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from heron_control.schedulers.scheduler import SchedulerError


class EngineError(SchedulerError):
    """The engine did not do what was asked."""


class Owner(NamedTuple):
    """Which submission a network or volume belongs to."""

    topology: str
    topology_id: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A container of a topology, as the engine shows it.

    ``state``: created, running, paused, restarting, removing, exited, dead.
    """

    id: str
    name: str
    topology: str
    topology_id: str
    number: int
    state: str
    networks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Joiner:
    """A running service that is to be on the networks of all topologies, and the networks it is on."""

    id: str
    alias: str
    networks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a container ended, and the last line it wrote."""

    exit_code: int
    out_of_memory: bool
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
        """Processor cores of its machine."""

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
        """Make a container (``body``: as the engine's API has it) and put files (0400) into a folder of its volume.

        Returns its id.
        """

    def start(self, container: str) -> int:
        """Start it; returns its process id on the engine's machine, 0 if it has ended already."""

    def signal(self, container: str, name: str) -> None:
        """Send a signal; one that does not run is left alone."""

    def remove(self, container: str) -> None:
        """Remove it (id or name), whatever it does at the moment."""

    def networks(self) -> dict[str, Owner]:
        """Name of each network of a topology to its owner."""

    def volumes(self) -> dict[str, Owner]:
        """Name of each volume of a topology to its owner."""

    def make_network(self, name: str, labels: Mapping[str, str], *, internal: bool = True) -> None:
        """Make it unless it is there. ``internal``: nothing leads out of it."""

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Make it unless it is there."""

    def connect(self, joiner: Joiner, network: str) -> None:
        """Put a service on a network, unless it is there."""

    def remove_network(self, name: str) -> None:
        """Disconnect whoever is on it, and remove it."""

    def remove_volume(self, name: str) -> None:
        """Remove it."""

    def read_folder(self, reader: str, body: Mapping[str, Any], path: str) -> Generator[bytes, None, None]:
        """The tar of a folder, as a container ``reader`` of this body sees it, which is made for it and never runs.

        Nothing if there is no such folder.
        """

    def close(self) -> None:
        """Let go of the engine."""

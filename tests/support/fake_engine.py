"""In-memory Docker engine that keeps the engine contract and can be made to fail or hang.

A ``Machine`` holds the containers; a ``FakeEngine`` is the view of one project on it. A container runs until it is
stopped. The command ``sh -c "echo WORDS; exit N"`` prints and exits at once.
"""

from __future__ import annotations

import io
import re
import tarfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from heron_control.schedulers import container_spec
from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.engine import ClusterService, ContainerExit, EngineContainer, EngineError, TopologyOwner

SIGNALS = {"SIGTERM": 143, "SIGKILL": 137}


@dataclass
class Container:
    """Container of the machine."""

    name: str
    labels: Mapping[str, str]
    command: Sequence[str]
    networks: set[str]
    state: str = "created"
    code: int = 0
    said: str = ""
    out_of_memory: bool = False
    memory_bytes: int = 0  # its limit
    got: list[str] = field(default_factory=list)  # signals


class Gate:
    """Call that hangs: ``entered`` is set when a caller waits; ``opened`` lets it continue."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()


class Machine:
    """Machine with containers. ``fails``: error text by method; ``gates``: hanging calls by method and container."""

    def __init__(self) -> None:
        self.images = {"debian:bookworm-slim"}
        self.containers: dict[str, Container] = {}
        self.networks: dict[str, Mapping[str, str]] = {}
        self.ways_out: set[str] = set()  # networks with an outside connection
        self.expected: dict[str, int] = {}  # containers of each network
        self.domain = "machine"  # of host names
        self.volumes: dict[str, dict[str, bytes]] = {}
        self.volume_labels: dict[str, Mapping[str, str]] = {}
        self.fails: dict[str, str] = {}
        self.gates: dict[tuple[str, str], Gate] = {}
        self.deaf = False  # to SIGTERM
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.events = 0
        self.closed = False
        self._serial = count(1)

    def hang(self, method: str, name: str = "") -> Gate:
        """Let calls of this method (about this container) hang from now on."""
        return self.gates.setdefault((method, name), Gate())

    def enter(self, method: str, name: str = "") -> None:
        """Begin a call."""
        for key in ((method, ""), (method, name)):
            gate = self.gates.get(key)
            if gate is not None:
                gate.entered.set()
                assert gate.opened.wait(60), f"{key} was never let go"
        if method in self.fails:
            raise EngineError(self.fails[method])

    def find(self, name: str) -> Container:
        """Return a container by id or name."""
        with self.lock:
            for key, container in self.containers.items():
                if name in (key, container.name):
                    return container
        raise EngineError(f"the Docker engine says: No such container: {name}")

    def add(self, container: Container) -> str:
        """Add a container and return its id."""
        key = f"id{next(self._serial)}"
        self.containers[key] = container
        return key

    def end(self, name: str, code: int, said: str = "", *, out_of_memory: bool = False) -> None:
        """End a container."""
        with self.lock:
            container = self.find(name)
            container.state, container.code, container.said = "exited", code, said
            container.out_of_memory = out_of_memory
            self.tell()

    def vanish(self, name: str) -> None:
        """Remove a container from outside."""
        with self.lock:
            self.containers = {k: c for k, c in self.containers.items() if c.name != name}
            self.tell()

    def tell(self) -> None:
        """Record an event."""
        self.events += 1
        self.changed.notify_all()


class FakeEngine:
    """Fake of ``heron_control.schedulers.engine.ContainerEngine``."""

    def __init__(self, machine: Machine, project: str) -> None:
        self.machine = machine
        self.project = project

    def cores(self) -> float:
        """Return two cores."""
        return 2.0

    def host(self, name: str, network: str) -> str:
        return f"{name}.{self.machine.domain}"

    def require_image(self, image: str) -> None:
        """Check that the image exists."""
        self.machine.enter("require_image")
        if image not in self.machine.images:
            raise EngineError(f"the image {image} is not on the Docker engine; build it with `make image`")

    def containers(self) -> list[EngineContainer]:
        """Return the containers with a number."""
        self.machine.enter("containers")
        with self.machine.lock:
            return [
                EngineContainer(
                    key,
                    c.name,
                    *_owner(c.labels),
                    int(c.labels[container_spec.CONTAINER_LABEL]),
                    c.state,
                    tuple(c.networks),
                )
                for key, c in self.machine.containers.items()
                if c.labels.get(container_spec.CLUSTER_LABEL) == self.project
                and container_spec.CONTAINER_LABEL in c.labels
            ]

    def joiners(self) -> list[ClusterService]:
        """Return the running containers."""
        self.machine.enter("joiners")
        with self.machine.lock:
            return [
                ClusterService(key, c.labels.get(container_spec.ALIAS_LABEL, ""), tuple(c.networks))
                for key, c in self.machine.containers.items()
                if c.labels.get(container_spec.JOINS_LABEL) == self.project and c.state == "running"
            ]

    def ending(self, container: str) -> ContainerExit:
        """Return the recorded ending."""
        self.machine.enter("ending")
        c = self.machine.find(container)
        return ContainerExit(c.code, c.out_of_memory, c.said, c.memory_bytes)

    def events(self, since: int, until: int) -> Iterator[object]:
        """Yield a number for each event."""
        known = self.machine.events
        while time.time() < until and not self.machine.closed:
            with self.machine.changed:
                self.machine.changed.wait(0.05)
                news, known = range(known, self.machine.events), self.machine.events
            yield from news

    def create(self, spec: ContainerSpec, files: Mapping[str, bytes]) -> str:
        """Create a container without starting it."""
        self.machine.enter("create", spec.name)
        with self.machine.lock:
            self.require_image(spec.image)
            if any(c.name == spec.name for c in self.machine.containers.values()):
                raise EngineError(f"the Docker engine says: Conflict. The container name {spec.name} is in use")
            if spec.volume is not None:
                volume = self.machine.volumes.setdefault(spec.volume.name, {})
                folder = _in_volume(spec.start_folder)
                volume |= {f"{folder}/{file}": content for file, content in files.items()}
            memory = spec.limits.memory_bytes if spec.limits is not None else 0
            return self.machine.add(
                Container(spec.name, spec.labels(), spec.command, {spec.network} - {""}, memory_bytes=memory)
            )

    def start(self, container: str) -> int:
        """Start a container."""
        self.machine.enter("start", self.machine.find(container).name)
        with self.machine.lock:
            c = self.machine.find(container)
            missing = c.networks - set(self.machine.networks) - {"bridge"}
            if missing:
                raise EngineError(f"the Docker engine says: network {min(missing)} not found")
            c.state = "running"
            if script := re.fullmatch(r"echo (.*); exit (\d+)", c.command[-1] if c.command else ""):
                c.state, c.said, c.code = "exited", script[1], int(script[2])
            self.machine.tell()
            return 0 if c.state == "exited" else 4242

    def signal(self, container: str, name: str) -> None:
        """End a container, unless it ignores the signal."""
        try:
            c = self.machine.find(container)
        except EngineError:
            return
        self.machine.enter("signal", c.name)
        c.got.append(name)
        if c.state == "running" and not (self.machine.deaf and name == "SIGTERM"):
            self.machine.end(c.name, SIGNALS[name])

    def remove(self, container: str) -> None:
        """Remove a container."""
        self.machine.enter("remove")
        with self.machine.lock:
            gone = [key for key, c in self.machine.containers.items() if container in (key, c.name)]
            for key in gone:
                del self.machine.containers[key]
                self.machine.tell()

    def networks(self) -> dict[str, TopologyOwner]:
        """Return the networks of this project."""
        self.machine.enter("networks")
        return self._owned(self.machine.networks)

    def volumes(self) -> dict[str, TopologyOwner]:
        """Return the volumes of this project."""
        self.machine.enter("volumes")
        return self._owned(self.machine.volume_labels)

    def _owned(self, labelled: dict[str, Mapping[str, str]]) -> dict[str, TopologyOwner]:
        with self.machine.lock:
            ours = {
                name: found
                for name, found in labelled.items()
                if found.get(container_spec.CLUSTER_LABEL) == self.project
            }
            return {name: TopologyOwner(*_owner(found)) for name, found in ours.items()}

    def make_network(self, name: str, labels: Mapping[str, str], *, internal: bool = True) -> None:
        """Create a network."""
        self.machine.enter("make_network")
        if not internal:
            self.machine.ways_out.add(name)
        self.machine.networks.setdefault(name, dict(labels))

    def expect(self, network: str, labels: Mapping[str, str], containers: int) -> None:
        self.machine.expected[network] = containers

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a volume."""
        self.machine.enter("make_volume")
        self.machine.volumes.setdefault(name, {})
        self.machine.volume_labels.setdefault(name, dict(labels))

    def connect(self, joiner: ClusterService, network: str) -> None:
        """Connect a container to a network."""
        self.machine.enter("connect")
        self.machine.find(joiner.id).networks.add(network)

    def remove_network(self, name: str) -> None:
        """Remove a network and disconnect its containers."""
        self.machine.enter("remove_network")
        with self.machine.lock:
            for container in self.machine.containers.values():
                container.networks.discard(name)
            self.machine.networks.pop(name, None)

    def remove_volume(self, name: str) -> None:
        """Remove a volume with its files."""
        self.machine.enter("remove_volume")
        self.machine.volumes.pop(name, None)
        self.machine.volume_labels.pop(name, None)

    def read_folder(self, spec: ContainerSpec, path: str) -> Generator[bytes, None, None]:
        """Yield a tar in one piece."""
        self.machine.enter("read_folder")
        self.require_image(spec.image)
        assert spec.volume is not None
        below = f"{_in_volume(path)}/"
        found = {n: c for n, c in self.machine.volumes.get(spec.volume.name, {}).items() if n.startswith(below)}
        if found:
            target = io.BytesIO()
            with tarfile.open(fileobj=target, mode="w") as archive:
                for name, content in found.items():
                    entry = tarfile.TarInfo(f"{path.rsplit('/', 1)[1]}/{name.removeprefix(below)}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
            yield target.getvalue()

    def write_folder(self, spec: ContainerSpec, folder: Path, path: str) -> None:
        """Write a folder to an existing volume."""
        self.machine.enter("write_folder")
        self.require_image(spec.image)
        assert spec.volume is not None
        below = _in_volume(path)
        files = {f"{below}/{p.relative_to(folder)}": p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        self.machine.volumes[spec.volume.name] |= files

    def close(self) -> None:
        """Stop listening to events."""
        self.machine.closed = True


def _in_volume(path: str) -> str:
    return path.removeprefix(container_spec.VOLUME_PATH).strip("/")


def _owner(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get(container_spec.TOPOLOGY_LABEL, ""), labels.get(container_spec.TOPOLOGY_ID_LABEL, "")

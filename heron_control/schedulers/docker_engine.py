"""Docker engine through its SDK, with errors that name cause and remedy.

Each call is one or two requests of a pooled session. Errors of the SDK and the engine become an EngineError.
"""

from __future__ import annotations

import io
import os
import socket
import tarfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import docker
import docker.errors
import requests

from heron_control.schedulers import container_spec
from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.docker_objects import container_body
from heron_control.schedulers.engine import (
    READ_BY_ALL,
    ClusterService,
    ContainerExit,
    EngineContainer,
    EngineError,
    TopologyOwner,
)

DEFAULT_SOCKET = "unix:///var/run/docker.sock"
CALL_SECONDS = 60.0
LAST_WORDS = 5
NETWORK_PAUSE_SECONDS = 0.2


class DockerEngine:
    """Implementation of ``heron_control.schedulers.engine.ContainerEngine``."""

    network_attempts = 25  # a container that has just been removed is still on its network
    network_is_used: tuple[str, ...] = ("active endpoints",)  # messages of the engine in this case

    def __init__(self, project: str, address: str = "") -> None:
        self.project = project
        self.address = address or os.environ.get("DOCKER_HOST") or DEFAULT_SOCKET
        self._made: Any = None
        self._lock = threading.Lock()
        self._cores = 0.0

    # Queries.

    def cores(self) -> float:
        """Return the processor cores of the engine's machine, requested once."""
        if not self._cores:
            with self._explained():
                self._cores = float(self._api.info()["NCPU"])
        return self._cores

    def host(self, name: str, network: str) -> str:
        """Return the name itself, which resolves on the network."""
        return name

    def require_image(self, image: str) -> None:
        """Raise EngineError if the engine lacks the image."""
        with self._explained(image):
            self._api.inspect_image(image)

    def containers(self) -> list[EngineContainer]:
        """Return the containers of all topologies of the cluster in any state."""
        with self._explained():
            containers = self._api.containers(
                all=True, filters={"label": [self._ours()["label"], container_spec.CONTAINER_LABEL]}
            )
        return [
            EngineContainer(
                entry["Id"],
                entry["Names"][0].lstrip("/"),
                entry["Labels"].get(container_spec.TOPOLOGY_LABEL, ""),
                entry["Labels"].get(container_spec.TOPOLOGY_ID_LABEL, ""),
                int(entry["Labels"][container_spec.CONTAINER_LABEL]),
                entry["State"],
                tuple(entry["NetworkSettings"]["Networks"]),
            )
            for entry in containers
            if entry.get("Names")
        ]

    def joiners(self) -> list[ClusterService]:
        """Return the services that must be on every topology's network."""
        with self._explained():
            containers = self._api.containers(filters={"label": f"{container_spec.JOINS_LABEL}={self.project}"})
        return [
            ClusterService(
                entry["Id"],
                entry["Labels"].get(container_spec.ALIAS_LABEL, ""),
                tuple(entry["NetworkSettings"]["Networks"]),
            )
            for entry in containers
        ]

    def ending(self, container: str) -> ContainerExit:
        """Return how a container ended."""
        with self._explained():
            details = self._api.inspect_container(container)
            said = self._api.logs(container, tail=LAST_WORDS).decode(errors="replace")
        state = details["State"]
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        code = int(state.get("ExitCode", -1))
        last = state.get("Error") or (lines[-1] if lines else "")
        return ContainerExit(code, bool(state.get("OOMKilled")), last, int(details["HostConfig"].get("Memory", 0)))

    def events(self, since: int, until: int) -> Iterator[object]:
        """Yield container events between two instants (seconds since 1970) as they happen."""
        with self._explained():
            filters = {"type": "container", "event": ["die", "destroy", "oom", "start", "pause", "unpause"]}
            yield from self._api.events(since=since, until=until, decode=True, filters=filters)

    # Containers.

    def create(self, spec: ContainerSpec, files: Mapping[str, bytes]) -> str:
        """Create a container, put files (0400) into its start folder, and return its id."""
        container = self._create(spec)
        below = spec.start_folder.removeprefix(container_spec.VOLUME_PATH)
        try:
            with self._explained():
                self._api.put_archive(container, container_spec.VOLUME_PATH, tar_of(files, below))
        except EngineError:
            self.remove(container)
            raise
        return container

    def _create(self, spec: ContainerSpec) -> str:
        with self._explained(spec.image):
            return str(self._api.create_container_from_config(container_body(spec), name=spec.name)["Id"])

    def start(self, container: str) -> int:
        """Start a container; return its process id on the engine's machine, 0 if it has ended."""
        with self._explained():
            self._api.start(container)
            return int(self._api.inspect_container(container)["State"].get("Pid", 0))

    def signal(self, container: str, name: str) -> None:
        """Send a signal. Does nothing if the container does not run."""
        with self._explained(gone=(404, 409)):
            self._api.kill(container, name)

    def remove(self, container: str) -> None:
        """Remove a container in any state."""
        with self._explained(gone=(404, 409)):  # 409: it is being removed
            self._api.remove_container(container, force=True, v=False)

    # Networks and volumes.

    def networks(self) -> dict[str, TopologyOwner]:
        """Return the owner of each topology network by name."""
        with self._explained():
            return _owners(self._api.networks(filters=self._ours()))

    def volumes(self) -> dict[str, TopologyOwner]:
        """Return the owner of each topology volume by name."""
        with self._explained():
            return _owners(self._api.volumes(filters=self._ours())["Volumes"] or [])

    def make_network(self, name: str, labels: Mapping[str, str], *, internal: bool = True) -> None:
        """Create a network unless it exists."""
        if name not in self.networks():
            with self._explained():
                self._api.create_network(name, driver="bridge", internal=internal, labels=dict(labels))

    def expect(self, network: str, labels: Mapping[str, str], containers: int) -> None:
        """Do nothing: only the scheduler ends containers here."""

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a volume unless it exists."""
        with self._explained():
            self._api.create_volume(name, labels=dict(labels))

    def connect(self, joiner: ClusterService, network: str) -> None:
        """Connect a service to a network."""
        with self._explained(gone=(403, 404)):  # 403: it is already connected
            self._api.connect_container_to_network(joiner.id, network, aliases=[joiner.alias] if joiner.alias else None)

    def remove_network(self, name: str) -> None:
        """Disconnect all containers from a network and remove it."""
        for attempt in range(self.network_attempts):
            with self._explained(gone=(404,)):
                for container in self._api.inspect_network(name).get("Containers") or {}:
                    self._disconnect(container, name)
                try:
                    return cast(None, self._api.remove_network(name))
                except docker.errors.APIError as error:
                    used = any(words in str(error.explanation) for words in self.network_is_used)
                    if attempt == self.network_attempts - 1 or not used:
                        raise
                    time.sleep(NETWORK_PAUSE_SECONDS)

    def _disconnect(self, container: str, network: str) -> None:
        try:
            self._api.disconnect_container_from_network(container, network, force=True)
        except docker.errors.APIError as error:
            if not _says_absent(error) and "is not connected" not in str(error.explanation):
                raise

    def read_folder(self, spec: ContainerSpec, path: str) -> Generator[bytes, None, None]:
        """Yield the tar of a folder, read through a container that never runs.

        Yields nothing if the folder does not exist.
        """
        self.remove(spec.name)  # left by an interrupted attempt
        self._create(spec)
        try:
            with self._explained(gone=(404,)):
                pieces, _ = self._api.get_archive(spec.name, path)
                yield from pieces
        finally:
            self.remove(spec.name)

    def write_folder(self, spec: ContainerSpec, folder: Path, path: str) -> None:
        """Copy a local folder into a volume, through a container that never runs."""
        self.remove(spec.name)  # left by an interrupted attempt
        self._create(spec)
        below = path.removeprefix(container_spec.VOLUME_PATH)
        try:
            with self._explained():
                self._api.put_archive(spec.name, container_spec.VOLUME_PATH, tar_pieces(folder, below))
        finally:
            self.remove(spec.name)

    def remove_volume(self, name: str) -> None:
        """Remove a volume."""
        with self._explained(gone=(404,)):
            self._api.remove_volume(name, force=True)

    # Session.

    @property
    def _api(self) -> Any:
        with self._lock:
            if self._made is None:
                _knock(self.address)
                self._made = docker.APIClient(
                    base_url=self.address, version="auto", timeout=CALL_SECONDS, num_pools=16, max_pool_size=16
                )
            return self._made

    def close(self) -> None:
        """Close the session."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made.close()

    def _ours(self) -> dict[str, str]:
        return {"label": f"{container_spec.CLUSTER_LABEL}={self.project}"}

    @contextmanager
    def _explained(self, image: str = "", gone: tuple[int, ...] = ()) -> Iterator[None]:
        """Convert errors of the SDK to EngineError, except statuses in ``gone``.

        With 404 in ``gone``, every message that an object is missing is ignored, whatever its status (a swarm also uses
        500 and 503).
        """
        try:
            yield
        except docker.errors.ImageNotFound as error:
            raise EngineError(
                f"the image {image or error.explanation} is not on the Docker engine; build it with `make image`, "
                "or name another in HERONRY_IMAGE"
            ) from error
        except docker.errors.APIError as error:
            if error.status_code in gone or (404 in gone and _says_absent(error)):
                return
            raise EngineError(_in_words(str(error.explanation or error))) from error
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise EngineError(self._away(str(error))) from error

    def _away(self, said: str) -> str:
        causes: tuple[tuple[str, str, str], ...] = (
            ("Permission", "permission denied", "add the user to the group of the socket, or run it as that group"),
            ("No such file", "its socket is missing", "start the engine, or set DOCKER_HOST to its address"),
            ("refused", "connection refused", "start the engine, or set DOCKER_HOST to its address"),
            ("timed out", f"no answer within {CALL_SECONDS:g} s", "check whether the engine hangs: docker info"),
        )
        for sign, cause, cure in causes:
            if sign.lower() in said.lower():
                return f"the Docker engine at {self.address} does not answer: {cause}; {cure}"
        return f"the Docker engine at {self.address} does not answer: {said}"


_CURES: tuple[tuple[str, str], ...] = (
    ("non-overlapping IPv4", "there are too many networks: `docker network prune`, or widen default-address-pools"),
    ("port is already allocated", "another program has the port: end it, or choose another port"),
    ("no space left", "the engine's disk is full: `docker system df` shows by what"),
    ("Conflict. The container name", "a container outside of Heronry has the name: rename or remove it"),
)


def _says_absent(error: docker.errors.APIError) -> bool:
    said = str(error.explanation).lower()
    return error.status_code == 404 or any(words in said for words in ("not found", "no such", "could not find"))


def _in_words(said: str) -> str:
    cure = next((cure for sign, cure in _CURES if sign in said), "")
    return f"the Docker engine says: {said.strip()}" + (f"; {cure}" if cure else "")


def _knock(address: str) -> None:
    """Raise OSError unless a process listens at a Unix socket. The SDK would leave a socket open then."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(address.removeprefix("unix://"))


def _owners(containers: list[dict[str, Any]]) -> dict[str, TopologyOwner]:
    return {
        entry["Name"]: TopologyOwner(
            entry["Labels"].get(container_spec.TOPOLOGY_LABEL, ""),
            entry["Labels"].get(container_spec.TOPOLOGY_ID_LABEL, ""),
        )
        for entry in containers
    }


_UID = 10001  # of the image's user
_CHUNK = 1 << 20
_END = bytes(2 * tarfile.BLOCKSIZE)


def tar_of(files: Mapping[str, bytes], below: str) -> bytes:
    """Return a tar of files (0400) below a folder, relative to the volume."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for path in _folders(below):
            archive.addfile(_entry(path, tarfile.DIRTYPE, 0o700))
        for name, content in files.items():
            entry = _entry(f"{_clean(below)}/{name}", tarfile.REGTYPE, 0o400)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def tar_pieces(folder: Path, below: str) -> Iterator[bytes]:
    """Yield a tar of a folder's files, recursively and without holding it in memory.

    Raises:
        OSError: A file cannot be read, or changes size meanwhile.
    """
    for path in _folders(below):
        yield _entry(path, tarfile.DIRTYPE, 0o700).tobuf()
    for item in sorted(folder.rglob("*")):
        name = f"{_clean(below)}/{item.relative_to(folder)}"
        if item.is_dir():
            yield _entry(name, tarfile.DIRTYPE, 0o700).tobuf()
        else:
            yield from _file(item, name)
    yield _END


def _file(path: Path, name: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        entry = _entry(name, tarfile.REGTYPE, READ_BY_ALL)
        entry.size = remaining_bytes = os.fstat(file.fileno()).st_size
        yield entry.tobuf()
        while piece := file.read(min(_CHUNK, remaining_bytes)):
            remaining_bytes -= len(piece)
            yield piece
        if remaining_bytes or file.read(1):
            raise OSError(f"{path} changes while it is read")
        yield bytes(-entry.size % tarfile.BLOCKSIZE)


def _folders(below: str) -> Iterator[str]:
    """Yield the folder and its parents, the outermost first."""
    path = ""
    for part in _clean(below).split("/"):
        path = f"{path}/{part}".lstrip("/")
        yield path


def _clean(below: str) -> str:
    return below.strip("/")


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid, entry.gid = kind, mode, _UID, _UID
    return entry

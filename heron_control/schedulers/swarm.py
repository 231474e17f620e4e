"""The ``swarm`` cluster: each container of a topology is a task of a Docker Swarm, on any of its nodes.

The API server runs on a manager. It decides which containers to start, stop and restart as on a single engine
(``docker``). The differences are the form of a container (``swarm_objects``) and the location of its files. A container
writes to the disk of its node, and these files are removed with it. If the operator provides storage that all nodes
share (HERONRY_SWARM_STORAGE), each topology has a folder in it: for its checkpoints, and for files that user code keeps
in ``/var/lib/heronry/shared``. Without such storage, a topology that keeps state is refused.

``SwarmEngine`` is the swarm as a container engine. Requests that concern a single machine go to the manager's own
engine, as in ``DockerEngine``: the image, and the services of the cluster (API server, ZooKeeper, trackers). These run
there as plain containers and join the topologies' overlay networks. A swarm does not report the end of a task, so
``events`` polls once a second.

``storage`` is a folder that every node and this process share. Each topology has a folder of its own in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import docker.errors

from heron_control.schedulers import container_spec
from heron_control.schedulers import swarm_objects as plan
from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.docker import DockerOptions, DockerScheduler
from heron_control.schedulers.docker_engine import CALL_SECONDS, NETWORK_PAUSE_SECONDS, DockerEngine
from heron_control.schedulers.docker_objects import NO_COMPOSE
from heron_control.schedulers.engine import (
    ClusterService,
    ContainerEngine,
    ContainerExit,
    EngineContainer,
    EngineError,
    ObservedState,
    TopologyOwner,
)
from heron_control.schedulers.grants import read_granted
from heron_control.schedulers.scheduler import SchedulerContext, SchedulerError
from heron_control.schedulers.shared_storage import OfNodes, SharedStorage, check_state
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
        storage = Path(storage_path) if (storage_path := environment.get("HERONRY_SWARM_STORAGE", "")) else None
        if storage is not None and not (storage.is_absolute() and storage.is_dir()):
            raise SchedulerError(f"HERONRY_SWARM_STORAGE: {storage} is not a directory; mount it here and on all nodes")
        return cls(
            docker.project, docker.image, docker.api_url, docker.address,
            tuple(part.strip() for part in given if part.strip()), storage,
        )  # fmt: skip


class SwarmScheduler(DockerScheduler):
    """Implementation of ``Scheduler`` and ``WatchingScheduler`` (``schedulers.scheduler``) for a Docker Swarm."""

    kind = "swarm"

    def __init__(
        self, store: StateStore, homes: Homes, options: SwarmOptions, engine: ContainerEngine | None = None
    ) -> None:
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


LOOK_SECONDS = 1.0
LOG_LINES = 5
PLACED_SECONDS, PLACE_LOOK_SECONDS = 10.0, 0.1  # limits of the wait for a swarm to place a task
UPDATES = 5  # another client may change a service between a read and an update
NO_SWARM = (
    "the Docker engine at {} is not a swarm manager; run docker swarm init there, or run the api server on a manager"
)


class SwarmEngine(OfNodes, DockerEngine):
    """Implementation of ``heron_control.schedulers.engine.ContainerEngine`` for a Docker Swarm.

    ``constraints`` apply to all tasks, for example ``node.labels.disk==ssd``. ``image`` is used to remove files that
    belong to the user of user code.
    """

    network_attempts = 150  # a task on another node takes its grace time, and the manager learns of its end later
    network_is_used = (*DockerEngine.network_is_used, "is in use by task")

    def __init__(
        self,
        project: str,
        address: str = "",
        constraints: tuple[str, ...] = (),
        storage: Path | None = None,
        image: str = "",
    ) -> None:
        super().__init__(project, address)
        self._image = image
        self._constraints = constraints
        self._placing = threading.Lock()
        self._storage = SharedStorage(storage, project) if storage is not None else None

    # Queries.

    def cores(self) -> float:
        """Return the processor cores of the largest node that is ready."""
        return max((node.cores for node in self.nodes().values() if node.state == "ready"), default=0.01)

    def nodes(self) -> dict[str, plan.SwarmNode]:
        """Return the nodes by their ids.

        Raises:
            EngineError: The engine is not the manager of a swarm, or does not answer.
        """
        with self._explained():
            try:
                nodes = self._api.nodes()
            except docker.errors.APIError as error:
                if error.status_code == 503:
                    raise EngineError(NO_SWARM.format(self.address)) from error
                raise
        return {entry["ID"]: _node(entry) for entry in nodes}

    def require_image(self, image: str) -> None:
        """Raise EngineError if the manager lacks the image, or the engine is not a manager."""
        self.nodes()
        self._pinned(image)

    def _pinned(self, image: str) -> str:
        """Return a reference to the image that is the same image on every node.

        It is an image id or a name with a digest, so a node that has the image does not ask a registry for it.
        """
        if "@sha256:" in image:
            return image
        with self._explained(image):
            return str(self._api.inspect_image(image)["Id"])

    def containers(self) -> list[EngineContainer]:
        """Return the containers of all topologies of the cluster in any state."""
        filters = {"label": [self._ours()["label"], container_spec.CONTAINER_LABEL]}
        with self._explained():
            services = self._api.services(filters=filters)
            tasks = self._api.tasks(filters=filters)
        nodes = self.nodes()  # read after the tasks: a missing node has left the swarm, it is not merely new
        return [_seen(entry, self._life(entry, tasks, nodes)) for entry in services]

    def ending(self, container: str) -> ContainerExit:
        """Return how a container ended. Its last line is read from its node."""
        with self._explained():
            service = self._api.inspect_service(container)
            tasks = self._api.tasks(filters={"service": service["ID"]})
        life = self._life(service, tasks, self.nodes())
        limit = service["Spec"]["TaskTemplate"].get("Resources", {}).get("Limits", {}).get("MemoryBytes", 0)
        said = life.trouble
        if not said and tasks:
            said = self._last_line(service["ID"])
        code = None if life.trouble and not life.exit_code else life.exit_code
        return ContainerExit(code, None, said, limit)

    def _last_line(self, service: str) -> str:
        with self._explained():
            pieces = self._api.service_logs(service, stdout=True, stderr=True, tail=LOG_LINES, is_tty=False)
            said = b"".join(pieces).decode(errors="replace")
        return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")

    @staticmethod
    def _life(
        service: Mapping[str, Any], tasks: list[dict[str, Any]], nodes: Mapping[str, plan.SwarmNode]
    ) -> ObservedState:
        spec = service["Spec"]
        return plan.life_of(
            wanted=spec["Mode"]["Replicated"].get("Replicas", 0) > 0,
            started=plan.STARTED_LABEL in spec["Labels"],
            tasks=_tasks_of(service["ID"], tasks),
            nodes=nodes,
        )

    def events(self, since: int, until: int) -> Iterator[object]:
        """Yield the state of tasks and nodes after each change, by polling: a swarm does not report changes."""
        known = self._fingerprint()
        while (seconds_left := until - time.time()) > 0:
            time.sleep(min(LOOK_SECONDS, seconds_left))
            fingerprint = self._fingerprint()
            if fingerprint != known:
                known = fingerprint
                yield fingerprint

    def _fingerprint(self) -> object:
        with self._explained():
            tasks = self._api.tasks(filters=self._ours())
        states = frozenset((task["ID"], task["Status"]["State"], task["DesiredState"]) for task in tasks)
        return states, frozenset((key, node.state) for key, node in self.nodes().items())

    # Containers.

    def create(self, spec: ContainerSpec, files: Mapping[str, bytes]) -> str:
        """Create the secrets and a service without a task, and return the service's id."""
        image = self._pinned(spec.image)
        if self._service(spec.name) is not None:
            raise EngineError(f"the Docker engine says: Conflict. The service name {spec.name} is in use")
        secrets: dict[str, str] = {}
        try:
            for file, content in files.items():
                secrets[file] = self._make_secret(spec, file, content)
            storage = ""
            if self._storage is not None and spec.volume is not None:
                storage = str(self._storage.folder / spec.volume.name)
            template = plan.service_template(spec, image, secrets, constraints=self._constraints, storage=storage)
            with self._explained(image):
                made: dict[str, str] = self._api.create_service(
                    template, spec.name, plan.service_labels(spec), mode={"Replicated": {"Replicas": 0}},
                    networks=None, endpoint_spec={"Mode": "dnsrr"},
                )  # fmt: skip
        except EngineError:
            self._remove_secrets(plan.SERVICE_LABEL, spec.name)
            raise
        return made["ID"]

    def _make_secret(self, spec: ContainerSpec, file: str, content: bytes) -> str:
        name, labels = plan.secret_name(spec.name, file), plan.secret_labels(spec)
        for attempt in range(2):
            with self._explained():
                try:
                    return str(self._api.create_secret(name, content, labels)["ID"])
                except docker.errors.APIError as error:
                    if error.status_code != 409 or attempt:
                        raise
            self._remove_secrets(plan.SERVICE_LABEL, spec.name)  # left by an interrupted start
        raise AssertionError("unreachable")

    def _service(self, name: str) -> dict[str, Any] | None:
        with self._explained(gone=(404,)):
            service: dict[str, Any] = self._api.inspect_service(name)
            return service
        return None

    def start(self, container: str) -> int:
        """Scale the service to one task. ``containers`` shows the task's progress.

        Containers that must run apart are started one after the other: each is kept off the nodes of those before it.
        """
        service = self._service(container)
        if service is not None and container_spec.APART_LABEL in service["Spec"]["Labels"]:
            with self._placing:
                more = plan.apart_from(self._places_beside(service), self.nodes(), self._constraints)
                scaled = self._scale(container, 1, more)
        else:
            scaled = self._scale(container, 1)
        if not scaled:
            raise EngineError(f"the Docker engine says: service {container} not found")
        return 0

    def _places_beside(self, service: Mapping[str, Any]) -> list[str]:
        """Return the nodes of the topology's other containers that must run apart.

        Wait up to ``PLACED_SECONDS`` for a container that is being placed.
        """
        name = container_spec.TOPOLOGY_ID_LABEL
        filters = {"label": [container_spec.APART_LABEL, f"{name}={service['Spec']['Labels'][name]}"]}
        deadline = time.monotonic() + PLACED_SECONDS
        while True:
            with self._explained():
                others = [
                    entry["ID"]
                    for entry in self._api.services(filters=filters)
                    if entry["ID"] != service["ID"] and entry["Spec"]["Mode"]["Replicated"].get("Replicas", 0)
                ]
                tasks = self._api.tasks(filters={"service": others}) if others else []
            nodes = self.nodes()
            places = [plan.place_of(_tasks_of(key, tasks), nodes) for key in others]
            if not any(coming for _, coming in places) or time.monotonic() > deadline:
                return [node for node, _ in places if node]
            time.sleep(PLACE_LOOK_SECONDS)

    def signal(self, container: str, name: str) -> None:
        """End the task: its node sends SIGTERM, and SIGKILL after the grace time."""
        self._scale(container, 0)

    def _scale(self, container: str, replicas: int, more: Sequence[str] = ()) -> bool:
        """Set the number of replicas; return False if the service does not exist.

        ``more`` are additional constraints of its task.
        """
        for attempt in range(UPDATES):
            service = self._service(container)
            if service is None:
                return False
            spec = service["Spec"]
            if replicas == spec["Mode"]["Replicated"].get("Replicas", 0):
                return True
            placement = {"Placement": {"Constraints": [*self._constraints, *more]}} if more else None
            with self._explained():
                try:
                    self._api.update_service(
                        service["ID"], service["Version"]["Index"], placement,
                        mode={"Replicated": {"Replicas": replicas}}, fetch_current_spec=True,
                        labels={**spec["Labels"], plan.STARTED_LABEL: "1"},
                    )  # fmt: skip
                    return True
                except docker.errors.APIError as error:
                    if "out of sequence" not in str(error.explanation) or attempt == UPDATES - 1:
                        raise
        raise AssertionError("unreachable")

    def remove(self, container: str) -> None:
        """Remove the service (id or name), which ends its task, and its secrets."""
        service = self._service(container)
        name = service["Spec"]["Name"] if service is not None else container
        with self._explained(gone=(404,)):
            self._api.remove_service(container)
        self._remove_secrets(plan.SERVICE_LABEL, name)

    # Networks and volumes.

    def make_network(self, name: str, labels: Mapping[str, str], *, internal: bool = True) -> None:
        """Create an overlay network that plain containers of the manager may join, unless it exists."""
        if name not in self.networks():
            with self._explained():
                self._api.create_network(
                    name, driver="overlay", internal=internal, attachable=True, labels=dict(labels)
                )  # fmt: skip

    def remove_network(self, name: str) -> None:
        """Disconnect the services from a network, and remove it.

        The manager's engine still lists the network for a moment, so this method waits until it is gone.
        """
        super().remove_network(name)
        for _ in range(self.network_attempts):
            if name not in self.networks():
                return
            time.sleep(NETWORK_PAUSE_SECONDS)
        raise EngineError(f"the network {name} still goes: a task on the manager has not ended; it is tried again")

    def connect(self, joiner: ClusterService, network: str) -> None:
        """Connect a service to an overlay network, unless it is connected."""
        try:
            super().connect(joiner, network)
        except EngineError as error:
            if "already attached" not in str(error):
                raise

    def volumes(self) -> dict[str, TopologyOwner]:
        """Return the owner of each topology's secrets and folder of the shared storage, by volume name."""
        with self._explained():
            secrets = self._api.secrets(filters=self._ours())
        volumes = {}
        for entry in secrets:
            labels = entry["Spec"]["Labels"]
            if name := labels.get(plan.VOLUME_LABEL):
                volumes[name] = TopologyOwner(
                    labels[container_spec.TOPOLOGY_LABEL], labels[container_spec.TOPOLOGY_ID_LABEL]
                )
        return volumes | (self._storage.owners() if self._storage is not None else {})

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a folder of the shared storage, if it is configured. Secrets are created with each container."""
        if self._storage is not None:
            self._storage.make(name, labels)

    def remove_volume(self, name: str) -> None:
        """Remove the secrets and the folder of a topology."""
        self._remove_secrets(plan.VOLUME_LABEL, name)
        if self._storage is not None:
            try:
                self._storage.remove(name)
            except PermissionError:  # user code owns some of the folders
                self._remove_as_root(self._storage.folder / name)

    def _remove_as_root(self, folder: Path) -> None:
        """Remove a folder through a container on the manager that can access only the storage."""
        host = {
            "NetworkMode": "none", "CapDrop": ["ALL"], "CapAdd": ["DAC_OVERRIDE", "FOWNER"], "ReadonlyRootfs": True,
            "Mounts": [{"Type": "bind", "Source": str(folder.parent), "Target": "/storage"}],
        }  # fmt: skip
        command = ["rm", "-rf", "--", f"/storage/{folder.name}"]
        labels = {**NO_COMPOSE, container_spec.CLUSTER_LABEL: self.project}
        body = {"Image": self._image, "User": "root", "Cmd": command, "Labels": labels, "HostConfig": host}
        with self._explained(self._image):
            made = self._api.create_container_from_config(body)["Id"]
        try:
            with self._explained():
                self._api.start(made)
                code = self._api.wait(made, timeout=CALL_SECONDS)["StatusCode"]
        finally:
            super().remove(made)
        if code:
            raise EngineError(
                f"{folder} cannot be removed, even by root (exit code {code}): check whether a file server forbids it"
            )

    def _remove_secrets(self, label: str, value: str) -> None:
        with self._explained():
            secrets = self._api.secrets(filters={"label": [self._ours()["label"], f"{label}={value}"]})
        for entry in secrets:
            with self._explained(gone=(404,)):
                self._api.remove_secret(entry["ID"])


def _node(entry: Mapping[str, Any]) -> plan.SwarmNode:
    described, spec = entry.get("Description", {}), entry.get("Spec", {})
    name = described.get("Hostname", entry["ID"])
    platform = described.get("Platform", {})
    known_by = {
        "node.id": entry["ID"], "node.hostname": name, "node.role": spec.get("Role", ""),
        "node.platform.os": platform.get("OS", ""), "node.platform.arch": platform.get("Architecture", ""),
        "node.ip": entry.get("Status", {}).get("Addr", ""),
    }  # fmt: skip
    for kind, labels in (("node", spec.get("Labels")), ("engine", described.get("Engine", {}).get("Labels"))):
        known_by |= {f"{kind}.labels.{key}": value for key, value in (labels or {}).items()}
    return plan.SwarmNode(
        name,
        entry.get("Status", {}).get("State", "unknown"),
        described.get("Resources", {}).get("NanoCPUs", 0) / 1e9,
        spec.get("Availability", "active") == "active",
        known_by,
    )


def _tasks_of(service: str, tasks: Iterable[Mapping[str, Any]]) -> list[plan.Task]:
    """Return the tasks of a service, the oldest first."""
    mine = sorted((t for t in tasks if t.get("ServiceID") == service), key=lambda t: str(t["CreatedAt"]))
    return [_task(entry) for entry in mine]


def _task(entry: Mapping[str, Any]) -> plan.Task:
    status = entry["Status"]
    state = status["State"]
    code = status.get("ContainerStatus", {}).get("ExitCode") if state in ("complete", "failed", "shutdown") else None
    image = entry["Spec"]["ContainerSpec"]["Image"]
    return plan.Task(state, entry.get("NodeID") or "", status.get("Err", ""), code, image)


def _seen(service: Mapping[str, Any], life: ObservedState) -> EngineContainer:
    labels = service["Spec"]["Labels"]
    network = labels.get(plan.NETWORK_LABEL, "none")
    return EngineContainer(
        service["ID"],
        service["Spec"]["Name"],
        labels.get(container_spec.TOPOLOGY_LABEL, ""),
        labels.get(container_spec.TOPOLOGY_ID_LABEL, ""),
        int(labels[container_spec.CONTAINER_LABEL]),
        life.state,
        () if network == "none" else (network,),
        life.trouble,
    )

"""Translation of a container's description to a Docker Swarm, and interpretation of a swarm's answers.

The functions are pure. Each *life* of a container is one service with one replica, whose restart policy is "none". A
swarm never starts it a second time, so its task is the container. The scheduler replaces a container that has ended by
another service (``docs/decisions/swarm.md``).

``life_of`` derives the state of a container from a swarm's answers. The last reported state of a task does not count
if its node is down. The task may still run there, disconnected, and ends when the node is back. Until then the
incarnations of its processes keep it from doing harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from heron_control.schedulers.container_spec import (
    CONTAINER_LABEL,
    PREFIX,
    SHARED_MOUNTS,
    VOLUME_PATH,
    ContainerLimits,
    ContainerSpec,
    ProcessUser,
)
from heron_control.schedulers.docker_objects import docker_labels, log_driver
from heron_control.schedulers.engine import ObservedState

SERVICE_LABEL = f"{PREFIX}.service"  # on a secret: its service
NETWORK_LABEL = f"{PREFIX}.network"  # on a service
VOLUME_LABEL = f"{PREFIX}.volume"  # on a service and its secrets: the name of the topology's volume
STARTED_LABEL = f"{PREFIX}.started"  # on a service that has been started

UNSUPPORTED_FIELDS = {
    "security.no_new_privileges": "the engine's setting; Heronry's image has no program that gives privileges",
}
_UID = "10001"  # id of the image's user, which owns the files that are put into a container
_NANO = 1_000_000_000
_ENDED = frozenset({"complete", "shutdown", "failed", "rejected", "remove", "orphaned"})
_DNS = ["timeout:1", "attempts:1"]  # give up soon on the name of a container that is gone


class SwarmNode(NamedTuple):
    """A node of the swarm.

    ``known_by`` maps the names that constraints may refer to, for example ``node.labels.disk``, to their values.
    """

    name: str
    state: str  # ready, down, unknown, disconnected
    cores: float
    active: bool = True  # accepts tasks: neither drained nor paused
    known_by: Mapping[str, str] = {}


class Task(NamedTuple):
    """State of a task as a swarm reports it. ``node`` is an id, or "" before the task has a node."""

    state: str
    node: str = ""
    error: str = ""
    exit_code: int | None = None
    image: str = ""


def secret_name(service: str, file: str) -> str:
    """Return the name of a secret.

    The name is a hash, since a swarm allows 64 characters, which the names of service and file may exceed.
    """
    digest = hashlib.blake2b(f"{service}/{file}".encode(), digest_size=16).hexdigest()
    return f"heronry-{digest}"


def secret_labels(spec: ContainerSpec) -> dict[str, str]:
    """Return the labels that identify the owner of a secret."""
    labels = {key: value for key, value in docker_labels(spec).items() if key != CONTAINER_LABEL}
    return {**labels, SERVICE_LABEL: spec.name, VOLUME_LABEL: _volume(spec)}


def service_labels(spec: ContainerSpec) -> dict[str, str]:
    """Return the labels of a service."""
    return {**docker_labels(spec), NETWORK_LABEL: spec.network or "none", VOLUME_LABEL: _volume(spec)}


def service_template(
    spec: ContainerSpec,
    image: str,
    secrets: Mapping[str, str],
    *,
    constraints: Sequence[str] = (),
    storage: str = "",
) -> dict[str, Any]:
    """Return the task template of a service for a container.

    Args:
        spec: Description of the container.
        image: Its image as an id, or as a name with a digest.
        secrets: Name of each file in the start folder, with the id of its secret.
        constraints: Constraints of the task.
        storage: The topology's folder of the shared storage, the same on every node; "" without shared storage.
    """
    security = spec.security
    container: dict[str, Any] = {
        "Image": image,
        "Hostname": spec.name,
        "Args": list(spec.command),
        "Env": [f"{name}={value}" for name, value in spec.environment],
        "Labels": docker_labels(spec),
        "Init": spec.reap_orphans,
        "ReadOnly": security.read_only_root,
        "CapabilityDrop": list(security.dropped_capabilities),
        "CapabilityAdd": list(security.added_capabilities),
        "Mounts": _mounts(spec, storage),
        "Secrets": [_secret(spec, file, key) for file, key in sorted(secrets.items())],
        "DNSConfig": {"Options": _DNS},
        "StopSignal": spec.stop_signal,
        "StopGracePeriod": spec.stop_grace_seconds * _NANO,
    }
    if spec.user is ProcessUser.BOOTSTRAP_ROOT:
        container["User"] = "root"
    template: dict[str, Any] = {
        "ContainerSpec": container,
        "Resources": _resources(spec.limits),
        "RestartPolicy": {"Condition": "none"},
        "Placement": {"Constraints": list(constraints)},
        "Networks": [{"Target": spec.network}] if spec.network else [],
    }
    if spec.log_rotation is not None:
        name, options = log_driver(spec.log_rotation)
        template["LogDriver"] = {"Name": name, "Options": options}
    return template


def _volume(spec: ContainerSpec) -> str:
    return spec.volume.name if spec.volume is not None else ""


def _resources(limits: ContainerLimits | None) -> dict[str, Any]:
    """Return the resources of a task, with the same limits as on Docker, except that it may swap as much as it has.

    It reserves the memory, and the cores except those of Heronry's own processes.
    """
    if limits is None:
        return {}
    nano, own = int(limits.cpus * _NANO), int(limits.own_cpus * _NANO)
    return {
        "Limits": {"MemoryBytes": limits.memory_bytes, "NanoCPUs": nano, "Pids": limits.pids},
        "Reservations": {"MemoryBytes": limits.memory_bytes, "NanoCPUs": max(nano - own, 0)},
    }


def _mounts(spec: ContainerSpec, storage: str) -> list[dict[str, Any]]:
    """Return the mounts of a task.

    A volume is created without a name, on the node's disk, so that it is removed with the task. A named volume could
    not be removed from here. A swarm sets nosuid and nodev for every tmpfs.
    """
    mounts: list[dict[str, Any]] = []
    if spec.volume is not None:
        mount: dict[str, Any] = {"Type": "volume", "Target": VOLUME_PATH}
        mounts.append({**mount, "ReadOnly": True} if spec.volume.read_only else mount)
    mounts += [
        {"Type": "tmpfs", "Target": mount.path, "TmpfsOptions": {"SizeBytes": mount.size_bytes}} for mount in spec.tmpfs
    ]
    if storage:
        mounts += [
            {"Type": "bind", "Source": f"{storage}/{folder}", "Target": target}
            for folder, target in SHARED_MOUNTS.items()
        ]
    return mounts


def _secret(spec: ContainerSpec, name: str, key: str) -> dict[str, Any]:
    file = {"Name": f"{spec.start_folder}/{name}", "UID": _UID, "GID": _UID, "Mode": 0o400}
    return {"SecretID": key, "SecretName": secret_name(spec.name, name), "File": file}


def life_of(*, wanted: bool, started: bool, tasks: Sequence[Task], nodes: Mapping[str, SwarmNode]) -> ObservedState:
    """Return the state of a service.

    Args:
        wanted: The service is scaled to one task.
        started: The service was started at least once.
        tasks: Its tasks, the oldest first.
        nodes: The nodes of the swarm by id.
    """
    living = [task for task in tasks if task.state not in _ENDED and not _lost_node(task, nodes)]
    if living:
        last = living[-1]
        return ObservedState("running") if last.state == "running" else ObservedState("starting", _waits(last))
    if tasks:
        last = tasks[-1]
        if last.state in _ENDED:
            return ObservedState("exited", _in_words(last, nodes), exit_code=last.exit_code)
        return ObservedState(
            "exited", f"{_lost_node(last, nodes)}; it may run on there, cut off, until the node is back", True
        )
    if wanted:
        return ObservedState("starting")
    return ObservedState("exited" if started else "created")  # a swarm forgets a task after it was told to end it


def apart_from(taken: Iterable[str], nodes: Mapping[str, SwarmNode], constraints: Iterable[str]) -> list[str]:
    """Return constraints that keep a task off the ``taken`` nodes, which are given by their ids.

    Return an empty list if no other node would accept the task under its other ``constraints``: sharing a node is
    better than not running.
    """
    given = list(constraints)
    avoided = sorted(set(taken))
    free = (key for key, node in nodes.items() if key not in avoided and _takes(node, given))
    return [f"node.id!={key}" for key in avoided] if any(free) else []


def _takes(node: SwarmNode, constraints: Iterable[str]) -> bool:
    """Return True if a swarm would place a task on the node, provided it has room.

    Like a swarm, it compares values without case.
    """
    for constraint in constraints:
        name, _, wanted = constraint.replace("!=", "==").partition("==")
        same = node.known_by.get(name.strip(), "").lower() == wanted.strip().lower()
        if same == ("!=" in constraint):
            return False
    return node.active and node.state == "ready"


def place_of(tasks: Sequence[Task], nodes: Mapping[str, SwarmNode]) -> tuple[str, bool]:
    """Return the node of the living task of a service, and whether the task is about to get one.

    The service is scaled to one task. The node is "" if it is unknown or the task has ended. A swarm creates the task a
    moment after the scaling, and then looks for a node.
    """
    if not tasks:
        return "", True
    living = [task for task in tasks if task.state not in _ENDED and not _lost_node(task, nodes)]
    if not living:
        return "", False
    return living[-1].node, not living[-1].node and not living[-1].error


def _lost_node(task: Task, nodes: Mapping[str, SwarmNode]) -> str:
    """Return a description of how the task's node was lost, or "" if it is not lost."""
    if not task.node:
        return ""
    node = nodes.get(task.node)
    if node is None:
        return "its node is no longer in the swarm"
    return f"its node {node.name} is down" if node.state == "down" else ""


def _waits(task: Task) -> str:
    if not task.error:
        return ""
    if "no suitable node" in task.error:
        return f"waits for a place: {task.error}; add nodes or request less (docker node ls, topology.component.rammap)"
    return task.error


def _in_words(task: Task, nodes: Mapping[str, SwarmNode]) -> str:
    """Return the reason why a task ended, or "" if its program reports the reason itself."""
    where = nodes[task.node].name if task.node in nodes else "its node"
    if "No such image" in task.error:
        return f"the image is not on {where} ({task.image[:19]}): docker save … | docker load there, or use a registry"
    if task.state == "rejected":
        return f"{where} refused it: {task.error}"
    return "" if "non-zero exit" in task.error else task.error

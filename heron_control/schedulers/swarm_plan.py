"""Mapping of a topology's container to a Docker Swarm, and interpretation of a swarm's answers.

The functions are pure. Each *life* of a container is one service with one replica, whose restart policy is "none". A
swarm never starts it a second time, so its task is the container. The scheduler replaces a container that has ended by
another service (``docs/decisions/swarm.md``). ``service_of`` translates the body for a Docker engine
(``docker_plan.creation``) key by key, so that the hardening of a container is defined in a single place. A key without
an equivalent on a swarm is listed in ``LACKING``, with the reason. An unknown key is refused.

``life_of`` derives the state of a container from a swarm's answers. The last reported state of a task does not count
if its node is down. The task may still run there, disconnected, and ends when the node is back. Until then the
incarnations of its processes keep it from doing harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heron_control.schedulers import docker_plan as plan

SERVICE_LABEL = f"{plan.PREFIX}.service"  # on a secret: its service
NETWORK_LABEL = f"{plan.PREFIX}.network"  # on a service
VOLUME_LABEL = f"{plan.PREFIX}.volume"  # on a service and its secrets: the name of the topology's volume
STARTED_LABEL = f"{plan.PREFIX}.started"  # on a service that has been started

LACKING = {  # keys of the body of a Docker container
    "MemorySwap": "a swarm of this API gives as much swap as memory; turn swap off on the nodes",
    "SecurityOpt": "no_new_privs is the engine's setting; Heronry's image has no program that gives privileges",
    "RestartPolicy": "always none",
}
_UID = "10001"  # id of the image's user, which owns the files that are put into a container
_NANO = 1_000_000_000
_ENDED = frozenset({"complete", "shutdown", "failed", "rejected", "remove", "orphaned"})
_DNS = ["timeout:1", "attempts:1"]  # give up soon on the name of a container that is gone


class Node(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class Life:
    """State of a service.

    ``state`` is a state of ``Seen``. ``trouble`` is the reason why it does not run yet, or how it ended. ``lost`` is
    True if it ended because its node was lost.
    """

    state: str
    trouble: str = ""
    lost: bool = False
    exit_code: int | None = None


def secret_name(service: str, file: str) -> str:
    """Return the name of a secret.

    The name is a hash, since a swarm allows 64 characters, which the names of service and file may exceed.
    """
    digest = hashlib.blake2b(f"{service}/{file}".encode(), digest_size=16).hexdigest()
    return f"heronry-{digest}"


def secret_labels(service: str, body: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that identify the owner of a secret."""
    labels = {key: value for key, value in body["Labels"].items() if key != plan.CONTAINER_LABEL}
    return {**labels, SERVICE_LABEL: service, VOLUME_LABEL: plan.volume_of(body)}


def labels_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a service."""
    return {**body["Labels"], NETWORK_LABEL: body["HostConfig"]["NetworkMode"], VOLUME_LABEL: plan.volume_of(body)}


def service_of(
    name: str,
    body: Mapping[str, Any],
    image: str,
    secrets: Mapping[str, str],
    *,
    constraints: Sequence[str] = (),
    storage: str = "",
) -> dict[str, Any]:
    """Return the task template of a service for the container of this body.

    Args:
        name: Name of the service.
        body: Body for a Docker engine (``docker_plan.creation``).
        image: An image id, or a name with a digest.
        secrets: Path in the container to the id of the secret.
        constraints: Constraints of the task.
        storage: The topology's folder of the shared storage, the same on every node; "" without shared storage.

    Raises:
        KeyError: The body contains a key without a translation.
    """
    host = dict(body["HostConfig"])
    spec = {
        "Image": image,
        "Hostname": body.get("Hostname", name),
        "Args": list(body.get("Cmd", ())),
        "Labels": dict(body["Labels"]),
        "Init": host.pop("Init", False),
        "ReadOnly": host.pop("ReadonlyRootfs", False),
        "CapabilityDrop": host.pop("CapDrop", []),
        "CapabilityAdd": host.pop("CapAdd", []),
        "Mounts": _mounts(host.pop("Mounts", ()), host.pop("Tmpfs", {}), storage),
        "Secrets": [_secret(name, path, key) for path, key in sorted(secrets.items())],
        "DNSConfig": {"Options": _DNS},
    }
    for key in ("User", "Env", "StopSignal"):
        if key in body:
            spec[key] = body[key]
    if "StopTimeout" in body:
        spec["StopGracePeriod"] = int(body["StopTimeout"] * _NANO)
    _know(body, {"Image", "Hostname", "Cmd", "Labels", "HostConfig", "User", "Env", "StopSignal", "StopTimeout"})
    network = host.pop("NetworkMode")
    template: dict[str, Any] = {
        "ContainerSpec": spec,
        "Resources": _resources(host),
        "RestartPolicy": {"Condition": "none"},
        "Placement": {"Constraints": list(constraints)},
        "Networks": [] if network == "none" else [{"Target": network}],
    }
    if log := host.pop("LogConfig", None):
        template["LogDriver"] = {"Name": log["Type"], "Options": log["Config"]}
    _know(host, set(LACKING))
    return template


def _know(given: Mapping[str, Any], known: set[str]) -> None:
    if unknown := set(given) - known:
        raise KeyError(f"{min(unknown)} has no mapping to a swarm")


def _resources(host: dict[str, Any]) -> dict[str, Any]:
    """Return the resources of a task, with the same limits as on Docker.

    It reserves the memory, and the cores except those of Heronry's own processes.
    """
    memory, nano, pids = host.pop("Memory", 0), host.pop("NanoCpus", 0), host.pop("PidsLimit", 0)
    own = int(plan.OWN_CPU * _NANO)
    return {
        "Limits": {"MemoryBytes": memory, "NanoCPUs": nano, "Pids": pids},
        "Reservations": {"MemoryBytes": memory, "NanoCPUs": max(nano - own, 0)},
    }


def _mounts(mounts: Iterable[Mapping[str, Any]], tmpfs: Mapping[str, str], storage: str) -> list[dict[str, Any]]:
    """Return the mounts of a task.

    A volume is created without a name, on the node's disk, so that it is removed with the task. A named volume could
    not be removed from here.
    """
    made: list[dict[str, Any]] = []
    for mount in mounts:
        if mount["Type"] != "volume" or set(mount) != {"Type", "Source", "Target"}:
            raise KeyError(f"the mount {dict(mount)} has no mapping to a swarm")
        made.append({"Type": "volume", "Target": mount["Target"]})
    for target, options in tmpfs.items():
        given = dict(part.partition("=")[::2] for part in options.split(","))
        _know(given, {"rw", "nosuid", "nodev", "size"})  # a swarm always sets nosuid and nodev
        made.append({"Type": "tmpfs", "Target": target, "TmpfsOptions": {"SizeBytes": int(given["size"])}})
    if storage:
        made += [
            {"Type": "bind", "Source": f"{storage}/{folder}", "Target": target}
            for folder, target in plan.SHARED_MOUNTS.items()
        ]
    return made


def _secret(service: str, path: str, key: str) -> dict[str, Any]:
    file = {"Name": path, "UID": _UID, "GID": _UID, "Mode": 0o400}
    return {"SecretID": key, "SecretName": secret_name(service, path.rsplit("/", 1)[1]), "File": file}


def life_of(*, wanted: bool, started: bool, tasks: Sequence[Task], nodes: Mapping[str, Node]) -> Life:
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
        return Life("running") if last.state == "running" else Life("starting", _waits(last))
    if tasks:
        last = tasks[-1]
        if last.state in _ENDED:
            return Life("exited", _in_words(last, nodes), exit_code=last.exit_code)
        return Life("exited", f"{_lost_node(last, nodes)}; it may run on there, cut off, until the node is back", True)
    if wanted:
        return Life("starting")
    return Life("exited" if started else "created")  # a swarm forgets a task after it was told to end it


def apart_from(taken: Iterable[str], nodes: Mapping[str, Node], constraints: Iterable[str]) -> list[str]:
    """Return constraints that keep a task off the ``taken`` nodes, which are given by their ids.

    Return an empty list if no other node would accept the task under its other ``constraints``: sharing a node is
    better than not running.
    """
    given = list(constraints)
    avoided = sorted(set(taken))
    free = (key for key, node in nodes.items() if key not in avoided and _takes(node, given))
    return [f"node.id!={key}" for key in avoided] if any(free) else []


def _takes(node: Node, constraints: Iterable[str]) -> bool:
    """Return True if a swarm would place a task on the node, provided it has room.

    Like a swarm, it compares values without case.
    """
    for constraint in constraints:
        name, _, wanted = constraint.replace("!=", "==").partition("==")
        same = node.known_by.get(name.strip(), "").lower() == wanted.strip().lower()
        if same == ("!=" in constraint):
            return False
    return node.active and node.state == "ready"


def place_of(tasks: Sequence[Task], nodes: Mapping[str, Node]) -> tuple[str, bool]:
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


def _lost_node(task: Task, nodes: Mapping[str, Node]) -> str:
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


def _in_words(task: Task, nodes: Mapping[str, Node]) -> str:
    """Return the reason why a task ended, or "" if its program reports the reason itself."""
    where = nodes[task.node].name if task.node in nodes else "its node"
    if "No such image" in task.error:
        return f"the image is not on {where} ({task.image[:19]}): docker save … | docker load there, or use a registry"
    if task.state == "rejected":
        return f"{where} refused it: {task.error}"
    return "" if "non-zero exit" in task.error else task.error

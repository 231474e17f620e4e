"""Mapping of a topology to a Docker engine: names, labels, limits, and the body that creates a container.

The functions are pure. They turn a launch and a packing plan into plain values. Each submission has one network and one
volume, and each container of the topology (``heron_runtime.model.containers``) has one Docker container. Every name
contains the compose project, the topology and six digits of the submission's id, so that names of two clusters, or of
two submissions of one name, do not collide. The name of a container is a DNS label. It is the host that the container's
processes publish. It resolves on the topology's network even after the container was disconnected and connected again.

Memory: the limit is the value of the packing plan, but at least the memory promised to the tasks plus OWN_RAM for
Heronry's own processes. If the user has stated the size of the container (``topology.container.ram``), that is the
limit. Cores: the limit is the plan's value plus OWN_CPU, and at most the number of the engine's cores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from heron_control.schedulers.containers import stop_grace_ms
from heron_runtime.launch import Launch
from heron_runtime.model.containers import MASTER_RESOURCES
from heron_runtime.model.ids import holds_master
from heron_runtime.model.plan import PackingPlan, Resources
from heron_runtime.model.settings import Keys, MiB, setting

PREFIX = "org.heronry"
CLUSTER_LABEL = f"{PREFIX}.cluster"  # on every object of a scheduler: the compose project
TOPOLOGY_ID_LABEL = f"{PREFIX}.topology-id"
TOPOLOGY_LABEL = f"{PREFIX}.topology"
ROLE_LABEL = f"{PREFIX}.role"
ENVIRON_LABEL = f"{PREFIX}.environ"
CONTAINER_LABEL = f"{PREFIX}.container"
APART_LABEL = f"{PREFIX}.apart"  # on containers that must not share a node: their number
JOINS_LABEL = f"{PREFIX}.joins"  # on a service that must be on the network of every topology of this cluster
ALIAS_LABEL = f"{PREFIX}.alias"  # on such a service: its name on these networks

# Compose labels the images it builds, and containers inherit the labels. Without these, compose would treat a
# topology's containers as its own services.
NO_COMPOSE = {f"com.docker.compose.{name}": "" for name in ("project", "service", "version")}

VOLUME_PATH = "/var/lib/heronry"  # in containers: files that the topology's containers share and that outlive them
HOME = f"{VOLUME_PATH}/topology"
RUNTIME_DIR = f"{VOLUME_PATH}/run"
SHARED_PATH = f"{VOLUME_PATH}/shared"  # with storage that all nodes share: files of the whole topology
SHARED_MOUNTS = {"checkpoints": f"{HOME}/checkpoints", "files": SHARED_PATH}  # folder of the storage: mount point
USER, CODE_USER = "heronry", "heronry-code"  # users of the image: for Heronry's own processes, and for user code
SECRET, KEY, CREDENTIAL, LAUNCH_FILE = "secret", "key.pem", "store-credential", "launch.json"

OWN_RAM = 256 * MiB
OWN_CPU = 0.5
TMPFS_BYTES = 128 * MiB
PIDS = 4096
LOG_OPTIONS = {"max-size": "10m", "max-file": "3"}
_LONGEST = {"project": 20, "topology": 28}


def start_folder(number: int) -> str:
    """Return the folder with a container's ``launch.json``, secret, key and credential."""
    return f"{VOLUME_PATH}/start/{number}"


def shared_name(project: str, launch: Launch) -> str:
    """Return the name of the topology's network and volume.

    It sorts after ``<project>_cluster``, the network of compose. If a service is on several networks, the engine
    publishes its ports through the first of them by name. That network must not change as topologies come and go.
    """
    return f"{project}_topology-{_identity(launch)}"


def container_host(project: str, launch: Launch, number: int) -> str:
    """Return the name of a container, which is a DNS label."""
    return f"{_slug(project, _LONGEST['project'])}-{_identity(launch)}-{number}"


def _identity(launch: Launch) -> str:
    return f"{_slug(launch.topology, _LONGEST['topology'])}-{_slug(launch.topology_id[-6:], 6)}"


def _slug(text: str, longest: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:longest].strip("-") or "x"


def labels(project: str, launch: Launch, number: int | None = None) -> dict[str, str]:
    """Return the labels that identify the owner of a container, network or volume."""
    labels = {
        CLUSTER_LABEL: project,
        ROLE_LABEL: launch.role,
        ENVIRON_LABEL: launch.environ,
        TOPOLOGY_LABEL: launch.topology,
        TOPOLOGY_ID_LABEL: launch.topology_id,
    }
    return labels if number is None else {**labels, CONTAINER_LABEL: str(number)}


def limits(packing: PackingPlan, config: Mapping[str, Any], number: int, cores: float) -> Resources:
    """Return the limits of a container. ``cores`` is the number of the engine's cores.

    Raises:
        KeyError: The container is not in the plan.
    """
    if holds_master(number):
        return Resources(min(MASTER_RESOURCES.cpu + OWN_CPU, cores), MASTER_RESOURCES.ram_bytes + OWN_RAM)
    plan = packing.container(number)
    tasks = sum(instance.resources.ram_bytes for instance in plan.instances)
    stated = setting(config, Keys.TOPOLOGY_CONTAINER_RAM) is not None
    ram = plan.resources.ram_bytes if stated else max(plan.resources.ram_bytes, tasks + OWN_RAM)
    return Resources(max(0.01, min(plan.resources.cpu + OWN_CPU, cores)), ram)


def launch_inside(launch: Launch, api_url: str, scheduler: str = "docker") -> Launch:
    """Return the launch for the topology's containers. ``host`` is set later for each of them."""
    return replace(
        launch,
        home=HOME,
        runtime_dir=RUNTIME_DIR,
        bind="0.0.0.0",
        api_url=launch.api_url or api_url,
        store_credential=CREDENTIAL if launch.store_credential else "",
        settings={
            **launch.settings,
            Keys.HERON_SCHEDULER.name: scheduler,
            Keys.HERON_USER_CODE_USER.name: CODE_USER,
            Keys.HERON_VOLUME_FOLDER.name: VOLUME_PATH,
        },
    )


def launch_of(launch: Launch, host: str, number: int) -> Launch:
    """Return the launch of one container, which others reach under ``host``."""
    credential = f"{start_folder(number)}/{CREDENTIAL}" if launch.store_credential else ""
    key = f"{start_folder(number)}/{KEY}"
    return replace(launch, host=host, store_credential=credential, key=key)


def reader_name(project: str, launch: Launch) -> str:
    """Return the name of the container through which the topology's volume is read after all others are gone."""
    return f"{container_host(project, launch, 0)[:-1]}logs"


def writer_name(project: str, launch: Launch) -> str:
    """Return the name of the container through which the topology's volume is written before others exist."""
    return f"{container_host(project, launch, 0)[:-1]}checkpoint"


def helper(project: str, launch: Launch, image: str, *, writes: bool = False) -> dict[str, Any]:
    """Return the body that creates the reader or the writer.

    These containers do not have a number, so that they are not mistaken for containers of the topology.
    """
    mount = {"Type": "volume", "Source": shared_name(project, launch), "Target": VOLUME_PATH, "ReadOnly": not writes}
    return {
        "Image": image,
        "Labels": {**NO_COMPOSE, **labels(project, launch)},
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount], "CapDrop": ["ALL"], "ReadonlyRootfs": True},
    }


def creation(
    project: str, launch: Launch, number: int, image: str, limits: Resources, *, apart: int = 0
) -> dict[str, Any]:
    """Return the body of the engine's ``POST /containers/create``, without the name. It contains no secrets.

    The first program of the container is root with three capabilities until it has become ``USER``. It then keeps the
    capabilities with which instances become ``CODE_USER`` (``heron_container.bootstrap``), since an engine does not
    grant capabilities to other users.

    Args:
        project: The compose project.
        launch: The launch of the topology.
        number: Number of the container.
        image: The image.
        limits: Limits of the container.
        apart: If not 0, the number of containers of the topology that must run on different nodes, if there are enough
            nodes. This container is one of them.
    """
    shared = shared_name(project, launch)
    file = f"{start_folder(number)}/{LAUNCH_FILE}"
    return {
        "Image": image,
        "Hostname": container_host(project, launch, number),
        "User": "root",
        "Cmd": [
            "python",
            "-P",
            "-m",
            "heron_container.bootstrap",
            "--launch",
            file,
            "--container",
            str(number),
            "--user",
            USER,
        ],
        "Env": ["HOME=/tmp"],
        "Labels": {**NO_COMPOSE, **labels(project, launch, number), **({APART_LABEL: str(apart)} if apart else {})},
        "StopSignal": "SIGTERM",
        "StopTimeout": math.ceil(stop_grace_ms(launch.settings) / 1000),
        "HostConfig": {
            "NetworkMode": shared,
            "Mounts": [{"Type": "volume", "Source": shared, "Target": VOLUME_PATH}],
            "Memory": limits.ram_bytes,
            "MemorySwap": limits.ram_bytes,  # no swap: a topology that swaps is slower than one that is restarted
            "NanoCpus": int(limits.cpu * 1e9),
            "PidsLimit": PIDS,
            "Init": True,
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": f"rw,nosuid,nodev,size={TMPFS_BYTES}"},
            "CapDrop": ["ALL"],
            "CapAdd": ["KILL", "SETGID", "SETUID"],
            "SecurityOpt": ["no-new-privileges:true"],
            "LogConfig": {"Type": "json-file", "Config": LOG_OPTIONS},
            "RestartPolicy": {"Name": "no"},  # the scheduler restarts containers, so that the topology reports it
        },
    }


def volume_of(body: Mapping[str, Any]) -> str:
    """Return the name of the volume of a container with this body, or "" if it does not have one."""
    return next((str(m["Source"]) for m in body["HostConfig"].get("Mounts", ()) if m["Type"] == "volume"), "")

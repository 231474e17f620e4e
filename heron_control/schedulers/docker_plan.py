"""How a topology looks on a Docker engine: names, labels, limits, and everything a container is created with.

Pure: a launch and a packing plan in, plain values out. One network and one volume for each submission, one Docker
container for each container of the topology (``heron_runtime.model.containers``). Every name holds the compose project,
the topology and six digits of the submission's id, so that two clusters, or two submissions of one name, never meet.
The name of a container is a DNS label: it is the host that its processes publish, and resolves on the topology's
network even after somebody has disconnected and connected it.

Memory: what the packing plan says, but never less than the tasks were promised plus OWN_RAM for Heronry's own
processes, unless the user has stated the container's size (``topology.container.ram``), which then is the limit.
Cores: the plan's, plus OWN_CPU, at most what the engine has.
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
CLUSTER_LABEL = f"{PREFIX}.cluster"  # on everything a scheduler makes: the compose project
TOPOLOGY_ID_LABEL = f"{PREFIX}.topology-id"
TOPOLOGY_LABEL = f"{PREFIX}.topology"
ROLE_LABEL = f"{PREFIX}.role"
ENVIRON_LABEL = f"{PREFIX}.environ"
CONTAINER_LABEL = f"{PREFIX}.container"
APART_LABEL = f"{PREFIX}.apart"  # on containers of which no two are to share a node: how many they are
JOINS_LABEL = f"{PREFIX}.joins"  # on a service: it is to be on the network of every topology of this cluster
ALIAS_LABEL = f"{PREFIX}.alias"  # …under this name

# Compose labels the images it builds, and containers inherit that: it would take ours for its own services.
NO_COMPOSE = {f"com.docker.compose.{name}": "" for name in ("project", "service", "version")}

VOLUME_PATH = "/var/lib/heronry"  # in containers: what the topology's containers share, and what outlives them
HOME = f"{VOLUME_PATH}/topology"
RUNTIME_DIR = f"{VOLUME_PATH}/run"
SHARED_PATH = f"{VOLUME_PATH}/shared"  # where there is storage that all nodes see: what all of a topology share
SHARED_MOUNTS = {"checkpoints": f"{HOME}/checkpoints", "files": SHARED_PATH}  # folder of the topology's storage: where
USER, CODE_USER = "heronry", "heronry-code"  # of the image: Heronry's own processes, user code
SECRET, KEY, CREDENTIAL, LAUNCH_FILE = "secret", "key.pem", "store-credential", "launch.json"

OWN_RAM = 256 * MiB
OWN_CPU = 0.5
TMPFS_BYTES = 128 * MiB
PIDS = 4096
LOG_OPTIONS = {"max-size": "10m", "max-file": "3"}
_LONGEST = {"project": 20, "topology": 28}


def start_folder(number: int) -> str:
    """Where a container finds its ``launch.json``, secret, key and credential."""
    return f"{VOLUME_PATH}/start/{number}"


def shared_name(project: str, launch: Launch) -> str:
    """The name of the topology's network and volume.

    In the order of names it comes after ``<project>_cluster``, the network of compose. The engine publishes ports of a
    service that is on several networks by way of the first of them: it must not change as topologies come and go.
    """
    return f"{project}_topology-{_identity(launch)}"


def container_host(project: str, launch: Launch, number: int) -> str:
    """The name of a container: a DNS label."""
    return f"{_slug(project, _LONGEST['project'])}-{_identity(launch)}-{number}"


def _identity(launch: Launch) -> str:
    return f"{_slug(launch.topology, _LONGEST['topology'])}-{_slug(launch.topology_id[-6:], 6)}"


def _slug(text: str, longest: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:longest].strip("-") or "x"


def labels(project: str, launch: Launch, number: int | None = None) -> dict[str, str]:
    """What says whose a container, network or volume is."""
    found = {
        CLUSTER_LABEL: project,
        ROLE_LABEL: launch.role,
        ENVIRON_LABEL: launch.environ,
        TOPOLOGY_LABEL: launch.topology,
        TOPOLOGY_ID_LABEL: launch.topology_id,
    }
    return found if number is None else {**found, CONTAINER_LABEL: str(number)}


def limits(packing: PackingPlan, config: Mapping[str, Any], number: int, cores: float) -> Resources:
    """The limits of a container. ``cores`` is what the engine has. Raises KeyError for a container not in the plan."""
    if holds_master(number):
        return Resources(min(MASTER_RESOURCES.cpu + OWN_CPU, cores), MASTER_RESOURCES.ram_bytes + OWN_RAM)
    plan = packing.container(number)
    tasks = sum(instance.resources.ram_bytes for instance in plan.instances)
    stated = setting(config, Keys.TOPOLOGY_CONTAINER_RAM) is not None
    ram = plan.resources.ram_bytes if stated else max(plan.resources.ram_bytes, tasks + OWN_RAM)
    return Resources(max(0.01, min(plan.resources.cpu + OWN_CPU, cores)), ram)


def launch_inside(launch: Launch, api_url: str, scheduler: str = "docker") -> Launch:
    """The launch as the topology's containers shall see it; ``host`` is filled in for each of them."""
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
    """The launch of one container, which is found under ``host``."""
    credential = f"{start_folder(number)}/{CREDENTIAL}" if launch.store_credential else ""
    key = f"{start_folder(number)}/{KEY}"
    return replace(launch, host=host, store_credential=credential, key=key)


def reader_name(project: str, launch: Launch) -> str:
    """The name of the container by which the topology's volume is read when all others are gone."""
    return f"{container_host(project, launch, 0)[:-1]}logs"


def writer_name(project: str, launch: Launch) -> str:
    """The name of the container by which the topology's volume is written before there are others."""
    return f"{container_host(project, launch, 0)[:-1]}checkpoint"


def helper(project: str, launch: Launch, image: str, *, writes: bool = False) -> dict[str, Any]:
    """Body of the creation of these two. They have no number, so that nobody takes them for the topology's own."""
    mount = {"Type": "volume", "Source": shared_name(project, launch), "Target": VOLUME_PATH, "ReadOnly": not writes}
    return {
        "Image": image,
        "Labels": {**NO_COMPOSE, **labels(project, launch)},
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount], "CapDrop": ["ALL"], "ReadonlyRootfs": True},
    }


def creation(
    project: str, launch: Launch, number: int, image: str, limits: Resources, *, apart: int = 0
) -> dict[str, Any]:
    """Body of the engine's ``POST /containers/create``, without the name. Nothing in it is secret.

    ``apart``: it is one of so many of its topology of which no two share a node, where there are nodes enough.

    Its first program is root with three capabilities, for as long as it takes to become ``USER``. What it keeps then
    are those by which instances become ``CODE_USER`` (``heron_container.bootstrap``): an engine gives none to others.
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
            "RestartPolicy": {"Name": "no"},  # the scheduler does it, so that the state of the topology says so
        },
    }


def volume_of(body: Mapping[str, Any]) -> str:
    """The name of the volume that a container of this body has; "" where it has none."""
    return next((str(m["Source"]) for m in body["HostConfig"].get("Mounts", ()) if m["Type"] == "volume"), "")

"""Neutral description of a topology's container: its names, labels, limits and hardening.

The functions are pure. ``build_container_spec`` describes a container as a ``ContainerSpec``, and one pure function per
engine translates it (``docker_objects``, ``swarm_objects``, ``kubernetes_objects``). So the hardening of a container is
defined in a single place. A field without an equivalent on an engine is listed in the ``UNSUPPORTED_FIELDS`` of its
translation, with the reason.

Each submission has one network and one volume, and each container of the topology (``heron_runtime.model.containers``)
has one container of the engine. Every name contains the cluster, the topology and six digits of the submission's id, so
that names of two clusters, or of two submissions of one name, do not collide. The name of a container is a DNS label.
It is the host that the container's processes publish. It resolves on the topology's network even after the container
was disconnected and connected again.

Memory: the limit is the value of the packing plan, but at least the memory promised to the tasks plus OWN_RAM for
Heronry's own processes. If the user has stated the size of the container (``topology.container.ram``), that is the
limit. Cores: the limit is the plan's value plus OWN_CPU, and at most the number of the engine's cores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
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
_LONGEST = {"project": 20, "topology": 28}


class ProcessUser(Enum):
    """User of a container's first process."""

    BOOTSTRAP_ROOT = "root"  # root until the first program has become USER (``heron_container.bootstrap``)
    IMAGE = "image"  # the user that the image names


@dataclass(frozen=True, slots=True)
class TopologyIdentity:
    """Submission that a container belongs to, and its cluster."""

    cluster: str
    role: str
    environ: str
    topology: str
    topology_id: str

    @classmethod
    def of(cls, cluster: str, launch: Launch) -> TopologyIdentity:
        """Return the identity of the submission of a launch."""
        return cls(cluster, launch.role, launch.environ, launch.topology, launch.topology_id)

    def labels(self) -> dict[str, str]:
        """Return the labels that identify the owner of a container, network or volume."""
        return {
            CLUSTER_LABEL: self.cluster,
            ROLE_LABEL: self.role,
            ENVIRON_LABEL: self.environ,
            TOPOLOGY_LABEL: self.topology,
            TOPOLOGY_ID_LABEL: self.topology_id,
        }


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """Mount of a topology's volume at VOLUME_PATH."""

    name: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class TmpfsMount:
    """Memory that is mounted as a folder. Device files and set-user-id bits have no effect in it."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """Limits of a container. Swap is not allowed in addition to ``memory_bytes``.

    ``own_cpus`` is the part of ``cpus`` for Heronry's own processes, which is not reserved on a node.
    """

    memory_bytes: int
    cpus: float
    own_cpus: float
    pids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSecurity:
    """Hardening of a container."""

    dropped_capabilities: tuple[str, ...]
    added_capabilities: tuple[str, ...]
    read_only_root: bool
    no_new_privileges: bool


@dataclass(frozen=True, slots=True)
class LogRotation:
    """Limits of what an engine keeps of a container's output."""

    file_size_mib: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """Description of a container for every engine. No field has a default, so that none can be forgotten.

    An engine never restarts a container: the scheduler does, so that the topology's status reports it.

    Attributes:
        name: DNS label, and host name.
        owner: Submission that the container belongs to.
        number: Number of the container; None for one that only gives access to the volume and never runs.
        image: Image.
        command: Program and arguments; empty for the image's own.
        environment: Names and values of environment variables.
        user: User of the first process.
        network: Name of the topology's network, or "" without a network.
        volume: The topology's volume, if it is mounted.
        start_folder: Folder in the volume with the files that the container is created with, or "" without files.
        tmpfs: Folders in memory.
        limits: Limits, or None without limits.
        security: Hardening.
        reap_orphans: A first process of the engine removes ended orphans.
        stop_signal: Name of the signal that requests the end.
        stop_grace_seconds: Time between ``stop_signal`` and SIGKILL.
        log_rotation: Limits of the output, or None for the engine's own.
        spread: Number of containers of the topology that must run on different nodes if there are enough. This
            container is one of them. 0 without such a rule.
    """

    name: str
    owner: TopologyIdentity
    number: int | None
    image: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    user: ProcessUser
    network: str
    volume: VolumeMount | None
    start_folder: str
    tmpfs: tuple[TmpfsMount, ...]
    limits: ContainerLimits | None
    security: ContainerSecurity
    reap_orphans: bool
    stop_signal: str
    stop_grace_seconds: int
    log_rotation: LogRotation | None
    spread: int

    def labels(self) -> dict[str, str]:
        """Return the labels of the container."""
        number = {} if self.number is None else {CONTAINER_LABEL: str(self.number)}
        return {**self.owner.labels(), **number, **({APART_LABEL: str(self.spread)} if self.spread else {})}


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


def owner_labels(project: str, launch: Launch) -> dict[str, str]:
    """Return the labels of a network or volume of a topology."""
    return TopologyIdentity.of(project, launch).labels()


def container_limits(packing: PackingPlan, config: Mapping[str, Any], number: int, cores: float) -> Resources:
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


def volume_access_spec(project: str, launch: Launch, image: str, *, writes: bool = False) -> ContainerSpec:
    """Return the container through which the topology's volume is read, or written if ``writes``.

    It never runs, and does not have a number, so that it is not mistaken for a container of the topology.
    """
    return ContainerSpec(
        name=(writer_name if writes else reader_name)(project, launch),
        owner=TopologyIdentity.of(project, launch),
        number=None,
        image=image,
        command=("true",),  # an engine refuses a container without one, though it never runs
        environment=(),
        user=ProcessUser.IMAGE,
        network="",
        volume=VolumeMount(shared_name(project, launch), read_only=not writes),
        start_folder="",
        tmpfs=(),
        limits=None,
        security=ContainerSecurity(
            dropped_capabilities=("ALL",), added_capabilities=(), read_only_root=True, no_new_privileges=True
        ),
        reap_orphans=False,
        stop_signal="SIGTERM",
        stop_grace_seconds=0,
        log_rotation=None,
        spread=0,
    )


def build_container_spec(
    project: str, launch: Launch, number: int, image: str, limits: Resources, *, spread: int = 0
) -> ContainerSpec:
    """Return the description of a container of a topology. It contains no secrets.

    The first program of the container is root with three capabilities until it has become ``USER``. It then keeps the
    capabilities with which instances become ``CODE_USER`` (``heron_container.bootstrap``), since an engine does not
    grant capabilities to other users.

    Args:
        project: The cluster (compose project).
        launch: The launch of the topology.
        number: Number of the container.
        image: The image.
        limits: Limits of the container (``container_limits``).
        spread: Value of ``ContainerSpec.spread``.
    """
    shared = shared_name(project, launch)
    folder = start_folder(number)
    program = ("python", "-P", "-m", "heron_container.bootstrap")
    return ContainerSpec(
        name=container_host(project, launch, number),
        owner=TopologyIdentity.of(project, launch),
        number=number,
        image=image,
        command=(*program, "--launch", f"{folder}/{LAUNCH_FILE}", "--container", str(number), "--user", USER),
        environment=(("HOME", "/tmp"),),
        user=ProcessUser.BOOTSTRAP_ROOT,
        network=shared,
        volume=VolumeMount(shared, read_only=False),
        start_folder=folder,
        tmpfs=(TmpfsMount("/tmp", TMPFS_BYTES),),
        limits=ContainerLimits(memory_bytes=limits.ram_bytes, cpus=limits.cpu, own_cpus=OWN_CPU, pids=PIDS),
        security=ContainerSecurity(
            dropped_capabilities=("ALL",),
            added_capabilities=("KILL", "SETGID", "SETUID"),
            read_only_root=True,
            no_new_privileges=True,
        ),
        reap_orphans=True,
        stop_signal="SIGTERM",
        stop_grace_seconds=math.ceil(stop_grace_ms(launch.settings) / 1000),
        log_rotation=LogRotation(file_size_mib=10, files=3),
        spread=spread,
    )

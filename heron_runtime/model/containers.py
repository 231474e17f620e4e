"""Containers and processes of a topology, and the size of its volume: pure functions of packing plan and configuration.

The containers of the packing plan hold tasks: a stream manager, a metrics manager, and one instance per task. Container
0 holds a topology master and a metrics manager. ``topology.master.replicas`` above 1 adds standbys of that master. Each
has a container of its own, like container 0, numbered from ``FIRST_STANDBY`` up, so that the loss of a container or its
node does not unnecessarily affect two masters. The masters' containers do not differ otherwise, and any of the masters
may lead. ``heron_control.packing`` ensures that a packing plan does not use numbers from ``FIRST_STANDBY`` on.

Schedulers start the containers that ``containers_of`` returns, in this order. Masters are first, since their placement
is more constrained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from heron_runtime.model.ids import FIRST_STANDBY, MASTER_CONTAINER, instance_id
from heron_runtime.model.plan import PackingPlan, Resources
from heron_runtime.model.settings import GiB, Keys, MiB, setting

MASTER_RESOURCES = Resources(cpu=0.5, ram_bytes=256 * MiB)  # of a master, in addition to Heronry's share of a container

LAST_STANDBY = FIRST_STANDBY + int(Keys.TOPOLOGY_MASTER_REPLICAS.maximum or 1) - 2

INSTANCE = "heron_instance"
METRICS_MANAGER = "metrics_manager"
STREAM_MANAGER = "stream_manager"
TOPOLOGY_MASTER = "topology_master"


class ContainerProcess(NamedTuple):
    """Process that runs in a container: its kind, and the name of its log and title."""

    kind: str
    name: str
    component: str = ""
    task: int = 0


def standbys_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the containers of the initial standby masters."""
    return tuple(range(FIRST_STANDBY, FIRST_STANDBY + setting(config, Keys.TOPOLOGY_MASTER_REPLICAS) - 1))


def containers_of(packing: PackingPlan, config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return every container of a topology."""
    return (MASTER_CONTAINER, *standbys_of(config), *(plan.container for plan in packing.containers))


def processes_in(container: int, packing: PackingPlan, config: Mapping[str, Any]) -> tuple[ContainerProcess, ...]:
    """Return the processes of a container in their order of start. Raises KeyError for an unknown container."""
    manager = ContainerProcess(METRICS_MANAGER, f"metrics_manager-{container}")
    if container == MASTER_CONTAINER or container in standbys_of(config):
        return ContainerProcess(TOPOLOGY_MASTER, f"topology_master-{container}"), manager
    tasks = sorted(packing.container(container).instances, key=lambda instance: instance.task)
    instances = (
        ContainerProcess(INSTANCE, instance_id(container, task.component, task.task), task.component, task.task)
        for task in tasks
    )
    return ContainerProcess(STREAM_MANAGER, f"stream_manager-{container}"), manager, *instances


def label_of(container: int) -> str:
    """Return a container number for display: `3`, `100001 (standby)`."""
    return f"{container} (standby)" if container >= FIRST_STANDBY else str(container)


def listed(containers: tuple[int, ...]) -> str:
    """Return the first twenty numbers in order, for display."""
    shown = ", ".join(map(str, sorted(containers)[:20]))
    return shown + (", …" if len(containers) > 20 else "")


DEFAULT_BYTES = 4 * GiB
BYTES_A_FILE = 16 * 1024  # bytes per inode, as in ext4, so that inodes do not run out before bytes
LEAST_FILES = 10_000


def volume_bytes(config: Mapping[str, Any], packing: PackingPlan) -> int:
    """Return the granted bytes: `topology.volume.disk`, or the disk of its containers, at least 4 GiB."""
    stated = setting(config, Keys.TOPOLOGY_VOLUME_DISK)
    requested_bytes = sum(plan.resources.disk_bytes for plan in packing.containers)
    return max(DEFAULT_BYTES, requested_bytes) if stated is None else stated


def volume_files(granted_bytes: int) -> int:
    """Return the number of files and folders that these bytes allow."""
    return max(LEAST_FILES, granted_bytes // BYTES_A_FILE)

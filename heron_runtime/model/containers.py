"""Containers and processes of a topology, and the size of its volume: pure functions of packing plan and configuration.

The containers of the packing plan hold tasks: a stream manager, a metrics manager, and one instance per task. Container
0 holds a topology master and a metrics manager. ``topology.master.replicas`` above 1 asks for standbys of that master:
each has a container of its own, like container 0, numbered from ``FIRST_STANDBY`` up, so that the end of a container,
or of its node, never takes two masters where it need not. Nothing else tells the masters' containers apart: any of them
may lead. A packing plan names no number from ``FIRST_STANDBY`` on (``heron_control.packing`` sees to that).

Schedulers start what ``containers_of`` names, in this order: masters come first, for they are choosier about places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from heron_runtime.model.ids import FIRST_STANDBY, MASTER_CONTAINER, instance_id
from heron_runtime.model.plan import PackingPlan, Resources
from heron_runtime.model.settings import GiB, Keys, MiB, setting

MASTER_RESOURCES = Resources(cpu=0.5, ram_bytes=256 * MiB)  # of a master, beside Heronry's own share of a container

LAST_STANDBY = FIRST_STANDBY + int(Keys.TOPOLOGY_MASTER_REPLICAS.maximum or 1) - 2

INSTANCE = "heron_instance"
METRICS_MANAGER = "metrics_manager"
STREAM_MANAGER = "stream_manager"
TOPOLOGY_MASTER = "topology_master"


class ContainerProcess(NamedTuple):
    """A process that is to run in a container: its room, and the name of its log and title."""

    kind: str
    name: str
    component: str = ""
    task: int = 0


def standbys_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The containers of the masters that stand by at the beginning."""
    return tuple(range(FIRST_STANDBY, FIRST_STANDBY + setting(config, Keys.TOPOLOGY_MASTER_REPLICAS) - 1))


def containers_of(packing: PackingPlan, config: Mapping[str, Any]) -> tuple[int, ...]:
    """Every container of a topology."""
    return (MASTER_CONTAINER, *standbys_of(config), *(plan.container for plan in packing.containers))


def processes_in(container: int, packing: PackingPlan, config: Mapping[str, Any]) -> tuple[ContainerProcess, ...]:
    """What heron_container starts in a container, in order. Raises KeyError for one that the topology has not."""
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
    """What people are shown of a number: ``3``, ``100001 (standby)``."""
    return f"{container} (standby)" if container >= FIRST_STANDBY else str(container)


def listed(containers: tuple[int, ...]) -> str:
    """Numbers in order, the first twenty of them."""
    shown = ", ".join(map(str, sorted(containers)[:20]))
    return shown + (", …" if len(containers) > 20 else "")


DEFAULT_BYTES = 4 * GiB
BYTES_A_FILE = 16 * 1024  # one inode for so many bytes: what ext4 makes, so that files run out no sooner than bytes
LEAST_FILES = 10_000


def volume_bytes(config: Mapping[str, Any], packing: PackingPlan) -> int:
    """What is granted: as stated (``topology.volume.disk``), or what its containers ask for, at least 4 GiB."""
    stated = setting(config, Keys.TOPOLOGY_VOLUME_DISK)
    asked = sum(plan.resources.disk_bytes for plan in packing.containers)
    return max(DEFAULT_BYTES, asked) if stated is None else stated


def volume_files(granted_bytes: int) -> int:
    """How many files and folders these bytes may be."""
    return max(LEAST_FILES, granted_bytes // BYTES_A_FILE)

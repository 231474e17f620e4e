"""Granted plans of submissions, stored out of their reach, and the quota of a cluster.

Definition and packing plan of a submission are kept in its folder as they were accepted. A scheduler whose containers
cannot reach that folder carries out only this plan. Changes that a topology makes to its record in the state store do
not have an effect. The folders are also the ledger of the cluster: the sum of all grants, including submissions in
progress, stays within the quota.

A grant counts the resources of the packing plan, of a container for the topology master and for each standby, and the
volume of user code. The memory and half a core of Heronry's own processes are not counted (``container_spec``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heron_control.schedulers.topology_folder import TOPOLOGIES, Homes
from heron_runtime.failures import NotAllowed
from heron_runtime.files import entries, replace_file
from heron_runtime.model.containers import MASTER_RESOURCES, containers_of, standbys_of, volume_bytes
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import MiB
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.wire import store_codecs as codec
from heron_runtime.wire.errors import MalformedMessage

DEFINITION_FILE, PLAN_FILE = "definition.granted", "packing-plan.granted"


class QuotaSpent(NotAllowed):
    """Raised if a submission exceeds the cluster's quota."""

    cure = (
        "Kill a topology, request less (topology.component.rammap, topology.component.cpumap, topology.volume.disk), "
        "or raise the quota."
    )


@dataclass(frozen=True, slots=True)
class Granted:
    """Definition and packing plan as they were accepted."""

    definition: TopologyDefinition
    packing: PackingPlan


@dataclass(frozen=True, slots=True)
class Amount:
    """Cores, bytes of memory, containers, bytes in volumes."""

    cores: float = 0.0
    ram_bytes: int = 0
    containers: int = 0
    disk_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.cores + other.cores,
            self.ram_bytes + other.ram_bytes,
            self.containers + other.containers,
            self.disk_bytes + other.disk_bytes,
        )


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits on the sum of all grants of a cluster, and on the named checkpoints of each role; None means unlimited."""

    cores: float | None = None
    ram_bytes: int | None = None
    containers: int | None = None
    disk_bytes: int | None = None
    checkpoint_bytes: int | None = None

    def check(self, granted: Iterable[Amount], wanted: Amount) -> None:
        """Check that ``wanted`` fits in addition to the amounts already ``granted``.

        Raises:
            QuotaSpent: A limit, named in the message, is exceeded.
        """
        so_far = sum(granted, Amount())
        for what, unit, most, has, asks in (
            ("cores", 1, self.cores, so_far.cores, wanted.cores),
            ("MiB of memory", MiB, self.ram_bytes, so_far.ram_bytes, wanted.ram_bytes),
            ("containers", 1, self.containers, so_far.containers, wanted.containers),
            ("MiB of disk", MiB, self.disk_bytes, so_far.disk_bytes, wanted.disk_bytes),
        ):
            if most is not None and has + asks > most:
                raise QuotaSpent(
                    f"the cluster grants {most / unit:g} {what} in total: {has / unit:g} are in use, and this topology "
                    f"requests {asks / unit:g}"
                )


def amount_of(granted: Granted) -> Amount:
    """Return the resources of a packing plan, the topology master, its standbys and the volume."""
    config, packing = granted.definition.config, granted.packing
    needs = [plan.resources for plan in packing.containers] + [MASTER_RESOURCES] * len(standbys_of(config))
    return Amount(
        sum(need.cpu for need in needs),
        sum(need.ram_bytes for need in needs),
        len(containers_of(packing, config)),
        volume_bytes(config, packing),
    )


def write_granted(folder: Path, granted: Granted) -> None:
    """Write a grant into a topology's folder.

    Raises:
        OSError: A file cannot be written.
    """
    replace_file(folder / DEFINITION_FILE, codec.TOPOLOGY.encode(granted.definition), 0o400)
    replace_file(folder / PLAN_FILE, codec.PACKING_PLAN.encode(granted.packing), 0o400)


def read_granted(folder: Path) -> Granted | None:
    """Return the grant in a topology's folder, or None if it is missing or unreadable."""
    try:
        return Granted(
            codec.TOPOLOGY.decode((folder / DEFINITION_FILE).read_bytes()),
            codec.PACKING_PLAN.decode((folder / PLAN_FILE).read_bytes()),
        )
    except (OSError, MalformedMessage):
        return None


def all_granted(homes: Homes, apart_from: Path) -> Iterator[Amount]:
    """Yield the grants of all folders of the cluster, including staged ones, except ``apart_from``."""
    folders = [homes.root / TOPOLOGIES / homes.cluster]
    for _ in ("role", "environ", "topology"):
        folders = [entry for folder in folders for entry in entries(folder)]
    for folder in folders:
        granted = read_granted(folder) if folder != apart_from else None
        if granted is not None:
            yield amount_of(granted)

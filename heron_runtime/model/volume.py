"""How much user code may keep in the volume that the containers of its topology share, where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import GiB, Keys, setting

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

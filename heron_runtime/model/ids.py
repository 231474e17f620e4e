"""Names and numbers of tasks, containers, instances and roots.

* A **task** has a topology-wide id from 1 up. Containers with tasks are numbered from 1 up. Container 0 holds the
  topology master, and containers from ``FIRST_STANDBY`` up hold its standbys.
* An **instance** is the process of a task: ``container_<N>_<component>_<task>``.
* A **root** is the 64-bit id of a tracked spout tuple: task (16 bits) | incarnation (16) | sequence (32, wraps). These
  are the low bits of the *incarnation* of the spout's process, which increases with each start. They almost always
  suffice to recognize a verdict for a dead process; where certainty is required, the whole incarnation is compared
  (``docs/decisions/incarnations.md``).
"""

from __future__ import annotations

import re
from typing import NamedTuple

PROTOCOL_VERSION = 2
MASTER_CONTAINER = 0
FIRST_STANDBY = 100_001
MAX_TASK = (1 << 16) - 1
KEY_GROUPS = 1024  # per component that is grouped by fields or has keyed state
SEQUENCE_BITS = 32
SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1
_SPREAD = 0x9E3779B1  # odd, near 2**32 divided by the golden ratio: multiples are far apart
DEFAULT_STREAM = "default"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")


def is_safe_name(name: str) -> bool:
    """Return True if ``name`` is valid without escaping in file names, state-store paths and metric labels."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def instance_id(container: int, component: str, task: int) -> str:
    """Return the name of an instance in Heron's format: ``container_1_word_3``."""
    return f"container_{container}_{component}_{task}"


def holds_master(container: int) -> bool:
    """Return True for container 0 and the containers of standbys. All others hold tasks."""
    return container == MASTER_CONTAINER or container >= FIRST_STANDBY


def container_name(container: int) -> str:
    """Return the process name of a container's ``heron_container``."""
    return f"heron_container-{container}"


class InstanceName(NamedTuple):
    """Parts of an instance id."""

    container: int
    component: str
    task: int


def parse_instance_id(name: str) -> InstanceName:
    """Split an instance id into its parts. Raises ValueError if ``name`` is invalid."""
    match = re.fullmatch(r"container_(\d+)_(.+)_(\d+)", name)
    if match is None:
        raise ValueError(f"not an instance id: {name!r} (expected container_<N>_<component>_<task>)")
    return InstanceName(int(match[1]), match[2], int(match[3]))


def root_base(task: int, incarnation: int) -> int:
    """Return the root with sequence number 0 of a spout task and incarnation."""
    return (task << 48) | ((incarnation & 0xFFFF) << SEQUENCE_BITS)


def first_sequence(incarnation: int) -> int:
    """Return the first sequence number of the roots of a process.

    It is far from that of other incarnations with the same low 16 bits, so that late messages about roots of one do not
    match roots of the other.
    """
    return ((incarnation >> 16) * _SPREAD) & SEQUENCE_MASK


def root_task(root: int) -> int:
    """Return the spout task that emitted this root."""
    return root >> 48


def root_sequence(root: int) -> int:
    """Return the 32-bit sequence number of this root."""
    return root & SEQUENCE_MASK

"""Names and numbers that identify things, and how they are spelled.

* A **task** has a topology-wide id from 1 up; the container that holds tasks is numbered from 1 up; container 0 holds
  the topology master, containers from ``FIRST_STANDBY`` up its standbys.
* An **instance** is the process of a task: ``container_<N>_<component>_<task>``.
* A **root** is the 64-bit id of a tracked spout tuple: task (16 bits) | incarnation (16) | sequence (32, wraps). These
  are the low bits of the *incarnation* of the spout's process, which is greater at each start; a verdict for a dead
  process is recognised by them nearly always, and by the whole where it must be (``docs/decisions/incarnations.md``).
"""

from __future__ import annotations

import re
from typing import NamedTuple

PROTOCOL_VERSION = 2
MASTER_CONTAINER = 0
FIRST_STANDBY = 100_001
MAX_TASK = (1 << 16) - 1
KEY_GROUPS = 1024  # of each component that is grouped by fields, or keeps keyed state
SEQUENCE_BITS = 32
SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1
_SPREAD = 0x9E3779B1  # odd, near 2**32 by the golden ratio: multiples lie far apart
DEFAULT_STREAM = "default"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")


def is_safe_name(name: str) -> bool:
    """True if ``name`` may stand in a file name, a state-store path and a metric label as it is."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def instance_id(container: int, component: str, task: int) -> str:
    """The instance's name, as Heron spells it: ``container_1_word_3``."""
    return f"container_{container}_{component}_{task}"


def holds_master(container: int) -> bool:
    """True for container 0 and those of standbys; the others hold tasks."""
    return container == MASTER_CONTAINER or container >= FIRST_STANDBY


def container_name(container: int) -> str:
    """The process name of a container's ``heron_container``."""
    return f"heron_container-{container}"


class InstanceName(NamedTuple):
    """The parts of an instance id."""

    container: int
    component: str
    task: int


def parse_instance_id(name: str) -> InstanceName:
    """Split an instance id. Raises ValueError when ``name`` is not one."""
    match = re.fullmatch(r"container_(\d+)_(.+)_(\d+)", name)
    if match is None:
        raise ValueError(f"not an instance id: {name!r} (expected container_<N>_<component>_<task>)")
    return InstanceName(int(match[1]), match[2], int(match[3]))


def root_base(task: int, incarnation: int) -> int:
    """The root of sequence number 0 of this spout task and incarnation."""
    return (task << 48) | ((incarnation & 0xFFFF) << SEQUENCE_BITS)


def first_sequence(incarnation: int) -> int:
    """Where a process begins to number its roots: far from where another began whose roots show the same incarnation,
    so that what is still said of those strikes none of these."""
    return ((incarnation >> 16) * _SPREAD) & SEQUENCE_MASK


def root_task(root: int) -> int:
    """The spout task that emitted this root."""
    return root >> 48


def root_sequence(root: int) -> int:
    """The 32-bit sequence number of this root."""
    return root & SEQUENCE_MASK

"""A process of a topology on a node of its Slurm job: the address it publishes, and its own runtime folder there.

The folder that nodes share holds one ``launch.json``. What differs from node to node is filled in here: the address,
which is what Slurm knows the node by, and the runtime folder. Each container has a runtime folder
of its own, so that it can remove it at its end whoever else is on the node.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from heron_control.schedulers.runtime import make_runtime_dir, runtime_dir
from heron_runtime.failures import Failure
from heron_runtime.files import replace_file
from heron_runtime.launch import Launch

RUN_FILE = "run"  # in the topology's folder: which run of its job is the last one
RUN = "HERONRY_RUN"  # in the environment of a job's processes: which run is theirs
NODES_FILE = "nodes.json"  # in the topology's folder


def node_name() -> str:
    """Which node of the job this process runs on. Raises Failure outside of a job."""
    name = os.environ.get("SLURMD_NODENAME", "")
    if not name:
        raise Failure("this process is not in a Slurm job: its script is what `heron submit` gives to sbatch")
    return name


def write_nodes(folder: Path, addresses: Mapping[str, str]) -> None:
    """Into the topology's folder: node to address. Raises OSError."""
    replace_file(folder / NODES_FILE, json.dumps(dict(addresses)), 0o600)


def read_nodes(folder: Path) -> dict[str, str]:
    """Raises OSError, ValueError."""
    found: dict[str, str] = json.loads((folder / NODES_FILE).read_text())
    return found


def launch_on(launch: Launch, addresses: Mapping[str, str], node: str, container: int | None = None) -> Launch:
    """The launch of a container, or of the scheduler, on this node."""
    host = addresses.get(node, node)
    own = "" if container is None else str(runtime_dir(f"{launch.topology_id}/{container}"))
    return replace(launch, host=host, bind=host if _is_address(host) else "0.0.0.0", runtime_dir=own)


def is_replaced(launch: Launch) -> bool:
    """True if this process belongs to a run of the job that Slurm has given up: it was put back into the queue because
    a node did not answer, and runs again. What is left of the old run on that node has to go."""
    mine = os.environ.get(RUN)
    try:
        return mine is not None and Path(launch.home, RUN_FILE).read_text() != mine
    except OSError:
        return False  # killed, or the file system does not answer


def settle(launch: Launch) -> None:
    """Make the runtime folder. Raises NotAllowed, Failure."""
    make_runtime_dir(Path(launch.runtime_dir))


def _is_address(host: str) -> bool:
    """A name may mean the loopback to the node itself (Debian's 127.0.1.1), and something else to others."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

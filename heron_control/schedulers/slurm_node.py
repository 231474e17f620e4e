"""Launch of a topology's process on a node of its Slurm job: the published address and the local runtime folder.

The folder that the nodes share holds a single ``launch.json``. This module fills in the values that differ between
nodes: the address, which is the one by which Slurm knows the node, and the runtime folder. Each container has a
runtime folder of its own, so that it can remove the folder at its end while other containers use the node.
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

RUN_FILE = "run"  # in the topology's folder: the latest run of its job
RUN = "HERONRY_RUN"  # in the environment of a job's processes: their run
NODES_FILE = "nodes.json"  # in the topology's folder


def node_name() -> str:
    """Return the name of the node on which this process runs.

    Raises:
        Failure: This process is not in a Slurm job.
    """
    name = os.environ.get("SLURMD_NODENAME", "")
    if not name:
        raise Failure("this process is not in a Slurm job: its script is what `heron submit` gives to sbatch")
    return name


def write_nodes(folder: Path, addresses: Mapping[str, str]) -> None:
    """Write the address of each node into the topology's folder.

    Raises:
        OSError: The file cannot be written.
    """
    replace_file(folder / NODES_FILE, json.dumps(dict(addresses)), 0o600)


def read_nodes(folder: Path) -> dict[str, str]:
    """Return the address of each node from the topology's folder.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is invalid.
    """
    nodes: dict[str, str] = json.loads((folder / NODES_FILE).read_text())
    return nodes


def launch_on(launch: Launch, addresses: Mapping[str, str], node: str, container: int | None = None) -> Launch:
    """Return the launch of a container on this node, or of the scheduler if ``container`` is None."""
    host = addresses.get(node, node)
    own = "" if container is None else str(runtime_dir(f"{launch.topology_id}/{container}"))
    return replace(launch, host=host, bind=host if _is_address(host) else "0.0.0.0", runtime_dir=own)


def is_replaced(launch: Launch) -> bool:
    """Return True if this process belongs to a run of the job that Slurm has given up.

    Slurm requeues a job if a node does not answer, and runs it again. The processes of the old run on that node must
    end.
    """
    mine = os.environ.get(RUN)
    try:
        return mine is not None and Path(launch.home, RUN_FILE).read_text() != mine
    except OSError:
        return False  # the topology was killed, or the file system does not answer


def settle(launch: Launch) -> None:
    """Create the runtime folder.

    Raises:
        NotAllowed: The folder exists and is not private to this user.
        Failure: The path is too long for Unix sockets.
    """
    make_runtime_dir(Path(launch.runtime_dir))


def _is_address(host: str) -> bool:
    """Return True for an IP address.

    A node may resolve its own name to the loopback interface (Debian's 127.0.1.1), while other nodes resolve it to
    something else.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

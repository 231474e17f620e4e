"""Paths of nodes in the state store, which follow Heron's tree.

A node that the control plane writes is ``/kind/TOPOLOGY``. Nodes that a topology's own processes write are in a folder
of the topology in each kind, ``/kind/TOPOLOGY/which``, so that rights can be granted for that folder alone.
"""

from __future__ import annotations

TOPOLOGIES = "/topologies"
PACKING_PLANS = "/packingplans"
PHYSICAL_PLANS = "/pplans"
EXECUTION_STATES = "/executionstate"
MASTERS = "/tmanagers"
SCHEDULERS = "/schedulers"
CONTAINERS = "/containers"
API_SERVERS = "/apiservers"


def api_server(cluster: str) -> str:
    """Return the path of the leading API server of a cluster with several (ephemeral)."""
    return f"{API_SERVERS}/{cluster}"


def topology(name: str) -> str:
    """Return the path of the definition as submitted."""
    return f"{TOPOLOGIES}/{name}"


def packing_plan(name: str) -> str:
    """Return the path of the packing plan."""
    return f"{PACKING_PLANS}/{name}"


def execution_state(name: str) -> str:
    """Return the path of the submission (`ExecutionState`). A topology exists if this node does."""
    return f"{EXECUTION_STATES}/{name}"


def masters(name: str) -> str:
    """Return the folder of the topology masters."""
    return f"{MASTERS}/{name}"


def master(name: str) -> str:
    """Return the path of the acting master's address (ephemeral)."""
    return f"{masters(name)}/acting"


def epoch(name: str) -> str:
    """Return the path of the highest epoch won."""
    return f"{masters(name)}/epoch"


def wanted_state(name: str) -> str:
    """Return the path of the state that the user has requested since the submission."""
    return f"{masters(name)}/wanted"


def checkpoints(name: str) -> str:
    """Return the path of the checkpoint record of a stateful topology.

    It holds the generation, the newest checkpoint number assigned and the last complete checkpoint.
    """
    return f"{masters(name)}/checkpoints"


def physical_plans(name: str) -> str:
    """Return the folder of the physical plan."""
    return f"{PHYSICAL_PLANS}/{name}"


def physical_plan(name: str) -> str:
    """Return the path of the newest physical plan."""
    return f"{physical_plans(name)}/newest"


def schedulers(name: str) -> str:
    """Return the folder of the scheduler."""
    return f"{SCHEDULERS}/{name}"


def scheduler(name: str) -> str:
    """Return the path of the scheduler's address (ephemeral)."""
    return f"{schedulers(name)}/acting"


def containers(name: str) -> str:
    """Return the folder of the containers."""
    return f"{CONTAINERS}/{name}"


def container(name: str, number: int) -> str:
    """Return the path of the address of a container's ``heron_container`` (ephemeral)."""
    return f"{containers(name)}/{number}"


def identity_node() -> str:
    """Return the path of the identity of the store's contents, which nothing removes (ZooKeeper)."""
    return "/store/identity"


def older_epochs() -> str:
    """Return the folder of all epochs in the older layout without folders per topology. It identifies that layout."""
    return "/epochs"


def folders(name: str) -> tuple[str, ...]:
    """Return all folders of a topology."""
    return masters(name), physical_plans(name), containers(name), schedulers(name)

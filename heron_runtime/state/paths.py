"""Where things stand in the state store: Heron's tree.

A node that the control plane writes is ``/kind/TOPOLOGY``. What a topology's own processes write stands in a folder of
its own in each kind, ``/kind/TOPOLOGY/which``, so that rights can be given for that folder alone.
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
    """Which of a cluster's api servers leads, where there may be several (ephemeral)."""
    return f"{API_SERVERS}/{cluster}"


def topology(name: str) -> str:
    """The definition, as submitted."""
    return f"{TOPOLOGIES}/{name}"


def packing_plan(name: str) -> str:
    """The packing plan."""
    return f"{PACKING_PLANS}/{name}"


def execution_state(name: str) -> str:
    """Node of the submission (`ExecutionState`). A topology exists if this node does."""
    return f"{EXECUTION_STATES}/{name}"


def masters(name: str) -> str:
    """The folder of its topology masters."""
    return f"{MASTERS}/{name}"


def master(name: str) -> str:
    """Where the acting master is (ephemeral)."""
    return f"{masters(name)}/acting"


def epoch(name: str) -> str:
    """The highest epoch won."""
    return f"{masters(name)}/epoch"


def wanted_state(name: str) -> str:
    """The state the user wants, once he has asked for another than at submit."""
    return f"{masters(name)}/wanted"


def checkpoints(name: str) -> str:
    """Generation, newest number given out and last complete checkpoint, where the state of tasks is kept."""
    return f"{masters(name)}/checkpoints"


def physical_plans(name: str) -> str:
    """The folder of its physical plan."""
    return f"{PHYSICAL_PLANS}/{name}"


def physical_plan(name: str) -> str:
    """The newest physical plan."""
    return f"{physical_plans(name)}/newest"


def schedulers(name: str) -> str:
    """The folder of its scheduler."""
    return f"{SCHEDULERS}/{name}"


def scheduler(name: str) -> str:
    """Where the scheduler is (ephemeral)."""
    return f"{schedulers(name)}/acting"


def containers(name: str) -> str:
    """The folder of its containers."""
    return f"{CONTAINERS}/{name}"


def container(name: str, number: int) -> str:
    """Where a container's ``heron_container`` listens (ephemeral)."""
    return f"{containers(name)}/{number}"


def older_epochs() -> str:
    """Where the epochs of all topologies stood before each had folders of its own: the mark of that layout."""
    return "/epochs"


def folders(name: str) -> tuple[str, ...]:
    """All folders of a topology."""
    return masters(name), physical_plans(name), containers(name), schedulers(name)

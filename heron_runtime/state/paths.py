"""Where things stand in the state store: Heron's tree, each child named after its topology."""

from __future__ import annotations

TOPOLOGIES = "/topologies"
PACKING_PLANS = "/packingplans"
PHYSICAL_PLANS = "/pplans"
EXECUTION_STATES = "/executionstate"
MASTERS = "/tmanagers"
EPOCHS = "/epochs"
SCHEDULERS = "/schedulers"
CONTAINERS = "/containers"
LOCKS = "/locks"


def topology(name: str) -> str:
    """The definition, as submitted."""
    return f"{TOPOLOGIES}/{name}"


def packing_plan(name: str) -> str:
    """The packing plan."""
    return f"{PACKING_PLANS}/{name}"


def physical_plan(name: str) -> str:
    """The newest physical plan."""
    return f"{PHYSICAL_PLANS}/{name}"


def execution_state(name: str) -> str:
    """Who, when, where, and the state the user wants."""
    return f"{EXECUTION_STATES}/{name}"


def master(name: str) -> str:
    """Where the acting master is (ephemeral)."""
    return f"{MASTERS}/{name}"


def epoch(name: str) -> str:
    """The highest epoch won."""
    return f"{EPOCHS}/{name}"


def scheduler(name: str) -> str:
    """Where the scheduler is (ephemeral)."""
    return f"{SCHEDULERS}/{name}"


def container(name: str, number: int) -> str:
    """Where a container's ``heron_container`` listens (ephemeral)."""
    return f"{CONTAINERS}/{name}.{number}"


def lock(name: str, purpose: str) -> str:
    """A lock (ephemeral)."""
    return f"{LOCKS}/{name}__{purpose}"

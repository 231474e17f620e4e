"""Topologies in the state store: submit, update, kill, read and list. Each change is one transaction.

A topology exists if its node `execution_state` does; it is created first and read first. A record is read again if the
topology was killed and submitted again meanwhile, so that all its parts belong to one submission.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from heron_runtime.failures import ExistsAlready, NotFound
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.records import ContainerLocation, ExecutionState, TopologyRecord
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heron_runtime.state import paths
from heron_runtime.state.store import (
    MAX_OPERATIONS,
    AnswerLost,
    Bounded,
    Check,
    Create,
    Delete,
    Foldered,
    Node,
    NodeExists,
    Operation,
    Right,
    Set,
    StateStore,
    StoreError,
    StoreUnavailable,
    TransactionFailed,
)
from heron_runtime.wire import store_codecs as codec
from heron_runtime.wire.errors import MalformedMessage


class DamagedNode(StoreError):
    """A node holds data that this version cannot decode."""


def read_each(store: StateStore, paths: Sequence[str]) -> Sequence[Node | StoreError | None]:
    """Read nodes like the store's ``get_all``, but return the error of each node that cannot be read.

    Raises:
        StoreUnavailable: The store does not answer.
    """

    def alone(path: str) -> Node | StoreError | None:
        try:
            return store.get(path)
        except StoreUnavailable:
            raise
        except StoreError as error:
            return error

    try:
        return store.get_all(paths)
    except StoreUnavailable:
        raise
    except StoreError:
        return [alone(path) for path in paths]


def decoded(path: str, node: Node | StoreError | None, codec: Any) -> Any:
    """Decode `node`; None if it is missing. Raises DamagedNode, or the StoreError in its place."""
    if isinstance(node, StoreError):
        raise node
    if node is None:
        return None
    try:
        return codec.decode(node.data)
    except MalformedMessage as error:
        raise DamagedNode(f"{path} cannot be read: {error}. Was it written by another version?") from error


ATTEMPTS = 20
LOST_ANSWER_SECS = 30.0  # a store that has lost its leader or servers usually recovers within this time
LOOK_AGAIN_SECS = 0.2

log = logging.getLogger(__name__)
T = TypeVar("T")


class AlreadyExists(StoreError, ExistsAlready):
    """A topology of this name exists."""

    cure = "Kill it first, submit with --replace, or choose another --name."

    def __init__(self, name: str) -> None:
        super().__init__(f"topology {name!r} exists already")
        self.name = name


class NoSuchTopology(StoreError, NotFound):
    """A topology of this name does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown topology {name!r}")
        self.name = name


class ChangedMeanwhile(StoreError, ExistsAlready):
    """Another client has changed the topology concurrently, so this change is refused."""

    cure = "Look at it with `heron status`, and try again."


class OlderLayout(StoreError):
    """The store contains running topologies of an earlier release, which this release cannot take over."""

    cure = "Start the release that submitted them, kill them there, and submit them to this one."


def _persistent(name: str) -> list[str]:
    return [
        paths.execution_state(name),
        paths.topology(name),
        paths.packing_plan(name),
        paths.physical_plan(name),
        paths.epoch(name),
        paths.wanted_state(name),
        paths.checkpoints(name),
    ]


def _there(store: StateStore, nodes: list[str]) -> list[str]:
    return [path for path, node in zip(nodes, store.get_all(nodes), strict=True) if node is not None]


def submit(
    store: StateStore, definition: TopologyDefinition, packing: PackingPlan, execution_state: ExecutionState
) -> None:
    """Write a new topology. Raises AlreadyExists, StoreError.

    The same transaction removes leftover nodes that the master of a killed topology of this name wrote last.
    """
    name = definition.name

    def attempt() -> None:
        if _topology_id(name, store.get(paths.execution_state(name))) == definition.id:
            return  # done by an attempt whose answer was lost
        leftovers = _there(store, _persistent(name)[1:])
        # The first operation decides: it fails with NodeExists if the topology is there.
        first, *others = _creation(definition, packing, execution_state)
        store.commit([first, *(Delete(path) for path in leftovers), *others])

    def final(error: TransactionFailed) -> Exception | None:
        return AlreadyExists(name) if isinstance(error, NodeExists) and error.index == 0 else None

    _repeat(attempt, final)


@dataclass(frozen=True, slots=True)
class PlanVersions:
    """Versions of the nodes that an update replaces, and of the node that marks the topology as existing."""

    execution: int
    definition: int
    packing: int


def plan_versions(store: StateStore, name: str) -> PlanVersions:
    """Return the current versions. Call this before reading the record from which an update is planned.

    Raises:
        NoSuchTopology: The topology does not exist.
        StoreError: The store cannot be read.
    """
    nodes = store.get_all([paths.execution_state(name), paths.topology(name), paths.packing_plan(name)])
    if any(node is None for node in nodes):
        raise NoSuchTopology(name)
    return PlanVersions(*(node.version for node in nodes if node is not None))


def update(
    store: StateStore, definition: TopologyDefinition, packing: PackingPlan, versions: PlanVersions
) -> PlanVersions:
    """Replace definition and packing plan of a running topology.

    Args:
        store: The state store.
        definition: New definition.
        packing: New packing plan.
        versions: Expected current versions.

    Returns:
        The new versions.

    Raises:
        ChangedMeanwhile: The nodes have other versions.
        ValueTooLarge: The store does not accept values of this size.
        StoreError: The store cannot be read or written.
    """
    name = definition.name
    data = codec.TOPOLOGY.encode(definition), codec.PACKING_PLAN.encode(packing)
    operations: list[Operation] = [
        Check(paths.execution_state(name), versions.execution),
        Set(paths.topology(name), data[0], versions.definition),
        Set(paths.packing_plan(name), data[1], versions.packing),
    ]
    if isinstance(store, Bounded):
        store.check_size(operations)

    def attempt() -> PlanVersions:
        now = plan_versions(store, name)
        after = PlanVersions(versions.execution, versions.definition + 1, versions.packing + 1)
        if now == after and _data(store, paths.packing_plan(name)) == data[1]:
            return after  # done by an attempt whose answer was lost
        if now != versions:
            raise ChangedMeanwhile(f"topology {name!r} was changed concurrently")
        store.commit(operations)
        return after

    return _repeat(attempt)


def _data(store: StateStore, path: str) -> bytes:
    node = store.get(path)
    return b"" if node is None else node.data


def check_size(
    store: StateStore, definition: TopologyDefinition, packing: PackingPlan, execution_state: ExecutionState
) -> None:
    """Raise ValueTooLarge if the topology is too large for the store. Call this before a submission starts."""
    if isinstance(store, Bounded):
        store.check_size(_creation(definition, packing, execution_state))


def _creation(definition: TopologyDefinition, packing: PackingPlan, execution_state: ExecutionState) -> list[Operation]:
    name = definition.name
    return [
        Create(paths.execution_state(name), codec.EXECUTION_STATE.encode(execution_state)),
        Create(paths.topology(name), codec.TOPOLOGY.encode(definition)),
        Create(paths.packing_plan(name), codec.PACKING_PLAN.encode(packing)),
    ]


def kill(store: StateStore, name: str, topology_id: str | None = None) -> bool:
    """Delete all persistent nodes of a topology. Idempotent. Raises StoreError.

    Args:
        store: The state store.
        name: Name of the topology.
        topology_id: Kill only this submission, not a later one of the same name.

    Returns:
        False if the topology did not exist.
    """
    was_there = False

    def attempt() -> bool:
        nonlocal was_there
        execution = store.get(paths.execution_state(name))
        if topology_id is not None and _topology_id(name, execution) != topology_id:
            return was_there
        was_there = was_there or execution is not None
        here = _there(store, _persistent(name))
        if not here:
            return was_there
        operations: list[Operation] = [Delete(path) for path in here]
        if execution is not None:
            operations.insert(0, Check(paths.execution_state(name), execution.version))
        store.commit(operations)
        return was_there

    return _repeat(attempt)


def clear(store: StateStore, name: str) -> None:
    """Remove all nodes that processes of a topology left in its folders. Raises StoreError.

    This includes nodes of sessions that are still alive. Only for a topology without running processes, which would
    create their nodes again.
    """
    if isinstance(store, Foldered):
        for folder in paths.folders(name):
            store.remove_folder(folder)
    else:
        _repeat(partial(_empty, store, name))


def _empty(store: StateStore, name: str) -> None:
    nodes = [f"{folder}/{child}" for folder in paths.folders(name) for child in store.children(folder)]
    store.commit(
        [Delete(path) for path in nodes[: MAX_OPERATIONS - 1]]
    )  # one for a leader's fence; nodes of the dead go with any transaction


def clear_orphans(store: StateStore) -> None:
    """Remove leftover nodes of topologies that no longer exist. Raises StoreError."""
    kinds = (paths.MASTERS, paths.PHYSICAL_PLANS, paths.CONTAINERS, paths.SCHEDULERS)
    names = {name for kind in kinds for name in store.children(kind)}
    for name in sorted(names - set(store.children(paths.EXECUTION_STATES))):
        log.info("removing what is left of %s in the state store", name)
        clear(store, name)


def check_layout(store: StateStore) -> None:
    """Raise OlderLayout if the store contains topologies of an earlier release, whose processes use other paths."""
    older = set(store.children(paths.older_epochs())) & set(store.children(paths.EXECUTION_STATES))
    if older:
        raise OlderLayout(f"the state store holds topologies of an earlier release: {', '.join(sorted(older))}")


def admit(store: StateStore, name: str, identity: str, *, schedules: bool) -> None:
    """Let the processes of a topology read its definition and plan, and write to its own folders.

    Idempotent.

    Args:
        store: The state store.
        name: Name of the topology.
        identity: ACL entry of the topology.
        schedules: The scheduler is a process of the topology, not of the control plane.

    Raises:
        StoreError: The store cannot be written.
    """
    if not isinstance(store, Foldered):
        return
    for path in (paths.execution_state(name), paths.topology(name), paths.packing_plan(name)):
        store.grant(path, identity, Right.READ)
    for folder in (paths.masters(name), paths.physical_plans(name), paths.containers(name)):
        store.grant(folder, identity, Right.WORK)
    if schedules:
        store.grant(paths.schedulers(name), identity, Right.WORK)


def read_plans(store: StateStore, name: str) -> tuple[TopologyDefinition, PackingPlan]:
    """Return definition and packing plan of one submission. Raises NoSuchTopology, StoreError."""
    _, definition, packing = _submitted(store, name)
    return definition, packing


def read_topology(store: StateStore, name: str) -> TopologyRecord:
    """Read all records of one topology. Raises NoSuchTopology, StoreError."""
    execution, definition, packing = _submitted(store, name)
    places = paths.physical_plan(name), paths.master(name), paths.scheduler(name)
    wanted, *others = read_each(store, [paths.wanted_state(name), *places])
    physical, master, scheduler = map(
        decoded, places, others, (codec.PHYSICAL_PLAN, codec.MASTER_LOCATION, codec.SCHEDULER_LOCATION)
    )
    if physical is not None and physical.topology.id != definition.id:
        physical = None
    return TopologyRecord(
        definition,
        packing,
        physical,
        _with_wanted(execution, wanted),
        _here(master, definition.id),
        _here(scheduler, definition.id),
        tuple(c for c in containers(store, name) if c.topology_id == definition.id),
    )


def _submitted(store: StateStore, name: str) -> tuple[ExecutionState, TopologyDefinition, PackingPlan]:
    """Read the nodes that the control plane has written, all of one submission."""
    places = paths.execution_state(name), paths.topology(name), paths.packing_plan(name)
    for _ in range(ATTEMPTS):
        nodes = store.get_all(places)
        execution = decoded(places[0], nodes[0], codec.EXECUTION_STATE)
        if execution is None:
            raise NoSuchTopology(name)
        if execution.topology != name:
            raise StoreError(f"the record of topology {name!r} is that of {execution.topology[:64]!r}: it was forged")
        definition = decoded(places[1], nodes[1], codec.TOPOLOGY)
        packing = decoded(places[2], nodes[2], codec.PACKING_PLAN)
        if definition is None or packing is None or definition.id != execution.topology_id:
            continue  # killed, and perhaps submitted again, between two reads
        if definition.name != name:
            raise StoreError(f"the definition of topology {name!r} is that of {definition.name[:64]!r}: it was forged")
        return execution, definition, packing
    raise StoreError(f"the record of topology {name!r} is not complete; kill it and submit it again")


def containers(store: StateStore, name: str) -> tuple[ContainerLocation, ...]:
    """Read the addresses of the containers of ``name``, in order of number, of any submission."""
    numbers = sorted(int(child) for child in store.children(paths.containers(name)) if child.isdecimal())
    places = [paths.container(name, n) for n in numbers]
    locations = (decoded(*one, codec.CONTAINER_LOCATION) for one in zip(places, store.get_all(places), strict=True))
    return tuple(location for location in locations if location is not None)


def list_topologies(store: StateStore) -> tuple[ExecutionState, ...]:
    """Read the execution states of all topologies, in order of names. Unreadable ones are logged and left out.

    Raises:
        StoreUnavailable: The store does not answer. The result is never incomplete for this reason.
    """
    names = store.children(paths.EXECUTION_STATES)
    places = [paths.execution_state(name) for name in names]
    executions, wanted = read_each(store, places), read_each(store, [paths.wanted_state(name) for name in names])
    states = []
    for name, place, execution, wanted_node in zip(names, places, executions, wanted, strict=True):
        try:
            state = decoded(place, execution, codec.EXECUTION_STATE)
        except StoreError as error:
            log.warning("%s", error)
            continue
        if state is not None and state.topology == name:
            states.append(_with_wanted(state, wanted_node))
        elif state is not None:
            log.warning("the record of topology %r is that of %r: it was forged", name, state.topology[:64])
    return tuple(states)


def with_wanted(execution: ExecutionState, wanted: Node | None) -> ExecutionState:
    """Return ``execution`` with the state that was requested last. Raises DamagedNode."""
    wanted_state = decoded(paths.wanted_state(execution.topology), wanted, codec.WANTED_STATE)
    if wanted_state is None:
        return execution
    if wanted_state.topology_id != execution.topology_id or wanted_state.state is TopologyState.KILLED:
        return execution  # it is of an earlier submission, or KILLED, which a topology cannot request for itself
    return replace(execution, state=wanted_state.state)


def _with_wanted(execution: ExecutionState, wanted: Node | StoreError | None) -> ExecutionState:
    """Apply the wanted state. If its node cannot be read, keep the stored execution state.

    The topology's own processes write that node, so a damaged one must not hide what the control plane wrote.
    """
    try:
        if isinstance(wanted, StoreError):
            raise wanted
        return with_wanted(execution, wanted)
    except StoreError as error:
        log.warning("the desired state of %s cannot be read: %s", execution.topology, error)
        return execution


def _topology_id(name: str, execution: Node | None) -> str | None:
    """Return the id of the topology, or None if it does not exist. Raises StoreError if the node cannot be read."""
    state = decoded(paths.execution_state(name), execution, codec.EXECUTION_STATE)
    return None if state is None else str(state.topology_id)


def _here(location: Any, topology_id: str) -> Any:
    """Return ``location``, or None if a process of an earlier submission published it."""
    return location if location is not None and location.topology_id == topology_id else None


def _repeat(attempt: Callable[[], T], final: Callable[[TransactionFailed], Exception | None] = lambda _: None) -> T:
    """Retry while other clients change the same nodes, and after a lost answer; bounded.

    Each attempt reads the current state first, so an attempt whose answer was lost is not repeated.
    """
    refused = 0
    deadline: float | None = None  # set once an answer was lost
    while True:
        try:
            return attempt()
        except TransactionFailed as error:
            known = final(error)
            if known is not None:
                raise known from error
            refused += 1
            if refused == ATTEMPTS:
                raise
        except StoreUnavailable as error:
            if deadline is None and isinstance(error, AnswerLost):
                deadline = time.monotonic() + LOST_ANSWER_SECS
            if deadline is None or time.monotonic() > deadline:
                raise
            log.warning("%s; looking again", error)
            time.sleep(LOOK_AGAIN_SECS)

"""Ending a topology of the ``local`` cluster, so that no process, socket or state is left.

The transaction comes first: scheduler and containers see it and stop by themselves. Then this waits until they are
gone, however they are found: by what they told before, by their titles and by their working folder. Whoever remains
after the grace time is killed by its id. A kill that was interrupted is finished by the next one.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import grpc

from heronry.cli.clusters import Talk
from heronry.failures import Failure, Interrupted, topology_not_found
from heronry.inspection.asking import Asker
from heronry.launch import Launch
from heronry.model.settings import setting
from heronry.schedulers.local import LocalScheduler
from heronry.schedulers.local_processes import processes_of
from heronry.schedulers.topology_folder import load_launch, remove_folder
from heronry.state import topologies
from heronry.state.store import StateStore, StoreError
from heronry.state.topologies import TopologyRecord

ASK_SECS = 1.0


def kill(
    store: StateStore,
    cluster: str,
    name: str,
    place: Path,
    record: TopologyRecord | None,
    talk: Talk,
    keep_logs: bool,
) -> None:
    """End ``name``, whose folder is ``place``, or finish an earlier kill of it.

    Raises NotFound, Interrupted, Failure, StoreError.
    """
    launch = _load_launch(place)
    pids = _ask_for_pids(record, launch)
    topology_id = record.definition.id if record else None
    try:
        was_there = topologies.kill(store, name, topology_id)
    except StoreError as error:
        if launch is None:
            raise
        # The store takes no writes (a full disk, for one). The processes end all the same, and the topology's folder,
        # which may be what fills the disk, goes; then the record is tried again.
        talk(f"{error}; ending the processes first")
        clean_up(launch, talk, pids, keep_logs=keep_logs, grace_secs=0.0)
        was_there = topologies.kill(store, name, topology_id)
    if not was_there and launch is None and record is None:
        known = [state.topology for state in topologies.list_topologies(store)]
        raise topology_not_found(name, cluster, known)
    try:
        if launch is not None:
            clean_up(launch, talk, pids, keep_logs=keep_logs)
        elif not keep_logs:
            shutil.rmtree(place, ignore_errors=True)
        store.commit([])  # ephemeral nodes of processes that died by force go with the next transaction
    except KeyboardInterrupt:
        raise Interrupted(
            f"{name} is killed, but something of it may still be stopping; `heron kill` again finishes that"
        ) from None


def clean_up(
    launch: Launch,
    talk: Talk,
    pids: Collection[int] = (),
    *,
    keep_logs: bool = False,
    grace_secs: float | None = None,
) -> None:
    """Wait for the processes of a topology whose killed state is written, end who remains, remove its folders.

    Raises Failure when a process does not even die by SIGKILL.
    """
    if grace_secs is None:
        grace_secs = setting(launch.settings, "heron.stop.grace.secs") + 5.0
    scheduler = LocalScheduler()
    if not scheduler.kill(launch, grace_secs, pids, talk):
        ids = ", ".join(str(process.pid) for process in processes_of(launch, pids))
        raise Failure(f"processes of {launch.topology} do not end: {ids}", "They may hang in the kernel; see `ps`.")
    scheduler.remove(launch)
    remove_folder(Path(launch.home), keep_logs=keep_logs)


def _ask_for_pids(record: TopologyRecord | None, launch: Launch | None) -> set[int]:
    """The processes as they stand before the kill; whoever does not answer is found otherwise."""
    if record is None:
        return set()
    pids = {location.pid for location in (record.scheduler, record.master, *record.containers) if location}
    if launch is not None:
        try:
            answers = Asker(launch.secret(), launch.topology_id, ASK_SECS).everybody(record)
        except (OSError, grpc.RpcError):
            return pids
        pids |= {process.pid for status in answers.containers.values() for process in status.processes}
    return pids - {0}


def _load_launch(place: Path) -> Launch | None:
    launch = load_launch(place)
    return launch if launch is not None and Path(launch.home) == place else None


def stale(store: StateStore) -> list[tuple[str, str]]:
    """(name, role/environ) of topologies that stand in the store while nothing of them lives."""
    found = []
    for state in topologies.list_topologies(store):
        try:
            record = topologies.read_topology(store, state.topology)
        except StoreError:
            found.append((state.topology, f"{state.role}/{state.environ}"))
            continue
        launch = _load_launch(Path(state.home))
        alive = record.scheduler is not None or record.containers or (launch is not None and processes_of(launch))
        if not alive:
            found.append((state.topology, f"{state.role}/{state.environ}"))
    return found

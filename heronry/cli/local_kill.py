"""Ending a topology of the ``local`` cluster, so that no process, socket or state is left.

The transaction comes first: scheduler and containers see it and stop by themselves. Then this waits until they are
gone, however they are found: by what they told before, by their titles and by their working folder. Whoever remains
after the grace time is killed by its id. A kill that was interrupted is finished by the next one.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from pathlib import Path

import grpc
import psutil

from heronry.cli.address import Address
from heronry.cli.ask import Asker
from heronry.cli.clusters import Talk
from heronry.cli.errors import CliError, Interrupted, topology_not_found
from heronry.cli.home import Home
from heronry.launch import Launch
from heronry.model.settings import setting
from heronry.schedulers.identity import process_title
from heronry.state import topologies
from heronry.state.store import StateStore, StoreError
from heronry.state.topologies import TopologyRecord

LAUNCH_FILE = "launch.json"
POLL_SECS = 0.1
KILL_WAIT_SECS = 5.0
ASK_SECS = 1.0
_RUNTIME_NAME = re.compile(r"[0-9a-f]{8}")


def kill(
    home: Home,
    store: StateStore,
    address: Address,
    name: str,
    record: TopologyRecord | None,
    talk: Talk,
    keep_logs: bool,
) -> None:
    """End ``name``, or finish an earlier kill of it. Raises NotFound, Interrupted, CliError, StoreError."""
    place = Path(record.execution.home) if record else home.topology(*address.parts, name)
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
        raise topology_not_found(name, address.cluster, known)
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

    Raises CliError when a process does not even die by SIGKILL.
    """
    if grace_secs is None:
        grace_secs = setting(launch.settings, "heron.stop.grace.secs") + 5.0
    talk("waiting for its processes to stop")
    remaining = _wait_gone(lambda: processes_of(launch, pids), grace_secs, talk)
    if remaining:
        talk(f"ending {len(remaining)} processes that did not stop by themselves")
        for process in remaining:
            try:
                process.kill()  # psutil checks that the id still means the same process
            except psutil.NoSuchProcess:
                continue
        remaining = _wait_gone(lambda: processes_of(launch, pids), KILL_WAIT_SECS, talk)
    if remaining:
        ids = ", ".join(str(process.pid) for process in remaining)
        raise CliError(f"processes of {launch.topology} do not end: {ids}", "They may hang in the kernel; see `ps`.")
    _remove_folders(launch, keep_logs)


def processes_of(launch: Launch, pids: Collection[int] = ()) -> list[psutil.Process]:
    """The living processes of this very submission.

    A process is ours if its title names the topology and either it told us its id or it works in the topology's folder
    (another home may run a topology of the same name), or if it was started with our launch file and has no title yet.
    """
    prefix = process_title(launch.topology, "")
    launch_file = str(Path(launch.home, LAUNCH_FILE))
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            titled = " ".join(command).startswith(prefix)
            known = titled and (process.pid in pids or _works_in(process, launch.home))
            ours = known or ("--launch", launch_file) in pairwise(command)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue  # it ended meanwhile, or belongs to somebody else
    return found


def _works_in(process: psutil.Process, home: str) -> bool:
    folder = process.cwd().removesuffix(" (deleted)")
    return folder == home or folder.startswith(home + "/")


def _wait_gone(
    look: Callable[[], list[psutil.Process]], timeout_secs: float, talk: Talk
) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout_secs
    while True:
        remaining = look()
        if not remaining or time.monotonic() > deadline:
            return remaining
        talk(f"waiting for {len(remaining)} processes to stop")
        time.sleep(POLL_SECS)


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
    try:
        launch = Launch.load(place / LAUNCH_FILE)
    except (OSError, ValueError, TypeError):
        return None
    return launch if Path(launch.home) == place else None


def _remove_folders(launch: Launch, keep_logs: bool) -> None:
    runtime = Path(launch.runtime_dir)
    # launch.json is only a file: no folder is removed that does not look like one of ours.
    if _RUNTIME_NAME.fullmatch(runtime.name) and "heronry" in runtime.parent.name:
        shutil.rmtree(runtime, ignore_errors=True)
    place = Path(launch.home)
    if keep_logs:
        for entry in _entries(place):
            if entry.name != "log-files":
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        return
    shutil.rmtree(place, ignore_errors=True)
    for parent in list(place.parents)[:3]:  # ENV, ROLE and CLUSTER go when nothing is left in them
        try:
            parent.rmdir()
        except OSError:
            return


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from list(folder.iterdir())
    except FileNotFoundError:
        return


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

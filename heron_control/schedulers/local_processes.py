"""The processes of a topology on this host, found in several ways.

They are found by their titles together with their working folder or session, or by the launch file they were started
with. Processes left by user code are found by their marks and control groups.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import psutil

from heron_control.progress import Progress
from heron_control.schedulers.identity import last_holder, process_title
from heron_control.schedulers.remnants import remnants
from heron_control.schedulers.topology_folder import LAUNCH_FILE
from heron_runtime.cgroups import groups_of
from heron_runtime.files import entries
from heron_runtime.launch import Launch

POLL_SECS = 0.1
KILL_WAIT_SECS = 5.0


def processes_of(launch: Launch) -> list[psutil.Process]:
    """Return the living processes of this submission.

    A process belongs to the submission if its title names the topology, and it either works in the topology's folder or
    belongs to a session of the topology. The session matters since user code may change the folder, and the folder
    since another home may run a topology of the same name. A process without a title belongs to it if it was started
    with the submission's launch file.
    """
    sessions = _sessions(launch)
    prefix = process_title(launch.topology, "")
    launch_files = (str(Path(launch.home, LAUNCH_FILE)), str(launch.instance_launch_file))
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            titled = " ".join(command).startswith(prefix)
            known = titled and (os.getsid(process.pid) in sessions or _works_in(process, launch.home))
            ours = known or any(("--launch", file) in pairwise(command) for file in launch_files)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue  # it has ended meanwhile, or belongs to another user
    return found


def end_processes(launch: Launch, grace_secs: float, progress: Progress) -> list[int]:
    """Wait for the processes of a killed topology, and kill the remaining ones after the grace time.

    Returns:
        The ids of processes that survive SIGKILL.
    """
    progress("waiting for its processes to stop")
    _wait_gone(lambda: processes_of(launch), grace_secs, progress)
    remaining = _all_of(launch)
    if remaining:
        progress(f"ending {len(remaining)} processes that did not stop on their own")
        for process in remaining:
            try:
                process.kill()  # psutil checks that the id still means the same process
            except psutil.NoSuchProcess:
                continue
        remaining = _wait_gone(lambda: _all_of(launch), KILL_WAIT_SECS, progress)
    for group in groups_of(launch).values():
        group.end()
    return [process.pid for process in remaining]


def _all_of(launch: Launch) -> list[psutil.Process]:
    return [*{*processes_of(launch), *remnants(launch), *_grouped(launch)}]


def _grouped(launch: Launch) -> Iterator[psutil.Process]:
    """Return the processes in the control groups of its containers, except this one."""
    for group in groups_of(launch).values():
        for pid in group.members():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def _sessions(launch: Launch) -> set[int]:
    """Return the sessions of its scheduler and containers, from their lock files."""
    locks = (path for path in entries(Path(launch.runtime_dir)) if path.suffix == ".lock")
    holders = (last_holder(path) for path in locks)
    return {holder.pid for holder in holders if holder is not None and holder.topology_id == launch.topology_id}


def _works_in(process: psutil.Process, home: str) -> bool:
    folder = process.cwd().removesuffix(" (deleted)")
    return folder == home or folder.startswith(home + "/")


def _wait_gone(
    look: Callable[[], list[psutil.Process]], timeout_secs: float, progress: Progress
) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout_secs
    while True:
        remaining = look()
        if not remaining or time.monotonic() > deadline:
            return remaining
        progress(f"waiting for {len(remaining)} processes to stop")
        time.sleep(POLL_SECS)

"""The processes of a topology on this host, however they are found: by their titles, by what they told of themselves,
by their working folder, by the launch file they were started with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from itertools import pairwise
from pathlib import Path

import psutil

from heronry.launch import Launch
from heronry.schedulers.identity import process_title
from heronry.schedulers.topology_folder import LAUNCH_FILE

POLL_SECS = 0.1
KILL_WAIT_SECS = 5.0
Talk = Callable[[str], None]  # shows what goes on


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


def end_processes(
    launch: Launch, grace_secs: float, pids: Collection[int] = (), talk: Talk = lambda _: None
) -> list[int]:
    """Wait for the processes of a topology whose killed state is written; end who remains after the grace time.

    Returns the ids of those that do not even die by SIGKILL.
    """
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
    return [process.pid for process in remaining]


def _works_in(process: psutil.Process, home: str) -> bool:
    folder = process.cwd().removesuffix(" (deleted)")
    return folder == home or folder.startswith(home + "/")


def _wait_gone(look: Callable[[], list[psutil.Process]], timeout_secs: float, talk: Talk) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout_secs
    while True:
        remaining = look()
        if not remaining or time.monotonic() > deadline:
            return remaining
        talk(f"waiting for {len(remaining)} processes to stop")
        time.sleep(POLL_SECS)

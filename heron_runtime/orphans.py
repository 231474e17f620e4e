"""Orphans: processes of user code that outlive their parent.

User code may start processes that daemonize: they fork twice, begin a session, close every descriptor, change the
folder, and run another program with an empty environment. They remain descendants of Heronry's processes. A process
that called `heron_runtime.linux.become_subreaper` becomes their parent when their own parent ends:

* an instance, for processes that it started: a daemon lives as long as its instance;
* the zygote, for those of an instance that ended; heron_container after the zygote; heron_scheduler after that.

Each of the last three kills (SIGKILL) the processes it has adopted, which it did not start itself. Schedulers and
containers of another topology of the same user are exempt, since a topology that user code submits is meant to stay.
(If user code has a user of its own, all its processes are killed.)
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Collection

import psutil

MOST_ENDED = 64
LEADER = re.compile(r"heron:.+:(heron_scheduler|heron_container-\d+)")  # process titles
POLL_SECONDS = 0.01


def end_orphans(known: Collection[int]) -> int:
    """Kill the orphans that this process has adopted, and reap those that have ended.

    This process adopts the children of an orphan when the orphan has ended, so call this until it returns 0.

    Args:
        known: Ids of the children that this process started itself, which are spared.

    Returns:
        The number of orphans.
    """
    pids = [child.pid for child in psutil.Process().children() if child.pid not in known and not _leads(child)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)  # only this process reaps it, so it is still our child
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return len(pids)


def _leads(child: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        titled = LEADER.fullmatch(" ".join(child.cmdline()).strip())
        return titled is not None and os.getsid(child.pid) == child.pid and child.uids().real == os.geteuid()
    return False


def end_all_orphans(known: Collection[int], timeout_seconds: float) -> bool:
    """Call `end_orphans` until no orphan is left. Return False if some are left after the timeout."""
    deadline = time.monotonic() + timeout_seconds
    while end_orphans(known):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def reap_ended_orphans(most: int = MOST_ENDED) -> None:
    """Reap ended children beyond `most`, oldest first.

    For a process that adopts orphans and has children of its own, which it waits for elsewhere and cannot tell apart
    from orphans. Costs one system call if no child has ended.
    """
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    except ChildProcessError:
        return
    ended = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.status() == psutil.STATUS_ZOMBIE:
                ended.append(child)
    ended.sort(key=lambda child: child.create_time())
    for child in ended[: max(0, len(ended) - most)]:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)

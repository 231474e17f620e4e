"""Orphans: processes that user code leaves when their parent ends.

User code may start processes that daemonise: fork twice, begin a session, close every descriptor, change the folder,
and run another program with an empty environment. They cannot leave their line of descent. A process that called
`heron_runtime.linux.become_subreaper` becomes their parent when their own parent ends:

* an instance, for processes that it started: a daemon lives as long as its instance;
* the zygote, for those of an instance that ended; heron_container after the zygote; heron_scheduler after that.

Each of the last three kills (SIGKILL) adopted processes, which it did not start itself. Schedulers and containers of
another topology of the same user are exempt: user code that submits a topology means it to stay. (If user code has a
user of its own, none of its processes is exempt.)
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
LEADER = re.compile(r"heron:.+:(heron_scheduler|heron_container-\d+)")  # titles
POLL_SECONDS = 0.01


def end_orphans(known: Collection[int]) -> int:
    """Kill every child of ours that is not ``known`` and leads no topology, and reap it if it has ended; how many.

    What one of them has started comes to us when it has ended: there may be more until the answer is 0.
    """
    found = [child.pid for child in psutil.Process().children() if child.pid not in known and not _leads(child)]
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)  # only this process reaps it, so it is still our child
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return len(found)


def _leads(child: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        titled = LEADER.fullmatch(" ".join(child.cmdline()).strip())
        return titled is not None and os.getsid(child.pid) == child.pid and child.uids().real == os.geteuid()
    return False


def end_all_orphans(known: Collection[int], timeout_seconds: float) -> bool:
    """The same until there is none; False when some do not even end by that within the time."""
    deadline = time.monotonic() + timeout_seconds
    while end_orphans(known):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def reap_ended_orphans(most: int = MOST_ENDED) -> None:
    """Reap ended children beyond `most`, oldest first.

    For a process that adopts orphans beside children of its own, which it waits for elsewhere and cannot tell apart.
    Costs one system call if no child has ended.
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

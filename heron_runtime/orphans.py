"""What user code leaves behind: processes whose parent has ended.

User code may start others, and these may daemonise: fork twice, begin a session, close every descriptor, change the
folder, become another program with an empty environment. One thing they cannot leave is their descent. Whoever called
``heron_runtime.linux.become_subreaper`` becomes their parent when their own one ends:

* an instance, of what it has started: a daemon lives as long as the instance that wanted it;
* the zygote, of what an instance left; then heron_container, when the zygote has died; then heron_scheduler.

Each of the last three ends (SIGKILL) whatever comes to it in this way: a child that it did not start itself. Except
what leads another topology, its scheduler and containers, if it is of our user: user code that submits one means it to
stay. (Where user code has a user of its own, nothing it starts is of ours.)
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
            os.kill(pid, signal.SIGKILL)  # nobody else reaps it, so this is still our child
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
    """For a process that adopts and has children of its own, which it alone may wait for: it cannot tell them apart. So
    ``most`` that have ended are left for it to wait for, and the oldest beyond these are reaped. Costs one system call
    while nobody has ended."""
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

"""Processes on this host: single-instance locks, process groups, checks before a signal, leftovers, ends as text.

A process id alone proves nothing, because it may have been reused. So before a process is adopted or signalled, its
title, user and start time are compared with what is known. ``heron_container`` and ``heron_scheduler`` each hold an
flock on a file in the topology's runtime folder. The kernel releases it at their end, and no other process inherits it.
Its text names the holder.

*Leftovers* are the processes that a container whose leader is dead has left. Descent is the reliable way to find them
(``heron_runtime.orphans``), but it fails if a whole line of parents was killed. ``remnants`` uses two other properties.
A daemon does not lose them by fork, setsid, chdir or closing its descriptors. The first is the mark in the environment
that ``heron_container`` gives to all its descendants, which exec preserves. The second is the container's heartbeat
file, which every process of the container has mapped until an exec. Only a program that was started with an empty
environment has neither.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from heron_runtime.launch import Launch
from heron_runtime.spawn import MARK

START_TOLERANCE_SECONDS = 5.0  # wall clocks are stepped occasionally


def process_title(topology: str, name: str) -> str:
    """Return the title of a process in ``ps``."""
    return f"heron:{topology}:{name}"


def container_lock(runtime_dir: str, container: int) -> Path:
    """Return the lock file of a container."""
    return Path(runtime_dir, f"container{container}.lock")


def scheduler_lock(runtime_dir: str) -> Path:
    """Return the lock file of the scheduler."""
    return Path(runtime_dir, "scheduler.lock")


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of a lock: process id, its start (seconds since 1970), and its submission."""

    pid: int
    started: float
    topology_id: str


class HostLock:
    """Lock that lasts as long as its process, unless it is released. Not inherited by children."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def acquire(self, topology_id: str, *, shared: bool = False) -> bool:
        """Take the lock and write our identity; return False if another process holds it.

        A ``shared`` lock is held together with other sharers and names no holder.

        Raises:
            OSError: The file cannot be opened.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        if not _is_file_of(self.path, descriptor):  # its last holder has removed it with the folder
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        if not shared:
            holder = Holder(os.getpid(), psutil.Process().create_time(), topology_id)
            os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _is_file_of(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def last_holder(path: Path) -> Holder | None:
    """Return the last writer of the lock file, living or not; None if unknown."""
    try:
        return Holder(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def is_held(path: Path) -> bool:
    """Return True if a process holds the lock now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def is_process(pid: int, title: str, started: float | None = None) -> bool:
    """Return True if ``pid`` is alive, belongs to this user, and has this title and start time."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            command = " ".join(process.cmdline())
            return (
                process.status() != psutil.STATUS_ZOMBIE
                and process.uids().real == os.getuid()
                and command.strip() == title
                and (started is None or abs(process.create_time() - started) <= START_TOLERANCE_SECONDS)
            )
    except psutil.Error:
        return False


def catches(pid: int, number: int) -> bool:
    """Return True if the process handles this signal, which would end it otherwise."""
    return bool(int(_status(pid, "SigCgt"), 16) >> (number - 1) & 1)


def traced(pid: int) -> bool:
    """Return True while a debugger or profiler (gdb, py-spy, strace) is attached to the process."""
    return int(_status(pid, "TracerPid")) > 0


def _status(pid: int, field: str) -> str:
    """Return a field of the kernel's process status; "0" if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "0"
    return next((line.split()[1] for line in status.splitlines() if line.startswith(f"{field}:")), "0")


def group_members(group: int) -> list[int]:
    """Return the living processes of a process group, without zombies."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process.pid)
        except (psutil.Error, ProcessLookupError, PermissionError):
            continue
    return members


def group_exists(group: int) -> bool:
    """Return True if the group has a member, including zombies. Much cheaper than ``group_members``."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number was reused by another user
    return True


def kill_group(group: int) -> None:
    """Send SIGKILL to every process of the group, if it exists."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def mark_of(topology_id: str, container: int) -> str:
    """Return the value of the mark."""
    return f"{topology_id}/{container}"


def remnants(launch: Launch, container: int | None = None) -> list[psutil.Process]:
    """Return living marked processes of this submission or container, except the caller."""
    one = container is not None
    mark = f"{MARK}={launch.topology_id}/" if container is None else f"{MARK}={mark_of(launch.topology_id, container)}"
    heartbeats = f"{launch.runtime_dir}/beats" if container is None else f"{launch.heartbeats(container)}/"
    pids = []
    for pid in _processes():
        try:
            if _has_mark(pid, mark, whole=one) or _has_mapped(pid, heartbeats):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    pids.append(process)
        except (OSError, psutil.Error):
            continue  # it has ended meanwhile, or belongs to another user
    return pids


def _processes() -> Iterator[int]:
    own = os.getpid()
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own)


def _has_mark(pid: int, mark: str, *, whole: bool) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        variables = file.read().split(b"\0")
    wanted = mark.encode()
    return any(variable == wanted if whole else variable.startswith(wanted) for variable in variables)


def _has_mapped(pid: int, path: str) -> bool:
    if "python" not in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
        return False  # other programs do not map our files, and the maps of some are long
    with open(f"/proc/{pid}/maps", errors="replace") as file:
        return path in file.read()


def exit_in_words(code: int | None, last_line: str) -> str:
    """Return why a process ended.

    ``code`` is the exit code, minus the signal's number, or None if unknown.
    """
    if code is None:
        return "ended with its parent"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"killed by {name}"
    return f"exit code {code}" + (f": {last_line}" if last_line and code else "")

"""Who is who among the processes of this host: single-instance locks, process groups, and checks before a signal.

A process id alone says nothing: it may have been given to somebody else. So before a process is adopted or
signalled, its title, its user and its start time are compared with what is known of it. ``heron_container`` and
``heron_scheduler`` each hold an flock on a file in the topology's runtime folder; the kernel frees it at their
death, however they die, and nobody else inherits it. Its text names the holder.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

START_TOLERANCE_SECONDS = 5.0  # wall clocks are stepped now and then


def process_title(topology: str, name: str) -> str:
    """What ``ps`` shows of a process."""
    return f"heron:{topology}:{name}"


def container_lock(runtime_dir: str, container: int) -> Path:
    """The lock of a container."""
    return Path(runtime_dir, f"container{container}.lock")


def scheduler_lock(runtime_dir: str) -> Path:
    """The lock of the scheduler."""
    return Path(runtime_dir, "scheduler.lock")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock: its process and when that began (seconds since 1970), and the submission it serves."""

    pid: int
    started: float
    topology_id: str


class HostLock:
    """A lock that lives as long as its process, unless it is released. Not inherited by children."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def acquire(self, topology_id: str, *, shared: bool = False) -> bool:
        """Take the lock and write who we are; False if another process holds it. Raises OSError.

        ``shared``: with others who say so, too; then nobody's name stands in it.
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
        """Let it go before the process ends, if it is held."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _is_file_of(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def last_holder(path: Path) -> Holder | None:
    """Who wrote the lock file last, whether or not it still lives; None if nobody can be named."""
    try:
        return Holder(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def is_held(path: Path) -> bool:
    """True if some process holds the lock now."""
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
    """True if ``pid`` is alive, ours, and is the process with this title (and start time, if known)."""
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
    """True if the process has a handler for this signal; without one most signals would end it."""
    return bool(int(_status(pid, "SigCgt"), 16) >> (number - 1) & 1)


def traced(pid: int) -> bool:
    """True while a debugger or profiler has hold of the process (gdb, py-spy, strace), which may keep it stopped."""
    return int(_status(pid, "TracerPid")) > 0


def _status(pid: int, field: str) -> str:
    """A field of what the kernel says of a process; "0" if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "0"
    return next((line.split()[1] for line in status.splitlines() if line.startswith(f"{field}:")), "0")


def group_members(group: int) -> list[int]:
    """The living processes of a process group, zombies left out."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process.pid)
        except (psutil.Error, ProcessLookupError, PermissionError):
            continue
    return members


def group_exists(group: int) -> bool:
    """True if the group has a member, a zombie perhaps. Far cheaper than ``group_members``."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number belongs to somebody else by now
    return True


def kill_group(group: int) -> None:
    """SIGKILL to every process of the group, if there is one."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return

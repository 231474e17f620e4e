"""Sessions of the files store: a locked file that carries a lease.

The owner of a session holds the file `sessions/<id>` with `flock`, so that any death of the process ends the session at
once. The eight bytes of the file are the lease: the time of CLOCK_MONOTONIC (one clock for all processes of a machine)
at which the session ends. A thread of the owner extends it every second, so that a process which is stopped or hangs as
a whole loses its session as well. Suspending the machine stops this clock for all processes, so sessions survive it.

The descriptor of the lock file is close-on-exec. Only processes that never fork without exec may own a session.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from pathlib import Path

from heron_runtime.files import entries

_LEASE = struct.Struct("=Q")
_NEW = ".new-"
_ABANDONED_SECS = 60.0


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class SessionLease:
    """Session of this process, renewed by a thread of its own until ``end``.

    The session ends ``timeout_secs`` after the last renewal.
    """

    def __init__(self, folder: Path, timeout_secs: float) -> None:
        self.id = f"{os.getpid()}-{os.urandom(8).hex()}"
        self._timeout_ns = int(timeout_secs * 1e9)
        self._interval = min(1.0, timeout_secs / 4)
        self._path = folder / self.id
        temporary = folder / (_NEW + self.id)
        self._lock = threading.Lock()
        self._file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._deadline_ns = 0
            self._write_lease()
            os.rename(temporary, self._path)  # visible only once it is locked and has a lease
        except BaseException:
            os.close(self._file)
            temporary.unlink(missing_ok=True)
            raise
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="store-lease", daemon=True)
        self._thread.start()

    def alive(self) -> bool:
        """Return False once the lease has expired or the session was ended. This is final."""
        with self._lock:
            return not self._ended.is_set() and _now_ns() < self._deadline_ns

    def end(self) -> None:
        """Stop renewing, release the lock and remove the file. Idempotent."""
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
            os.close(self._file)
        self._path.unlink(missing_ok=True)

    def _write_lease(self) -> None:
        deadline = _now_ns() + self._timeout_ns
        os.pwrite(self._file, _LEASE.pack(deadline), 0)
        self._deadline_ns = deadline

    def _renew(self) -> None:
        while not self._ended.wait(self._interval):
            with self._lock:
                # An expired lease is not renewed, since another process may have acted on its end.
                if self._ended.is_set() or _now_ns() >= self._deadline_ns:
                    return
                try:
                    self._write_lease()
                except OSError:
                    continue  # the disk may come back before the lease is over


def is_alive(folder: Path, session: str) -> bool:
    """Return True while the session's lock is held and its lease is valid. Any process of the machine may call this.

    False is final, since an owner never renews an expired lease.

    Raises:
        OSError: The file cannot be read.
    """
    try:
        file = os.open(folder / session, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            lease = os.pread(file, _LEASE.size, 0)
            return len(lease) == _LEASE.size and _now_ns() < _LEASE.unpack(lease)[0]
        return False  # the lock is not held
    finally:
        os.close(file)


def remove_file(folder: Path, session: str) -> None:
    """Remove the file of a dead session."""
    Path(folder, session).unlink(missing_ok=True)


def sweep(folder: Path, known: set[str]) -> None:
    """Remove files of sessions that are unknown to the store, not held by a process, and not new."""
    oldest = time.time() - _ABANDONED_SECS
    for path in entries(folder):
        try:
            if path.name not in known and path.stat().st_mtime < oldest and not is_alive(folder, path.name):
                path.unlink()
        except OSError:
            continue  # another process removed it

"""Folder of the files store: permitted file systems, access rights, and explanation of errors."""

from __future__ import annotations

import ctypes
import errno
import os
import sqlite3
import stat
import sys
from pathlib import Path

from heron_runtime.state.store import StoreError, StoreForbidden, StoreUnavailable

# statfs(2) f_type of file systems that other machines may write to. Locks and shared memory do not work across them.
NETWORK_FILE_SYSTEMS = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x01021997: "9P",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x73757245: "Coda",
    0x7461636F: "OCFS2",
    0x01161970: "GFS2",
    0x19830326: "BeeGFS",
    0x013111A8: "IBRIX",
    0xAAD7AAEA: "PanFS",
}
_FUSE = 0x65735546
_CURE_WRITABLE = "Make it writable, or set HERONRY_HOME to another folder."
_REMOTE_FUSE = ("sshfs", "gluster", "s3fs", "goofys", "gcsfuse", "rclone", "ceph", "juicefs", "davfs", "moosefs")


def file_system_type(path: str) -> int:
    """Return ``f_type`` of the file system that holds ``path``, or 0 except on Linux. Raises OSError."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_long * 64)()  # struct statfs begins with f_type and is far smaller than this
    if libc.statfs(os.fsencode(path), ctypes.byref(buffer)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(buffer[0]) & 0xFFFFFFFF


def network_file_system(folder: Path) -> str | None:
    """Return the name of the network file system of ``folder``, or None for a local one. Raises OSError."""
    number = file_system_type(str(folder))
    if number == _FUSE:
        mounted = _mount_type(folder)
        return mounted if any(remote in mounted for remote in _REMOTE_FUSE) else None
    return NETWORK_FILE_SYSTEMS.get(number)


def refuse_network_file_system(folder: Path) -> None:
    """Raise StoreError if ``folder`` is on a file system that is shared between machines."""
    name = network_file_system(folder)
    if name is not None:
        raise StoreError(
            f"{folder} is on a network file system ({name}), where locks are unreliable. "
            "Set HERONRY_HOME to a folder on a local disk."
        )


def _mount_type(folder: Path) -> str:
    """Return the type of the mount that holds ``folder``, such as fuse.sshfs, or "" if it is unknown."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) > 8 and fields[2] == wanted and "-" in fields:
            return fields[fields.index("-") + 1]
    return ""


def prepare_folder(folder: Path, database: Path) -> None:
    """Create the folder (0700) and an empty database file (0600) unless they exist.

    Raises:
        StoreError: The folder cannot be created or is unsuitable. The text contains cause and remedy.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_network_file_system(folder)
        _make_private(folder, database)
        Path(folder, "sessions").mkdir(exist_ok=True, mode=0o700)
        if not database.exists():
            _create_empty(database)
    except FileExistsError as error:
        raise StoreError(f"{error.filename} is a file, not a folder. Move it away or choose another folder.") from error
    except OSError as error:
        raise explain_os_error(error, folder) from error


def _make_private(folder: Path, database: Path) -> None:
    status = folder.stat()
    if status.st_uid != os.geteuid() and os.geteuid() != 0:
        raise StoreError(
            f"{folder} belongs to another user (uid {status.st_uid}). Set HERONRY_HOME to a folder of yours."
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        if not database.exists() and any(folder.iterdir()):
            raise StoreError(
                f"{folder} is not empty and is accessible to other users. Choose an empty folder for the state store."
            )
        folder.chmod(0o700)


def _create_empty(database: Path) -> None:
    """Create an empty file of mode 0600 atomically.

    It gets its name only after it is closed, since closing any descriptor of a database drops every POSIX lock that
    SQLite holds on it in this process.
    """
    temporary = database.with_name(f".new-{os.getpid()}-{os.urandom(4).hex()}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        os.link(temporary, database)
    except FileExistsError:
        pass  # another process was faster
    finally:
        temporary.unlink(missing_ok=True)


def explain_os_error(error: OSError, folder: Path) -> StoreError:
    """Return the StoreError that describes ``error`` for the store in ``folder``."""
    name = error.filename or folder
    if isinstance(error, PermissionError):
        return StoreForbidden(f"{name} cannot be written: {error.strerror}. {_CURE_WRITABLE}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(f"{name}: the disk is full or the quota used up. Free some space.")
    if error.errno == errno.EROFS:
        return StoreForbidden(f"{name} is on a read-only file system. {_CURE_WRITABLE}")
    return StoreError(f"{name}: {error.strerror or error}")


def explain_database_error(error: sqlite3.Error, database: Path, wait_secs: float) -> StoreError:
    """Return the StoreError that describes an error of SQLite, with a remedy."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(
            f"{database}: another process has held the store's lock for {wait_secs:g} s. "
            "A stopped process may hold it: look for processes in state T with ps."
        )
    if primary == sqlite3.SQLITE_FULL:
        return StoreError(f"{database}: the disk is full. Free some space; nothing was changed.")
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreError(f"{database} cannot be written ({name}). {_CURE_WRITABLE}")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or (code is None and "malformed" in str(error)):
        return StoreError(
            f"{database} is damaged ({error}). Stop what still runs, move {database.parent} away and submit again."
        )
    return StoreUnavailable(f"{database}: {error} ({name}). Look at the disk and the system's log.")

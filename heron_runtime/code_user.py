"""Separate operating system user that runs user code (`heron.user.code.user`).

Another user without capabilities cannot read files of mode 0400, and cannot signal, trace or inspect processes of
Heronry, so secret, key and credential of the topology are out of reach of user code. Heronry must be allowed to change
users: it is root, or has CAP_SETUID, CAP_SETGID and CAP_KILL (`heron_runtime.linux`).

Shared files belong to Heronry and to the group of that user: folders on the paths that instances use, their heartbeat
files, the socket of the stream manager, and folders that user code may write to. The last have the sticky bit, so that
user code cannot remove or rename files of Heronry.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heron_runtime.failures import NotAllowed, UsageError
from heron_runtime.linux import CHANGE_USER, capabilities
from heron_runtime.model.settings import Keys, setting

PASSED_THROUGH = 0o710
WRITTEN_TO = 0o1770
TALKED_THROUGH = 0o660  # sockets and shared memory
READ = 0o640
READ_BY_GROUP = 0o2750  # new files there belong to that group as well
NAME = Keys.HERON_USER_CODE_USER.name


@dataclass(frozen=True, slots=True)
class CodeUser:
    """An account of this host."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @classmethod
    def named(cls, name: str) -> CodeUser:
        """Look the account up. Raises UsageError if it does not exist."""
        try:
            account = pwd.getpwnam(name)
        except (KeyError, ValueError):
            raise UsageError(
                f"{NAME}: unknown user {name!r} on this host", "Name an existing user, or create it with `useradd`."
            ) from None
        groups = tuple(os.getgrouplist(name, account.pw_gid))
        return cls(name, account.pw_uid, account.pw_gid, groups, account.pw_dir)

    def environment(self) -> dict[str, str]:
        """Environment variables that name the user."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def share(self, path: str | Path, mode: int) -> None:
        """Change the group of a file or folder to this user's group, and set its mode.

        Raises:
            OSError: The change is refused, or `path` is a symbolic link, which user code may have put there.
        """
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            opened = f"/proc/self/fd/{descriptor}"  # os.fchmod refuses such a descriptor
            os.chown(opened, -1, self.gid)
            os.chmod(opened, mode)
        finally:
            os.close(descriptor)

    def share_own_folder(self, folder: Path, mode: int) -> bool:
        """Share a folder that this process's user owns. Raises OSError.

        Returns:
            False, without a change, if `folder` is missing, not a folder, or owned by another user.
        """
        try:
            status = folder.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        self.share(folder, mode)
        return True

    def let_through(self, folder: Path) -> None:
        """Let this user search a folder that other users share, if this process's user owns it. Raises OSError."""
        status = folder.stat()
        if status.st_uid == os.geteuid() and not (status.st_gid == self.gid and status.st_mode & 0o010):
            os.chmod(folder, stat.S_IMODE(status.st_mode) | 0o011)

    def open_runtime_dir(self, folder: Path) -> None:
        """Give this user access to the runtime folder, which holds sockets and heartbeats. Raises OSError."""
        self.let_through(folder.parent)
        self.share(folder, PASSED_THROUGH)

    def open_checkpoints(self, folder: Path) -> None:
        """Create and share the default storage of checkpoints in a topology's home. Raises OSError.

        This user writes parts and Heronry writes manifests. Each reads the files of the other.
        """
        for path, mode in (
            (folder, PASSED_THROUGH), (folder / "parts", WRITTEN_TO), (folder / "manifests", READ_BY_GROUP)
        ):  # fmt: skip
            path.mkdir(mode=0o700, exist_ok=True)
            self.share(path, mode)

    def may_read_all(self, folder: Path) -> None:
        """Let all users read a folder and everything below it. Links are not followed. Raises OSError."""
        os.chmod(folder, stat.S_IMODE(folder.stat().st_mode) | 0o055)
        for place, folders, files in os.walk(folder):
            for name, wanted in (*((name, 0o055) for name in folders), *((name, 0o044) for name in files)):
                path = Path(place, name)
                if not path.is_symlink():
                    os.chmod(path, stat.S_IMODE(path.stat().st_mode) | wanted)


def code_user(settings: Mapping[str, Any]) -> CodeUser | None:
    """Return the user that runs user code, or None if it is the user of this process. Raises UsageError."""
    name = setting(settings, Keys.HERON_USER_CODE_USER)
    return CodeUser.named(name) if name else None


def attainable_code_user(settings: Mapping[str, Any]) -> CodeUser | None:
    """Return the code user after a check that this process may start processes as it.

    Raises:
        UsageError: The setting is invalid.
        NotAllowed: This process may not change to that user.
    """
    user = code_user(settings)
    if user is None:
        return None
    if user.uid in (0, os.geteuid()):
        who = "root" if user.uid == 0 else "the user that Heronry itself runs as"
        raise UsageError(f"{NAME}: {user.name} is {who}", "Name a user who owns nothing of Heronry's.")
    if capabilities() & CHANGE_USER != CHANGE_USER:
        raise NotAllowed(
            f"{NAME}: only root can run user code as {user.name}",
            f"Submit as root, or without it: heron config unset local {NAME}.",
        )
    return user

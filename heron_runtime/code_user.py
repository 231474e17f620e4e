"""The user that user code runs as, where that is not the user of Heronry's own processes (``heron.user.code.user``).

Whoever runs as another user, without capabilities, cannot read files of mode 0400, signal, trace or look into processes
of ours: neither secret, key nor credential of its topology is within its reach. Heronry needs the right to change users
for it: it is root, or has CAP_SETUID, CAP_SETGID and CAP_KILL (``heron_runtime.linux``).

What both sides use belongs to us and to the group of that user: folders that instances pass through, their heartbeat
files, the stream manager's socket, the folders that user code may write to. Those have the sticky bit, so that nobody
there removes or renames what is ours.
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
READ_BY_GROUP = 0o2750  # what we make there belongs to that group, too
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
        """Raises UsageError where there is no such account."""
        try:
            found = pwd.getpwnam(name)
        except (KeyError, ValueError):
            raise UsageError(
                f"{NAME}: there is no user {name!r} on this host", "Name one that there is, or make it: see `useradd`."
            ) from None
        groups = tuple(os.getgrouplist(name, found.pw_gid))
        return cls(name, found.pw_uid, found.pw_gid, groups, found.pw_dir)

    def environment(self) -> dict[str, str]:
        """What says who one is."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def share(self, path: str | Path, mode: int) -> None:
        """Give what is ours to this user's group as well, with this mode. Raises OSError, also for a symbolic link:
        user code may have put one there."""
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
        """Share a folder of ours. False, without a change, for what is missing, a link, a file, or another user's.
        Raises OSError."""
        try:
            status = folder.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        self.share(folder, mode)
        return True

    def let_through(self, folder: Path) -> None:
        """Let this user search a folder of ours that others have business in, too. Raises OSError."""
        found = folder.stat()
        if found.st_uid == os.geteuid() and not (found.st_gid == self.gid and found.st_mode & 0o010):
            os.chmod(folder, stat.S_IMODE(found.st_mode) | 0o011)

    def open_runtime_dir(self, folder: Path) -> None:
        """The way to sockets and heartbeats. Raises OSError."""
        self.let_through(folder.parent)
        self.share(folder, PASSED_THROUGH)

    def open_checkpoints(self, folder: Path) -> None:
        """The default storage of checkpoints in a topology's home: this user writes parts, we write manifests, and each
        reads what the other has written. Raises OSError."""
        for path, mode in (
            (folder, PASSED_THROUGH), (folder / "parts", WRITTEN_TO), (folder / "manifests", READ_BY_GROUP)
        ):  # fmt: skip
            path.mkdir(mode=0o700, exist_ok=True)
            self.share(path, mode)

    def may_read_all(self, folder: Path) -> None:
        """Let this user read a tree of ours, wherever it may pass into it. Links are not followed. Raises OSError."""
        os.chmod(folder, stat.S_IMODE(folder.stat().st_mode) | 0o055)
        for place, folders, files in os.walk(folder):
            for name, wanted in (*((name, 0o055) for name in folders), *((name, 0o044) for name in files)):
                path = Path(place, name)
                if not path.is_symlink():
                    os.chmod(path, stat.S_IMODE(path.stat().st_mode) | wanted)


def code_user(settings: Mapping[str, Any]) -> CodeUser | None:
    """As whom user code is to run; None: as whoever asks. Raises UsageError."""
    name = setting(settings, Keys.HERON_USER_CODE_USER)
    return CodeUser.named(name) if name else None


def attainable_code_user(settings: Mapping[str, Any]) -> CodeUser | None:
    """The same for who is to make such processes. Raises UsageError, and NotAllowed where that cannot be."""
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

"""The runtime folder of a topology on this host: Unix sockets, heartbeat slots, locks.

Its path is short, since the path of a Unix socket has at most 107 bytes. It belongs to this user only. If user code has
a user of its own (``heron_runtime.code_user``), other users may traverse it, but cannot list or change it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
from pathlib import Path

from heron_runtime.failures import Failure, NotAllowed
from heron_runtime.launch import Launch

SOCKET_PATH_BYTES = 107
LONGEST_SOCKET_NAME = "/12345678/mm4096.sock"
_NAME = re.compile(r"[0-9a-f]{8}")
log = logging.getLogger(__name__)


def runtime_base() -> Path:
    """Return the parent of the runtime folders of topologies.

    It is in XDG_RUNTIME_DIR if that is a writable folder of this user and short enough, and in /tmp otherwise. The
    folder is neither created nor checked: see ``make_runtime_dir``.
    """
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given.startswith("/") and os.path.isdir(given) and os.access(given, os.W_OK):
        base = Path(given, "heronry")
        fits = len(os.fsencode(base)) + len(LONGEST_SOCKET_NAME) <= SOCKET_PATH_BYTES
        if fits and os.stat(given).st_uid == os.geteuid():
            return base
    return Path(f"/tmp/heronry-{os.geteuid()}")


def runtime_dir(topology_id: str) -> Path:
    """Return the runtime folder of one submission."""
    return runtime_base() / hashlib.blake2b(topology_id.encode(), digest_size=4).hexdigest()


def make_runtime_dir(folder: Path) -> None:
    """Create the folder and its parent, both with mode 0700.

    Raises:
        NotAllowed: One of them is a link, belongs to another user, or is open to others.
        Failure: The path is too long for Unix sockets.
    """
    if len(os.fsencode(folder.parent)) + len(LONGEST_SOCKET_NAME) > SOCKET_PATH_BYTES:
        raise Failure(f"{folder} is too long for Unix sockets", "Set XDG_RUNTIME_DIR to a shorter folder.")
    for path in (folder.parent, folder):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            pass
        if not _is_private(path.lstat()):
            raise NotAllowed(
                f"{path} is not a private folder of this user",
                "Remove it, or set XDG_RUNTIME_DIR to a private folder.",
            )


def remove_runtime_dir(launch: Launch) -> None:
    """Remove the runtime folder. Idempotent.

    A path that is not certainly a runtime folder is left alone, since ``launch.json`` may have been changed.
    """
    folder = Path(launch.runtime_dir)
    try:
        status = folder.lstat()
    except OSError:
        return
    named = _NAME.fullmatch(folder.name) and "heronry" in folder.parent.name and folder.is_absolute()
    if not named or not _is_private(status):
        log.warning("%s is not used: it is not a private folder of this topology", folder)
        return
    shutil.rmtree(folder, ignore_errors=True)


def _is_private(status: os.stat_result) -> bool:
    """Return True for a folder, not a link, that only this user can list or write."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o066

"""The runtime folder of a topology on this host: Unix sockets, heartbeat slots, locks.

It is short, since the path of a Unix socket has 107 bytes at most, and belongs to this user alone. Others may pass
through where user code has a user of its own (``heron_runtime.code_user``), but see and change nothing.
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
    """The folder for the runtime folders of topologies: in XDG_RUNTIME_DIR where there is one and it is short enough.

    Not made, not checked: see ``make_runtime_dir``.
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
    """Make the folder and its parent, both 0700 and ours, not a link laid there. Raises NotAllowed, Failure."""
    if len(os.fsencode(folder.parent)) + len(LONGEST_SOCKET_NAME) > SOCKET_PATH_BYTES:
        raise Failure(f"{folder} is too long for Unix sockets", "Set XDG_RUNTIME_DIR to a shorter folder.")
    for path in (folder.parent, folder):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            pass
        if not _is_private(path.lstat()):
            raise NotAllowed(
                f"{path} is not a folder that belongs to this user alone",
                "Remove it, or set XDG_RUNTIME_DIR to a private folder.",
            )


def remove_runtime_dir(launch: Launch) -> None:
    """Remove the runtime folder, if it is certainly one. ``launch.json`` is only a file. Idempotent."""
    folder = Path(launch.runtime_dir)
    try:
        found = folder.lstat()
    except OSError:
        return
    named = _NAME.fullmatch(folder.name) and "heronry" in folder.parent.name and folder.is_absolute()
    if not named or not _is_private(found):
        log.warning("%s is left alone: it is not a private folder of this topology", folder)
        return
    shutil.rmtree(folder, ignore_errors=True)


def _is_private(found: os.stat_result) -> bool:
    """Return True for a folder, not a link, that only this user can list or write."""
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o066

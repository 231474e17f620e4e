"""The file with the credential of a state store: who may write to it, and who may only read.

A ZooKeeper ensemble may serve others beside Heronry; digest ACLs keep what is ours ours. The credential is in a file
of mode 0400, one line for each right::

    cluster: heronry:a-long-password
    reader: tracker:another-long-password

Whoever has the ``cluster`` line has every right; a ``reader`` line beside it lets that reader read whatever this
client makes. A file with the ``reader`` line alone, as a tracker has it, makes a client that only reads.

How a process gets it: by the file's *path*, never by its contents. ``Launch.store_credential`` names the file as a
process of the topology sees it; the ``local`` cluster names the operator's own file there, and a scheduler of
containers copies the operator's file into each container it starts, and names the copy. So nothing secret is in
``launch.json``, in a URL, an argument or an environment variable, and to change the credential is to replace one file
and restart.

What follows from it: the processes of a topology share one user, so user code can read the file of its cluster, and
with it change the state of every topology of that cluster. One cluster is one circle of trust; who does not trust
each other needs clusters of their own, with a root and a credential each.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from heron_runtime.state.store import StoreError, StoreForbidden

MAX_BYTES = 4096
_RIGHTS = ("cluster", "reader")
_EXAMPLE = "as `cluster: heronry:PASSWORD`, and perhaps `reader: tracker:PASSWORD`"


@dataclass(frozen=True, slots=True)
class StoreCredential:
    """``user:password`` of each right, empty where there is none. Its repr shows no password."""

    cluster: str = ""
    reader: str = ""

    @property
    def read_only(self) -> bool:
        """True if it only lets read."""
        return not self.cluster

    @property
    def own(self) -> str:
        """What this client shows to the store."""
        return self.cluster or self.reader

    def __repr__(self) -> str:
        """Users only."""
        shown = ", ".join(f"{right}={getattr(self, right).partition(':')[0]!r}" for right in _RIGHTS)
        return f"StoreCredential({shown})"


def read_credential(file: str | Path) -> StoreCredential:
    """The credential in ``file``. Raises StoreError, naming the cure; the error shows nothing of the contents."""
    path = Path(file)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise StoreError(f"{path} is not a file; name the file with the credential of the state store")
            if stat.S_IMODE(mode) & 0o077:
                raise StoreError(f"{path}: other users may read this credential; chmod 0400 {path}")
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        kind = StoreForbidden if isinstance(error, PermissionError) else StoreError
        raise kind(
            f"{path}: the credential of the state store cannot be read: {error.strerror}. "
            "It is a file of mode 0400 that belongs to the user of this process"
        ) from error
    return _parse(path, data)


def _parse(path: Path, data: bytes) -> StoreCredential:
    found: dict[str, str] = {}
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise StoreError(f"{path} is no text; write {_EXAMPLE}") from None
    if len(data) > MAX_BYTES:
        raise StoreError(f"{path} is larger than {MAX_BYTES} bytes; write {_EXAMPLE}")
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        right, _, value = (part.strip() for part in text.partition(":"))
        user, _, password = value.partition(":")
        if right not in _RIGHTS or right in found or not user or not password:
            raise StoreError(f"{path}, line {number} is not understood; write {_EXAMPLE}, each once")
        found[right] = value
    if not found:
        raise StoreError(f"{path} holds no credential; write {_EXAMPLE}")
    return StoreCredential(**found)

"""Storage of checkpoints: one folder of a topology that the master and all instances share.

`parts/` has a file for each task and checkpoint, `manifests/` one for each checkpoint that is or may become complete. A
file appears whole under its name once its bytes are on disk. Names of parts contain their writer, so no file is written
while another process reads it. The contents of a checkpoint are in `heron_runtime/model/checkpoints.py`; the state
store names the checkpoint that counts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from heron_runtime.files import entries, replace_file
from heron_runtime.model.checkpoints import Manifest
from heron_runtime.wire.checkpoint_formats import MOST_BYTES, decode_manifest, encode_manifest
from heron_runtime.wire.errors import MalformedMessage

CHECKPOINTS = "checkpoints"  # below a topology's home


class CheckpointFolder:
    """Files of checkpoints below ``folder``. Whatever the disk refuses raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts = folder / "parts"
        self._manifests = folder / "manifests"

    def part_file(self, name: str) -> Path:
        """Where a part is."""
        return self._parts / name

    def write_part(self, name: str, pieces: Iterable[bytes], mode: int = 0o640) -> None:
        """Put these bytes under this name, once they are on disk."""
        self._write(self._parts / name, pieces, mode)

    @contextlib.contextmanager
    def open_part(self, name: str) -> Iterator[Callable[[int, int], bytes]]:
        """``read(offset, size)`` of a part's file: fewer bytes at its end."""
        descriptor = _open_file(self._parts / name)
        try:
            yield lambda offset, size: _read_all(descriptor, offset, size)
        finally:
            os.close(descriptor)

    def write_manifest(self, manifest: Manifest, mode: int = 0o640) -> None:
        """Put it where ``read_manifest`` finds it."""
        self._write(self._manifests / _manifest_name(manifest.checkpoint), [encode_manifest(manifest)], mode)

    def read_manifest(self, checkpoint: int) -> Manifest:
        """Raises OSError, MalformedMessage."""
        descriptor = _open_file(self._manifests / _manifest_name(checkpoint))
        try:
            return manifest_of(checkpoint, _read_all(descriptor, 0, checked_size(os.fstat(descriptor).st_size)))
        finally:
            os.close(descriptor)

    def manifest_time(self, checkpoint: int) -> float:
        """When it was written, in seconds since 1970. Raises OSError."""
        return (self._manifests / _manifest_name(checkpoint)).stat().st_mtime

    def manifests(self) -> list[int]:
        """The numbers of all checkpoints that have one, in order."""
        names = [path.name for path in entries(self._manifests) if path.suffix == ".json"]
        return sorted(int(Path(name).stem) for name in names if Path(name).stem.isdecimal())

    def parts(self) -> list[str]:
        """The names of all parts, unfinished ones included."""
        return sorted(path.name for path in entries(self._parts))

    def remove_manifest(self, checkpoint: int) -> None:
        """Remove it, if it is there."""
        (self._manifests / _manifest_name(checkpoint)).unlink(missing_ok=True)

    def remove_parts(self, names: Iterable[str]) -> None:
        """Remove those that are there."""
        for name in names:
            (self._parts / name).unlink(missing_ok=True)

    def _write(self, path: Path, pieces: Iterable[bytes], mode: int) -> None:
        path.parent.mkdir(mode=0o770, parents=True, exist_ok=True)
        replace_file(path, pieces, mode, durable=True)


def checkpoint_folder(url: str | None, home: str) -> CheckpointFolder:
    """Return that of a topology: the setting ``topology.stateful.checkpoint.storage``, or a folder of its home. Raises
    ValueError for a URL of another kind."""
    if url is None:
        return CheckpointFolder(Path(home, CHECKPOINTS))
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError(
            f"topology.stateful.checkpoint.storage {url!r}: write file:///path of a folder that every container sees"
        )
    return CheckpointFolder(Path(unquote(parts.path)))


def checked_size(size: int) -> int:
    """Return the size of a manifest's file. Raises MalformedMessage if it is too large to read."""
    if size > MOST_BYTES:
        raise MalformedMessage(f"it has {size} bytes; a manifest has at most {MOST_BYTES}")
    return size


def manifest_of(checkpoint: int, data: bytes) -> Manifest:
    """Decode the manifest of this checkpoint. Raises MalformedMessage, also for that of another one."""
    manifest = decode_manifest(data)
    if manifest.checkpoint != checkpoint:
        raise MalformedMessage(f"it is the manifest of checkpoint {manifest.checkpoint}")
    return manifest


def _open_file(path: Path) -> int:
    """Open a regular file for reading. User code may write to the folder, so links and pipes are refused. Raises
    OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def _manifest_name(checkpoint: int) -> str:
    return f"{checkpoint}.json"


def _read_all(descriptor: int, offset: int, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = os.pread(descriptor, size - len(found), offset + len(found))
        if not more:
            break
        found += more
    return found

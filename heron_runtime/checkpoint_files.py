"""Storage of checkpoints: one folder of a topology that the master and all instances share.

`parts/` has a file for each task and checkpoint, `manifests/` one for each checkpoint that is or may become complete. A
file appears whole under its name once its bytes are on disk. Names of parts contain their writer, so a file is never
written while another process reads it. `heron_runtime/model/checkpoints.py` defines the contents of a checkpoint. The
state store names the checkpoint that is in effect.
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
    """Files of checkpoints below ``folder``. Failures of the disk raise OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts = folder / "parts"
        self._manifests = folder / "manifests"

    def part_file(self, name: str) -> Path:
        """Return the path of a part."""
        return self._parts / name

    def write_part(self, name: str, pieces: Iterable[bytes], mode: int = 0o640) -> None:
        """Write a part. The file appears under its name once its bytes are on disk."""
        self._write(self._parts / name, pieces, mode)

    @contextlib.contextmanager
    def open_part(self, name: str) -> Iterator[Callable[[int, int], bytes]]:
        """Open a part and yield ``read(offset, size)``, which returns fewer bytes at the end of the file."""
        descriptor = _open_file(self._parts / name)
        try:
            yield lambda offset, size: _read_all(descriptor, offset, size)
        finally:
            os.close(descriptor)

    def write_manifest(self, manifest: Manifest, mode: int = 0o640) -> None:
        """Write a manifest to the file that ``read_manifest`` reads."""
        self._write(self._manifests / _manifest_name(manifest.checkpoint), [encode_manifest(manifest)], mode)

    def read_manifest(self, checkpoint: int) -> Manifest:
        """Read the manifest of a checkpoint. Raises OSError, MalformedMessage."""
        descriptor = _open_file(self._manifests / _manifest_name(checkpoint))
        try:
            return manifest_of(checkpoint, _read_all(descriptor, 0, checked_size(os.fstat(descriptor).st_size)))
        finally:
            os.close(descriptor)

    def manifest_time(self, checkpoint: int) -> float:
        """Return the modification time of a manifest, in seconds since 1970. Raises OSError."""
        return (self._manifests / _manifest_name(checkpoint)).stat().st_mtime

    def manifests(self) -> list[int]:
        """Return the numbers of all checkpoints that have a manifest, in ascending order."""
        names = [path.name for path in entries(self._manifests) if path.suffix == ".json"]
        return sorted(int(Path(name).stem) for name in names if Path(name).stem.isdecimal())

    def parts(self) -> list[str]:
        """Return the names of all parts, including unfinished ones."""
        return sorted(path.name for path in entries(self._parts))

    def remove_manifest(self, checkpoint: int) -> None:
        """Remove the manifest of a checkpoint, if it exists."""
        (self._manifests / _manifest_name(checkpoint)).unlink(missing_ok=True)

    def remove_parts(self, names: Iterable[str]) -> None:
        """Remove these parts, and ignore missing ones."""
        for name in names:
            (self._parts / name).unlink(missing_ok=True)

    def _write(self, path: Path, pieces: Iterable[bytes], mode: int) -> None:
        path.parent.mkdir(mode=0o770, parents=True, exist_ok=True)
        replace_file(path, pieces, mode, durable=True)


def checkpoint_folder(url: str | None, home: str) -> CheckpointFolder:
    """Return the checkpoint folder of a topology.

    Args:
        url: The setting ``topology.stateful.checkpoint.storage``, or None for a folder in the topology's home.
        home: The topology's home folder.

    Raises:
        ValueError: The URL is not ``file:///path``.
    """
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
    """Decode the manifest of this checkpoint. Raises MalformedMessage, also for the manifest of another checkpoint."""
    manifest = decode_manifest(data)
    if manifest.checkpoint != checkpoint:
        raise MalformedMessage(f"it is the manifest of checkpoint {manifest.checkpoint}")
    return manifest


def _open_file(path: Path) -> int:
    """Open a regular file for reading. Raises OSError.

    User code may write to the folder, so links and pipes are refused.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def _manifest_name(checkpoint: int) -> str:
    return f"{checkpoint}.json"


def _read_all(descriptor: int, offset: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data

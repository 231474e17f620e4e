"""Tars of files for a topology's volume. All entries belong to the image's user."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from heron_control.schedulers.engine import READ_BY_ALL

_UID = 10001  # of the image's user
_CHUNK = 1 << 20
_END = bytes(2 * tarfile.BLOCKSIZE)


def tar_of(files: Mapping[str, bytes], below: str) -> bytes:
    """Return a tar of files (0400) below a folder, relative to the volume."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for path in _folders(below):
            archive.addfile(_entry(path, tarfile.DIRTYPE, 0o700))
        for name, content in files.items():
            entry = _entry(f"{_clean(below)}/{name}", tarfile.REGTYPE, 0o400)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def tar_pieces(folder: Path, below: str) -> Iterator[bytes]:
    """Yield a tar of a folder's files, recursively and without holding it in memory.

    Raises:
        OSError: A file cannot be read, or changes size meanwhile.
    """
    for path in _folders(below):
        yield _entry(path, tarfile.DIRTYPE, 0o700).tobuf()
    for found in sorted(folder.rglob("*")):
        name = f"{_clean(below)}/{found.relative_to(folder)}"
        if found.is_dir():
            yield _entry(name, tarfile.DIRTYPE, 0o700).tobuf()
        else:
            yield from _file(found, name)
    yield _END


def _file(path: Path, name: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        entry = _entry(name, tarfile.REGTYPE, READ_BY_ALL)
        entry.size = left = os.fstat(file.fileno()).st_size
        yield entry.tobuf()
        while piece := file.read(min(_CHUNK, left)):
            left -= len(piece)
            yield piece
        if left or file.read(1):
            raise OSError(f"{path} changes while it is read")
        yield bytes(-entry.size % tarfile.BLOCKSIZE)


def _folders(below: str) -> Iterator[str]:
    """Yield the folder and its parents, the outermost first."""
    path = ""
    for part in _clean(below).split("/"):
        path = f"{path}/{part}".lstrip("/")
        yield path


def _clean(below: str) -> str:
    return below.strip("/")


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid, entry.gid = kind, mode, _UID, _UID
    return entry

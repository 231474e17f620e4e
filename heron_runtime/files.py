"""Atomic writes of files, used for state, settings and secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def entries(folder: Path) -> list[Path]:
    """Return the entries of a folder in order of names; empty if it is missing or is just removed. Raises OSError.

    ``Path.glob`` and ``Path.iterdir`` raise if the folder is removed between their first look and their second.
    """
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except (FileNotFoundError, NotADirectoryError):
        return []


def replace_file(path: Path, data: bytes | str | Iterable[bytes], mode: int = 0o666, *, durable: bool = False) -> None:
    """Replace the content of `path` by one rename, so that a reader sees the old or the new content. Raises OSError.

    Of concurrent writers, the last one wins. `durable`: content and name are on disk when this returns.
    """
    if isinstance(data, str):
        data = data.encode()
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
        if durable:
            sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder, such as renames, to disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_whole(descriptor: int, data: bytes) -> None:
    """Append all of ``data`` to an open file, or nothing. Raises OSError.

    If the disk becomes full, the partial write is truncated, so that lines stay whole. Only for files with one writer.
    """
    size = os.fstat(descriptor).st_size
    try:
        written = os.write(descriptor, data)
        while written < len(data):  # after a partial write, the next call raises the reason
            written += os.write(descriptor, data[written:])
    except OSError:
        os.ftruncate(descriptor, size)
        raise

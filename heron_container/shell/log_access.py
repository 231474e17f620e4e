"""Reading below the log folder, and nowhere else.

A path is walked one component at a time with ``openat`` and O_NOFOLLOW, starting from the open log folder. So no
symbolic link is ever followed, whoever makes it and whenever, and there is no moment between a check and an open.
What is opened must be a regular file with one name: a hard link could give away a file from outside. Names are taken
literally; ``%2e%2e`` is a file name like any other, and does not exist.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from heron_runtime.wire.container import FileData, FileInfo

MAX_READ_BYTES = 1024 * 1024
MAX_ENTRIES = 10_000
MAX_PATH_BYTES = 1024


class BadPath(ValueError):
    """The path is not one that could lie below the log folder."""


class NotThere(LookupError):
    """There is no such log file or folder (or it is a link, a device, a socket)."""


def list_files(root: Path, path: str) -> tuple[FileInfo, ...]:
    """The regular files and folders of a folder, by name, at most MAX_ENTRIES. Raises BadPath, NotThere."""
    parts = _parts(path)
    folder = _open(root, parts, os.O_DIRECTORY)
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                info = _info(entry, parts)
                if info is not None:
                    found.append(info)
                if len(found) >= MAX_ENTRIES:
                    break
    except OSError as error:
        raise NotThere(f"cannot list {path!r}: {error.strerror}") from error
    finally:
        os.close(folder)
    return tuple(sorted(found, key=lambda info: info.path))


def read_file(root: Path, path: str, offset: int, length: int) -> FileData:
    """A part of a file, at most MAX_READ_BYTES; a negative offset counts from the end. Raises BadPath, NotThere."""
    parts = _parts(path)
    if not parts:
        raise BadPath("a file name is missing")
    if length < 0:
        raise BadPath(f"length {length} is negative")
    descriptor = _open(root, parts, os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not _served(status) or stat.S_ISDIR(status.st_mode):
            raise NotThere(f"{path!r} is not a log file")
        size = status.st_size
        begin = max(0, size + offset) if offset < 0 else min(offset, size)
        return FileData(begin, os.pread(descriptor, min(length, MAX_READ_BYTES), begin), size)
    except OSError as error:
        raise NotThere(f"cannot read {path!r}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _parts(path: str) -> list[str]:
    if "\0" in path or path.startswith("/") or len(path.encode(errors="surrogatepass")) > MAX_PATH_BYTES:
        raise BadPath("a path below the log folder is relative, short and without NUL")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise BadPath("'..' leaves the log folder")
    return parts


def _open(root: Path, parts: list[str], last_flags: int) -> int:
    """Walk down without following links; the caller closes."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        current = os.open(root, flags | os.O_DIRECTORY)
    except OSError as error:
        raise NotThere(f"the log folder is not there: {error.strerror}") from error
    for number, part in enumerate(parts):
        wanted = last_flags if number == len(parts) - 1 else os.O_DIRECTORY
        try:
            below = os.open(part, flags | os.O_NOFOLLOW | wanted, dir_fd=current)
        except (OSError, ValueError) as error:
            raise NotThere(f"no log file {'/'.join(parts)!r}") from error
        finally:
            os.close(current)
        current = below
    return current


def _served(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)


def _info(entry: os.DirEntry[str], parts: list[str]) -> FileInfo | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None  # it was rotated away at this moment
    if not _served(status):
        return None
    name = "/".join([*parts, entry.name])
    try:
        name.encode()
    except UnicodeEncodeError:
        return None  # not a name of ours, and not one that a message can carry
    folder = stat.S_ISDIR(status.st_mode)
    return FileInfo(name, 0 if folder else status.st_size, status.st_mtime, folder)

"""Reading and following the end of log files, through ``heron_container`` or from disk.

``tail`` and ``Follower`` use a reader: a function from (path, offset, length) to bytes. A negative offset counts from
the end; FileNotFoundError means that the file does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from heron_runtime.wire.container import FileData

CHUNK_BYTES = 64 * 1024
MAX_TAIL_BYTES = 64 * 1024 * 1024
Reader = Callable[[str, int, int], FileData]


def read_local(folder: Path) -> Reader:
    """Return a reader of the files in ``folder``. A path outside of it raises FileNotFoundError."""
    root = folder.resolve()

    def read(path: str, offset: int, length: int) -> FileData:
        try:
            file = (root / path).resolve()
        except (ValueError, OSError, RuntimeError):  # a NUL, or a cycle of links
            file = root
        if not file.is_relative_to(root) or not file.is_file():
            raise FileNotFoundError(2, "no such log", path)
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            start = min(max(size + offset, 0) if offset < 0 else offset, size)
            opened.seek(start)
            return FileData(start, opened.read(length), size)

    return read


def tail(read: Reader, path: str, lines: int) -> tuple[bytes, int]:
    """Return the last ``lines`` lines of a file and the position of its end.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    last = read(path, -CHUNK_BYTES if lines else 0, CHUNK_BYTES if lines else 0)
    if not lines:
        return b"", last.size_bytes
    data, start, end = last.data, last.offset, last.offset + len(last.data)
    while start > 0 and data.count(b"\n") <= lines and len(data) < MAX_TAIL_BYTES:
        length = min(CHUNK_BYTES, start)
        more = read(path, start - length, length)
        if more.offset != start - length or len(more.data) != length:
            break  # the file was rotated meanwhile: return what was read
        data, start = more.data + data, more.offset
    lines_kept = data.splitlines(keepends=True)[-lines:]
    return b"".join(lines_kept), end


class Follower:
    """Lines added to a file from ``position`` on; restarts when the file was rotated. Not thread-safe."""

    def __init__(self, read: Reader, path: str, position: int) -> None:
        self._read = read
        self._path = path
        self._position = position
        self._partial = b""

    def lines(self) -> list[bytes]:
        """Return the new complete lines; none if the file does not exist."""
        try:
            part = self._read(self._path, self._position, CHUNK_BYTES)
            if part.size_bytes < self._position:
                part = self._read(self._path, 0, CHUNK_BYTES)
        except FileNotFoundError:
            return []
        self._position = part.offset + len(part.data)
        *complete, self._partial = (self._partial + part.data).split(b"\n")
        if len(self._partial) > CHUNK_BYTES:  # a line that does not end is shown in pieces
            complete, self._partial = [*complete, self._partial], b""
        return complete

"""Log files that rotate: ``name.log``, then ``name.log.1`` (the newest old one) up to ``name.log.<files>``.

``RotatingFile`` is written by the owner of a pipe. ``OwnLog`` is for a process whose output is not read through a pipe,
because the process must outlive its parent. It redirects its own stdout and stderr to the file, and to a new file when
that has grown.
"""

from __future__ import annotations

import os
from pathlib import Path

from heron_runtime.files import append_whole
from heron_runtime.launch import Launch
from heron_runtime.model.settings import Keys, MiB, setting


def rotate(path: Path, files: int) -> None:
    """Rename ``path`` to ``path.1``, that to ``path.2`` and so on; the last one is removed.

    Raises:
        OSError: A file cannot be renamed.
    """
    for number in range(files - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            os.replace(older, path.with_name(f"{path.name}.{number + 1}"))
    if path.exists():
        os.replace(path, path.with_name(f"{path.name}.1"))


class RotatingFile:
    """File to which bytes are appended, with rotation.

    It holds at most ``maximum_bytes`` in the file, and keeps ``files`` older ones. Not thread-safe.

    ``write`` returns False if the disk does not accept all the bytes (full, read-only). Then the file contains none of
    them. ``write`` never raises, and the next call tries again. A file that was removed externally is created again
    only at the next rotation.
    """

    def __init__(self, path: Path, maximum_bytes: int, files: int) -> None:
        self.path = path
        self._maximum_bytes = maximum_bytes
        self._files = files
        self._descriptor = -1
        self._size = 0

    def write(self, data: bytes) -> bool:
        """Append the data; return False if nothing could be written."""
        try:
            if self._descriptor < 0:
                self._open()
            if self._size + len(data) > self._maximum_bytes and self._size:
                self.close()
                rotate(self.path, self._files)
                self._open()
            append_whole(self._descriptor, data)
            self._size += len(data)
            return True
        except OSError:
            self.close()
            return False

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._descriptor).st_size


class OwnLog:
    """Log of a process that owns its stdout and stderr."""

    def __init__(self, path: Path, maximum_bytes: int, files: int) -> None:
        self._path = path
        self._maximum_bytes = maximum_bytes
        self._files = files

    @classmethod
    def of(cls, launch: Launch, process: str) -> OwnLog:
        """Return the log of a topology's process in its log folder, which is created.

        Raises:
            OSError: The folder cannot be created.
        """
        launch.log_dir.mkdir(parents=True, exist_ok=True)
        size_mb = setting(launch.settings, Keys.HERON_LOGGING_MAXIMUM_SIZE_MB)
        files = setting(launch.settings, Keys.HERON_LOGGING_MAXIMUM_FILES)
        return cls(launch.log_dir / f"{process}.log", size_mb * MiB, files)

    def take(self) -> None:
        """Redirect stdout and stderr to the file.

        Raises:
            OSError: The file cannot be opened.
        """
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
        finally:
            os.close(descriptor)

    def rotate_if_large(self) -> None:
        """Rotate a large log. Called periodically; a full disk leaves the log as it is."""
        try:
            if os.fstat(2).st_size > self._maximum_bytes:
                rotate(self._path, self._files)
                self.take()
        except OSError:
            return

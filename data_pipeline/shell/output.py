"""Result folders that appear atomically: written next to their destination, then renamed.

Executors write below ``.NAME.<host>.<pid>.tmp`` next to the destination, on the same file system, so a rename moves no
data. When every part is there, the manifest ``_heronry.json`` is written and one rename gives the folder its name. A
reader therefore sees either nothing or a complete folder, with the instant T up to which it is valid. A driver that
dies leaves only a hidden folder. The next run to the same place removes it once its process is gone. Local paths use
the operating system; all other URLs use Hadoop's ``FileContext``, whose rename never moves into an existing folder.

To replace a result, local folders are exchanged by one ``renameat2``. On file systems without it, and on other than
local ones, the old folder is first moved aside. A reader may then find nothing for an instant, but never a mixture.
On object stores (s3a) a rename copies each object: write to HDFS or a file system there (docs/explanation/spark.md).
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from data_pipeline.core.staged import JOURNAL
from heron_runtime.failures import ExistsAlready, UsageError
from heron_runtime.files import sync_folder
from heronry.streamlet.endpoints import is_url

MANIFEST = "_heronry.json"
FOLDER = "__folder"  # column whose values are the folders of a sink
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class OutputExists(ExistsAlready):
    """Output path that is not empty."""

    cure = "Choose another place or, for an --output-path, add --replace."

    def __init__(self, url: str) -> None:
        super().__init__(f"{url} is not empty")


def local_path(url: str) -> Path | None:
    """Return the path of a ``file:`` URL or of a plain path, None for another file system. Raises UsageError."""
    if not is_url(url) and not url.startswith("file:"):
        return Path(url).absolute()  # also with a colon in it
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL ({error})", "Write a path, or SCHEME://HOST/PATH.") from None
    return Path(unquote(parts.path)).absolute() if parts.scheme == "file" else None


def spark_url(path: str) -> str:
    """Return a path or URL in Spark's form: a path without a scheme is local, whatever the default file system is.

    Hadoop reads ``%20`` in a path as these three characters, so nothing is quoted.
    """
    local = local_path(path)
    return f"file://{local}" if local is not None else path


def place_of(url: str) -> Path | None:
    """Return the path of a local ``file:`` URL as ``spark_url`` and Hadoop write it; None for another file system.

    They do not quote, so ``%20`` stands for these three characters.
    """
    return Path("/" + url.removeprefix("file:").lstrip("/")) if url.startswith("file:") else None


def is_taken(path: Path) -> bool:
    """Return True if the path exists and is not an empty folder."""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


class Place:
    """Folder of an existing or future result, with access to the small files directly in it."""

    def __init__(self, spark: SparkSession | None, url: str) -> None:
        """Open the folder. ``spark`` is needed for file systems other than the local one."""
        self.url = url
        self._files = _open(spark, url)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if the file is missing."""
        return self._files.read(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        self._files.add(name, content)

    def names(self) -> list[str]:
        """Return the names of the entries in the folder; empty if the folder is missing."""
        return self._files.names()

    def remove(self, name: str) -> None:
        """Remove a folder in it, with its content."""
        self._files.remove(name)


class OutputFolder:
    """Result that is being written.

    ``url`` is its final location. ``work`` is where parts are written until ``commit``. At the end of a ``with`` block,
    uncommitted files are removed.
    """

    def __init__(
        self, spark: SparkSession, url: str, *, replace: bool = False, clear: Callable[[bytes], bool] = bool
    ) -> None:
        """Make the work folder.

        Args:
            spark: The session.
            url: The final location.
            replace: Allow an existing result to be replaced.
            clear: Undoes the entries in the journal (``core/staged.py``) of a dead driver; returns False if that could
                not be done yet.

        Raises:
            OutputExists: The location holds something, and ``replace`` is False.
        """
        self.url = url
        self.place = Place(spark, url)
        self.keep = False  # whether to keep the work folder at the end, for the next run
        self._replace = replace
        self._files = _open(spark, url)
        if not replace and self._files.holds_something():
            raise OutputExists(url)
        self._files.clear_leftovers(clear)
        self.work = self._files.work_url

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def rename_parts(self, folder: str, suffix: str) -> None:
        """Rename the ``.txt`` parts that Spark wrote into a folder below ``work`` to another suffix.

        Folders by a field (``FOLDER``) also get their final names.
        """
        self._files.rename_parts(folder, suffix)

    def add_folder(self, name: str) -> None:
        """Make an empty folder next to the parts."""
        self._files.add_folder(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a file next to the parts."""
        self._files.write(name, content)

    def commit(self, manifest: Mapping[str, Any]) -> None:
        """Give the folder its name. Raises OutputExists if another result was published first."""
        self._files.write(MANIFEST, json.dumps(manifest, indent=2, sort_keys=True).encode())
        self._files.publish(replace=self._replace)

    def discard(self) -> None:
        """Remove the work folder; has no effect after ``commit``."""
        if not self.keep:
            self._files.remove_work()


def append_parts(spark: SparkSession | None, staged: str, url: str) -> int:
    """Move the parts below a folder in a work folder to the same places below ``url``, and return their number.

    The work folder is removed then. Idempotent: parts that were moved before are left where they are. Empty files are
    dropped.
    """
    return _open(spark, url).append(staged)


def _is_part(name: str, length: int) -> bool:
    return length > 0 and not name.startswith((".", "_"))  # checksums and marks of Hadoop


def _work_name(name: str) -> str:
    return f".{name}.{socket.gethostname()}.{os.getpid()}.tmp"


def owner_is_gone(leftover: str, name: str) -> bool:
    """Return True for the work folder of a process of this machine that has ended."""
    prefix, suffix = f".{name}.{socket.gethostname()}.", ".tmp"
    if not (leftover.startswith(prefix) and leftover.endswith(suffix)):
        return False
    pid = leftover[len(prefix) : -len(suffix)]
    return pid.isdecimal() and int(pid) != os.getpid() and not _lives(int(pid))


def _lives(pid: int) -> bool:
    """Return True if the process is alive; a zombie is not, as its parent may delay reaping it."""
    import psutil  # not at the top: executors import this file without psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _open(spark: SparkSession | None, url: str) -> _Local | _Hadoop:
    path = local_path(url)
    if path is not None:
        return _Local(path)
    assert spark is not None
    return _Hadoop(spark, url)


class _Local:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.parent / _work_name(path.name)
        self.work_url = spark_url(str(self.temporary))

    def holds_something(self) -> bool:
        return is_taken(self.path)

    def clear_leftovers(self, clear: Callable[[bytes], bool]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.temporary, ignore_errors=True)
        for entry in self.path.parent.iterdir():
            if owner_is_gone(entry.name, self.path.name):
                journal = _bytes_of(entry / JOURNAL)
                if journal is None or clear(journal):
                    shutil.rmtree(entry, ignore_errors=True)
        self.temporary.mkdir()

    def read(self, name: str) -> bytes | None:
        return _bytes_of(self.path / name)

    def add(self, name: str, content: bytes) -> None:
        hidden = self.path / f".{name}.tmp"
        _write(hidden, content)
        os.replace(hidden, self.path / name)
        sync_folder(self.path)

    def append(self, staged: str) -> int:
        folder = place_of(staged)
        if folder is None or not folder.is_dir():
            return 0
        parts = [path for path in folder.rglob("*") if path.is_file() and _is_part(path.name, path.stat().st_size)]
        moved = [(part, self.path / part.relative_to(folder)) for part in parts]
        for parent in {new.parent for _, new in moved}:
            parent.mkdir(parents=True, exist_ok=True)
        for part, new in moved:
            os.rename(part, new)
        for parent in {new.parent for _, new in moved}:
            sync_folder(parent)
        shutil.rmtree(folder.parent, ignore_errors=True)
        return len(moved)

    def names(self) -> list[str]:
        return os.listdir(self.path) if self.path.is_dir() else []

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path / name)

    def rename_parts(self, folder: str, suffix: str) -> None:
        place = self.temporary / folder
        for source in place.glob(f"{FOLDER}=*"):
            named = place / unquote(source.name.partition("=")[2])
            named.parent.mkdir(parents=True, exist_ok=True)
            source.rename(named)
        for part in place.rglob("part-*.txt"):
            part.rename(part.with_suffix(suffix))

    def add_folder(self, name: str) -> None:
        (self.temporary / name).mkdir()

    def write(self, name: str, content: bytes) -> None:
        for checksum in self.temporary.rglob("*.crc"):  # Hadoop's hidden files, which our readers do not use
            checksum.unlink()
        _write(self.temporary / name, content)
        sync_folder(self.temporary)

    def publish(self, *, replace: bool) -> None:
        if replace and self.holds_something():
            aside = self.temporary.with_suffix(".old")
            if not _exchange(self.temporary, self.path):
                os.rename(self.path, aside)
                os.rename(self.temporary, self.path)
            sync_folder(self.path.parent)
            shutil.rmtree(aside, ignore_errors=True)
            self.remove_work()  # after an exchange the work folder holds the old result
            return
        try:
            os.rename(self.temporary, self.path)
        except OSError as error:
            raise OutputExists(str(self.path)) from error
        sync_folder(self.path.parent)  # before servers commit the records of this result

    def remove_work(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; return False if the system does not support it."""
    libc = ctypes.CDLL(None, use_errno=True)
    swap = getattr(libc, "renameat2", None)
    if swap is None:
        return False
    return bool(swap(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


class _Hadoop:
    def __init__(self, spark: SparkSession, url: str) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self.path = self._jvm.org.apache.hadoop.fs.Path(url.rstrip("/"))
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self.context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self.path.toUri(), configuration)
        self.files = self.path.getFileSystem(configuration)
        self.temporary = self._beside(_work_name(self.path.getName()))
        self.work_url = self.temporary.toString()

    def _beside(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path.getParent(), name)

    def holds_something(self) -> bool:
        return bool(self.files.exists(self.path) and len(self.files.listStatus(self.path)) > 0)

    def clear_leftovers(self, clear: Callable[[bytes], bool]) -> None:
        self.files.mkdirs(self.path.getParent())
        for status in self.files.listStatus(self.path.getParent()):
            if owner_is_gone(status.getPath().getName(), self.path.getName()):
                journal = self._bytes_of(status.getPath(), JOURNAL)
                if journal is None or clear(journal):
                    self.files.delete(status.getPath(), True)
        self.files.delete(self.temporary, True)
        self.files.mkdirs(self.temporary)

    def rename_parts(self, folder: str, suffix: str) -> None:
        path = self._jvm.org.apache.hadoop.fs.Path
        place = path(self.temporary, folder)
        if not self.files.exists(place):
            return
        for status in self.files.listStatus(place):
            name = status.getPath().getName()
            if name.startswith(f"{FOLDER}="):
                named = path(place, unquote(name.partition("=")[2]))
                self.files.mkdirs(named.getParent())
                self.files.rename(status.getPath(), named)
        for part in [status.getPath() for status in self._all_files(place)]:
            name = part.getName()
            if name.startswith("part-") and name.endswith(".txt"):
                self.files.rename(part, path(part.getParent(), name.removesuffix(".txt") + suffix))

    def read(self, name: str) -> bytes | None:
        return self._bytes_of(self.path, name)

    def _bytes_of(self, folder: Any, name: str) -> bytes | None:
        path = self._jvm.org.apache.hadoop.fs.Path(folder, name)
        if not self.files.exists(path):
            return None
        stream = self.files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def add(self, name: str, content: bytes) -> None:
        hidden, path = f".{name}.tmp", self._jvm.org.apache.hadoop.fs.Path
        self._write(self.path, hidden, content)
        self._rename(path(self.path, hidden), path(self.path, name), overwrite=True)

    def append(self, staged: str) -> int:
        path, count = self._jvm.org.apache.hadoop.fs.Path, 0
        folder = path(staged)
        if not self.files.exists(folder):
            return 0
        begin = len(folder.toUri().getPath()) + 1
        for status in self._all_files(folder):
            if _is_part(status.getPath().getName(), status.getLen()):
                new = path(self.path, status.getPath().toUri().getPath()[begin:])
                self.files.mkdirs(new.getParent())
                self._rename(status.getPath(), new)
                count += 1
        self.files.delete(folder.getParent(), True)
        return count

    def _all_files(self, folder: Any) -> list[Any]:
        """Return the status of every file below the folder."""
        files, statuses = self.files.listFiles(folder, True), []
        while files.hasNext():
            statuses.append(files.next())
        return statuses

    def _rename(self, source: Any, target: Any, *, overwrite: bool = False) -> None:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        flags = self._gateway.new_array(rename, 1)
        flags[0] = rename.OVERWRITE if overwrite else rename.NONE
        self.context.rename(source, target, flags)

    def names(self) -> list[str]:
        statuses = self.files.listStatus(self.path) if self.files.exists(self.path) else []
        return [status.getPath().getName() for status in statuses]

    def remove(self, name: str) -> None:
        self.files.delete(self._jvm.org.apache.hadoop.fs.Path(self.path, name), True)

    def add_folder(self, name: str) -> None:
        self.files.mkdirs(self._jvm.org.apache.hadoop.fs.Path(self.temporary, name))

    def write(self, name: str, content: bytes) -> None:
        self._write(self.temporary, name, content)

    def _write(self, folder: Any, name: str, content: bytes) -> None:
        stream = self.files.create(self._jvm.org.apache.hadoop.fs.Path(folder, name), True)
        stream.write(bytearray(content))
        stream.close()

    def publish(self, *, replace: bool) -> None:
        aside = None
        if self.files.exists(self.path):
            if self.holds_something():
                if not replace:
                    raise OutputExists(self.path.toString())
                aside = self._beside(_work_name(self.path.getName()) + ".old")
                self._rename(self.path, aside)
            else:
                self.files.delete(self.path, False)
        self._rename(self.temporary, self.path)
        if aside is not None:
            self.files.delete(aside, True)

    def remove_work(self) -> None:
        self.files.delete(self.temporary, True)

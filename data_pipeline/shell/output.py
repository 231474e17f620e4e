"""A result folder that appears whole: written beside its place, then renamed.

Theory of operation. Executors write below ``.NAME.<host>.<pid>.tmp`` next to the destination (one file system, so
a rename moves nothing). When every part is there, the manifest ``_heronry.json`` is written and one rename gives
the folder its name: a reader sees no folder or a whole one, with the instant T it is good for. A driver that dies
leaves only a hidden folder, which the next run to the same place removes once its process is gone. Local paths use the
operating system; every other URL Hadoop's ``FileContext``, whose rename never moves into an existing folder.

To replace a result, local folders are exchanged by one ``renameat2``; where a file system cannot, and on others
than the local one, the old folder is moved aside first, so a reader may find nothing for an instant, never a mixture.
On object stores (s3a) a rename is a copy of each object: write to HDFS or a file system there
(docs/explanation/spark.md).
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
FOLDER = "__folder"  # the column whose values are the folders of a sink
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class OutputExists(ExistsAlready):
    """There is something at the output path already."""

    cure = "Choose another place or, for an --output-path, add --replace."

    def __init__(self, url: str) -> None:
        super().__init__(f"{url} holds something already")


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
    """A path or URL as Spark takes it: a path without a scheme is local, whatever the default file system is.

    Hadoop reads ``%20`` in a path as these three characters, so nothing is quoted.
    """
    local = local_path(path)
    return f"file://{local}" if local is not None else path


def place_of(url: str) -> Path | None:
    """The path of a local file or folder as ``spark_url`` and Hadoop write it, who quote nothing: ``%20`` are these
    three characters. None for another file system."""
    return Path("/" + url.removeprefix("file:").lstrip("/")) if url.startswith("file:") else None


def is_taken(path: Path) -> bool:
    """True if there is anything but an empty folder."""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


class Place:
    """A folder, where a result is or will be: small files right in it."""

    def __init__(self, spark: SparkSession | None, url: str) -> None:
        """``spark`` is needed for other file systems than the local one."""
        self.url = url
        self._files = _open(spark, url)

    def read(self, name: str) -> bytes | None:
        """What it holds; None if it is not there."""
        return self._files.read(name)

    def write(self, name: str, content: bytes) -> None:
        """A file more."""
        self._files.add(name, content)

    def names(self) -> list[str]:
        """What is right in it; nothing if it is not there."""
        return self._files.names()

    def remove(self, name: str) -> None:
        """A folder in it, with all that it holds."""
        self._files.remove(name)


class OutputFolder:
    """One result on its way. ``url`` is where it will be, ``work`` where parts are written until ``commit``. At the end
    of a block (``with``) what was written and not committed goes."""

    def __init__(
        self, spark: SparkSession, url: str, *, replace: bool = False, clear: Callable[[bytes], bool] = bool
    ) -> None:
        """Raises OutputExists, unless ``replace`` allows what is there to go. ``clear``: undoes what stands in the
        journal (``core/staged.py``) of a driver that died; False if that is still to be done."""
        self.url = url
        self.place = Place(spark, url)
        self.keep = False  # at the end, for the next run
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
        """Give the part files that Spark wrote as ``.txt`` into a folder below ``work`` another ending, and folders
        by a field (``FOLDER``) their names."""
        self._files.rename_parts(folder, suffix)

    def write(self, name: str, content: bytes) -> None:
        """A file beside the parts."""
        self._files.write(name, content)

    def commit(self, manifest: Mapping[str, Any]) -> None:
        """Give the folder its name. Raises OutputExists if somebody else's result came first."""
        self._files.write(MANIFEST, json.dumps(manifest, indent=2, sort_keys=True).encode())
        self._files.publish(replace=self._replace)

    def discard(self) -> None:
        """Remove what was written; harmless after ``commit``."""
        if not self.keep:
            self._files.remove_work()


def _work_name(name: str) -> str:
    return f".{name}.{socket.gethostname()}.{os.getpid()}.tmp"


def owner_is_gone(leftover: str, name: str) -> bool:
    """True for the work folder of a process of this machine that has ended."""
    prefix, suffix = f".{name}.{socket.gethostname()}.", ".tmp"
    if not (leftover.startswith(prefix) and leftover.endswith(suffix)):
        return False
    pid = leftover[len(prefix) : -len(suffix)]
    return pid.isdecimal() and int(pid) != os.getpid() and not _lives(int(pid))


def _lives(pid: int) -> bool:
    """A zombie does not: whoever should reap it may take its time."""
    import psutil  # here: executors import this file, and have no psutil

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
        _write(self.path / name, content)
        sync_folder(self.path)

    def names(self) -> list[str]:
        return os.listdir(self.path) if self.path.is_dir() else []

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path / name)

    def rename_parts(self, folder: str, suffix: str) -> None:
        place = self.temporary / folder
        for found in place.glob(f"{FOLDER}=*"):
            named = place / unquote(found.name.partition("=")[2])
            named.parent.mkdir(parents=True, exist_ok=True)
            found.rename(named)
        for part in place.rglob("part-*.txt"):
            part.rename(part.with_suffix(suffix))

    def write(self, name: str, content: bytes) -> None:
        for checksum in self.temporary.rglob("*.crc"):  # Hadoop's, hidden files that no reader of ours wants
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
            self.remove_work()  # after an exchange it holds the old result
            return
        try:
            os.rename(self.temporary, self.path)
        except OSError as error:
            raise OutputExists(str(self.path)) from error
        sync_folder(self.path.parent)  # servers commit what this name stands for

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
    """Swap two folders in one step; False where the system cannot."""
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
        for status in self.files.listStatus(place):
            name = status.getPath().getName()
            if name.startswith(f"{FOLDER}="):
                named = path(place, unquote(name.partition("=")[2]))
                self.files.mkdirs(named.getParent())
                self.files.rename(status.getPath(), named)
        parts = self.files.listFiles(place, True)
        found = []
        while parts.hasNext():
            found.append(parts.next().getPath())
        for part in found:
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
        self._write(self.path, name, content)

    def names(self) -> list[str]:
        found = self.files.listStatus(self.path) if self.files.exists(self.path) else []
        return [status.getPath().getName() for status in found]

    def remove(self, name: str) -> None:
        self.files.delete(self._jvm.org.apache.hadoop.fs.Path(self.path, name), True)

    def write(self, name: str, content: bytes) -> None:
        self._write(self.temporary, name, content)

    def _write(self, folder: Any, name: str, content: bytes) -> None:
        stream = self.files.create(self._jvm.org.apache.hadoop.fs.Path(folder, name), True)
        stream.write(bytearray(content))
        stream.close()

    def publish(self, *, replace: bool) -> None:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        flags = self._gateway.new_array(rename, 1)
        flags[0] = rename.NONE
        aside = None
        if self.files.exists(self.path):
            if self.holds_something():
                if not replace:
                    raise OutputExists(self.path.toString())
                aside = self._beside(_work_name(self.path.getName()) + ".old")
                self.context.rename(self.path, aside, flags)
            else:
                self.files.delete(self.path, False)
        self.context.rename(self.temporary, self.path, flags)
        if aside is not None:
            self.files.delete(aside, True)

    def remove_work(self) -> None:
        self.files.delete(self.temporary, True)

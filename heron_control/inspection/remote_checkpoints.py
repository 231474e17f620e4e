"""Checkpoints in a volume that only the topology's containers can reach, read through these containers.

All containers of the topology see the same folder, so any of them can answer. Reading is limited to lists, manifests
and pieces of parts; nothing can be written. Files cannot be held from here: if the master removes one while it is
copied, the error names it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import grpc

from heron_control.inspection.checkpoints import storage_of
from heron_control.inspection.inspector import asker_of
from heron_control.schedulers.topology_folder import load_launch
from heron_runtime.checkpoint_files import CHECKPOINTS, CheckpointFolder, checked_size, manifest_of
from heron_runtime.failures import Failure, Unavailable
from heron_runtime.model.checkpoints import Manifest
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.rpc import CONTAINER_SERVICE
from heron_runtime.wire.container import FileData, FileInfo, FileList, ListFiles, ReadFile

MANIFESTS, PARTS = "manifests", "parts"
CHUNK_BYTES = 1 << 20  # size of one piece from a container


class Asks(Protocol):
    """Client of the processes of a topology."""

    def call(self, location: Any, service: Any, method: str, message: Any) -> Any:
        """Call a process.

        Raises:
            RpcError: The process does not answer.
        """


class RemoteCheckpoints(CheckpointFolder):
    """Read-only checkpoints of one topology.

    A missing file raises FileNotFoundError. Unavailable is raised if no container answers.
    """

    def __init__(self, folder: Path, asks: Asks, locations: Iterable[Any]) -> None:
        super().__init__(folder)
        self._asks = asks
        self._locations = list(locations)

    @contextlib.contextmanager
    def open_part(self, name: str) -> Iterator[Callable[[int, int], bytes]]:
        """Return ``read(offset, size)`` of a part's file; it returns fewer bytes at the end."""
        path = f"{PARTS}/{name}"
        self._ask("ReadCheckpointFile", ReadFile(path, 0, 0), path)
        yield lambda offset, size: self._read(path, offset, size)

    def read_manifest(self, checkpoint: int) -> Manifest:
        """Return a manifest.

        Raises:
            OSError: The manifest cannot be read.
            MalformedMessage: The manifest is damaged.
            Unavailable: No container answers.
        """
        path = f"{MANIFESTS}/{checkpoint}.json"
        size = self._ask("ReadCheckpointFile", ReadFile(path, 0, 0), path).size_bytes
        return manifest_of(checkpoint, self._read(path, 0, checked_size(size)))

    def manifest_time(self, checkpoint: int) -> float:
        """Return when the manifest was written, in seconds since 1970.

        Raises:
            OSError: The manifest cannot be read.
            Unavailable: No container answers.
        """
        wanted = f"{MANIFESTS}/{checkpoint}.json"
        entry = next((info for info in self._list(MANIFESTS) if info.path == wanted), None)
        if entry is None:
            raise _not_there(wanted)
        return entry.modified_at

    def manifests(self) -> list[int]:
        """Return the numbers of all checkpoints with a manifest, in order.

        Raises:
            Unavailable: No container answers.
        """
        names = [Path(info.path) for info in self._list(MANIFESTS)]
        return sorted(int(name.stem) for name in names if name.suffix == ".json" and name.stem.isdecimal())

    def parts(self) -> list[str]:
        """Return the names of all parts, including unfinished ones.

        Raises:
            Unavailable: No container answers.
        """
        return sorted(Path(info.path).name for info in self._list(PARTS))

    def _list(self, folder: str) -> tuple[FileInfo, ...]:
        try:
            listed: FileList = self._ask("ListCheckpointFiles", ListFiles(folder), folder)
        except FileNotFoundError:
            return ()
        return listed.files

    def _read(self, path: str, offset: int, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            at = offset + len(data)
            part: FileData = self._ask(
                "ReadCheckpointFile", ReadFile(path, at, min(CHUNK_BYTES, size - len(data))), path
            )
            if not part.data or part.offset != at:
                break
            data += part.data
        return bytes(data)

    def _ask(self, method: str, question: Any, path: str) -> Any:
        """Return the first answer of a container. One that fails is not asked again."""
        why = "no container is available"
        while self._locations:
            try:
                return self._asks.call(self._locations[0], CONTAINER_SERVICE, method, question)
            except grpc.RpcError as error:
                code = error.code() if isinstance(error, grpc.Call) else None
                if code is grpc.StatusCode.NOT_FOUND:
                    raise _not_there(path) from error
                why = str(code)
                del self._locations[0]
        raise Unavailable(
            f"checkpoints are in a volume of the topology's containers, none of which answers ({why})",
            "Try again when it runs.",
        )


def _not_there(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def reachable_storage(record: TopologyRecord) -> CheckpointFolder:
    """Return a topology's storage: its folder, or the view of its containers.

    Raises:
        UsageError: The topology is stateless.
        Failure: The storage cannot be reached.
    """
    storage, home = storage_of(record), Path(record.execution.home)
    launch = load_launch(home)
    if launch is None or launch.home == str(home):
        return storage
    if setting(record.definition.config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE):
        raise Failure(
            f"the checkpoints of {record.definition.name} are in {storage.folder} of its containers, which give "
            "access to their own folder only",
            "Read that folder where it is mounted, or omit topology.stateful.checkpoint.storage.",
        )
    return RemoteCheckpoints(Path(launch.home, CHECKPOINTS), asker_of(record), record.containers)

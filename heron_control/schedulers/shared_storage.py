"""Storage that all nodes and the API server share, with a separate folder for each topology.

It holds the files that must outlive containers and their nodes: checkpoints, and files that user code keeps in
``/var/lib/heronry/shared``. A file in each folder names its owner, so that the folder can be removed when nothing else
of its topology is left.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from heron_control.schedulers import container_spec
from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.engine import READ_BY_ALL, EngineError, TopologyOwner
from heron_runtime.failures import NotAllowed
from heron_runtime.files import entries, replace_file
from heron_runtime.model.settings import Keys, setting

OWNER_FILE = "owner.json"
REMOVE_SECS = 10.0  # a container that is ending on another node may still write and remove files
_CHUNK = 1 << 20


class SharedStorage:
    """Folders of a cluster's topologies in the shared storage.

    ``folder`` is the path of the storage in this process. ``project`` is the cluster. Folders of other clusters are
    ignored.
    """

    def __init__(self, folder: Path, project: str) -> None:
        self.folder = folder
        self._project = project

    def owners(self) -> dict[str, TopologyOwner]:
        """Return the owner of each topology's folder by the folder's name.

        Raises:
            EngineError: An owner file cannot be read.
        """
        owners = {}
        for file in self.folder.glob(f"*/{OWNER_FILE}"):
            try:
                labels = json.loads(file.read_bytes())
                if labels[container_spec.CLUSTER_LABEL] == self._project:
                    owners[file.parent.name] = TopologyOwner(
                        labels[container_spec.TOPOLOGY_LABEL], labels[container_spec.TOPOLOGY_ID_LABEL]
                    )
            except FileNotFoundError:  # it is being removed
                continue
            except (OSError, ValueError, KeyError) as error:
                raise EngineError(
                    f"{file} cannot be read: {error}; remove its folder if no topology uses it"
                ) from error
        return owners

    def make(self, name: str, labels: Mapping[str, str]) -> None:
        """Create the folder of a topology, unless it exists.

        Raises:
            EngineError: The folder cannot be created.
        """
        folder = self.folder / name
        try:
            folder.mkdir(mode=0o711, exist_ok=True)
            for part in container_spec.SHARED_MOUNTS:
                (folder / part).mkdir(mode=0o700, exist_ok=True)
            replace_file(folder / OWNER_FILE, json.dumps(dict(labels)).encode(), 0o400)
        except OSError as error:
            raise EngineError(f"the shared storage {self.folder} cannot store a folder: {error}") from error

    def put(self, name: str, folder: Path, path: str) -> None:
        """Copy the files below ``folder`` to the place that containers of a topology see as ``path``.

        Raises:
            EngineError: ``path`` is not in the shared storage, or a file cannot be copied.
        """
        part = next((part for part, where in container_spec.SHARED_MOUNTS.items() if where == path), None)
        if part is None:
            raise EngineError(f"{path}: not a directory of the shared storage, so no file can be copied there")
        try:
            for file in sorted(folder.rglob("*")):
                target = self.folder / name / part / file.relative_to(folder)
                if file.is_dir():
                    target.mkdir(mode=0o700, exist_ok=True)
                    continue
                with file.open("rb") as source:
                    replace_file(target, iter(partial(source.read, _CHUNK), b""), READ_BY_ALL, durable=True)
                os.chmod(target, READ_BY_ALL)  # whatever the umask says
        except OSError as error:
            raise EngineError(f"the shared storage {self.folder} cannot store a checkpoint: {error}") from error

    def remove(self, name: str) -> None:
        """Remove the folder of a topology, including the remains of a failed attempt.

        The owner file is removed last, so that the rest can still be attributed to the topology.

        Raises:
            PermissionError: The folder contains files of another user.
            EngineError: The folder cannot be removed.
        """
        folder, deadline = self.folder / name, time.monotonic() + REMOVE_SECS
        if not (folder / OWNER_FILE).exists():
            return
        while folder.exists():
            try:
                for entry in entries(folder):
                    if entry.name != OWNER_FILE:
                        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
                shutil.rmtree(folder)
            except PermissionError:
                raise
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY) or time.monotonic() > deadline:
                    raise EngineError(f"{folder} cannot be removed: {error}") from error
                time.sleep(0.05)


def check_state(config: Mapping[str, Any], storage: Path | None, cure: str) -> None:
    """Check that all nodes can reach the checkpoints of a topology.

    ``cure`` is the hint that explains how to configure shared storage.

    Raises:
        NotAllowed: Some nodes cannot reach the checkpoints.
    """
    if setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) != "EFFECTIVELY_ONCE":
        return
    mode = Keys.TOPOLOGY_RELIABILITY_MODE.name
    if storage is None:
        raise NotAllowed(
            f"{mode}: EFFECTIVELY_ONCE needs storage that all nodes share, and none is configured",
            f"{cure}, or choose ATLEAST_ONCE.",
        )
    stated = setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE)
    if stated is not None and not str(stated).startswith(f"file://{container_spec.SHARED_PATH}/"):
        raise NotAllowed(
            f"{Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE.name}: {stated} is not seen by all nodes",
            f"Leave it out, or use a folder in {container_spec.SHARED_PATH}.",
        )


class OfNodes:
    """Mixin with the file operations of engines with several nodes.

    Each node has its own disks besides the shared storage.
    """

    _storage: SharedStorage | None

    def read_folder(self, spec: ContainerSpec, path: str) -> Generator[bytes, None, None]:
        """Raise EngineError: files of a container are on its node and are removed with it."""
        raise EngineError(f"{path} is on the nodes' own disks and went with the containers")
        yield b""  # a generator, as ``ContainerEngine`` says

    def write_folder(self, spec: ContainerSpec, folder: Path, path: str) -> None:
        """Copy a folder directly into the shared storage.

        Raises:
            EngineError: Shared storage is not configured, or the copy fails.
        """
        if self._storage is None or spec.volume is None:
            raise EngineError(f"{path} of containers: no file can be copied there without shared storage")
        self._storage.put(spec.volume.name, folder, path)

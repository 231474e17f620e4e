"""Everything local: ``HERONRY_HOME`` with the state store, the topologies' folders and ``config.yaml``.

``state/``, ``topologies/CLUSTER/ROLE/ENV/NAME/{log-files,package,metrics}/``, ``config.yaml``; all 0700.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heron_cli.address import LOCAL
from heron_runtime.failures import Failure, NotAllowed
from heron_runtime.files import replace_file
from heron_runtime.user_home import NAME, home_of_user, read_config

if TYPE_CHECKING:
    from heron_runtime.state.local import StoreAddress

SPACE_NEEDED_BYTES = 16 * 1024 * 1024


class Home:
    """The folder of this user's local clusters."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_user(cls) -> Home:
        """``HERONRY_HOME``, by default in the user's data folder."""
        return cls(home_of_user())

    @property
    def store(self) -> StoreAddress:
        """Where the local cluster keeps its state. Raises StoreError."""
        return self.store_of(LOCAL)

    def store_of(self, cluster: str) -> StoreAddress:
        """Where one of the clusters of this home keeps its state. Raises StoreError."""
        from heron_runtime.state.local import local_store  # here, since not every command looks into a store

        return local_store(self.root, cluster)

    @property
    def config_file(self) -> Path:
        """Settings by cluster."""
        return self.root / NAME

    def prepare(self) -> None:
        """Make the folder, for this user alone. Raises NotAllowed, Failure."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            found = self.root.stat()
            if found.st_uid != os.geteuid() and os.geteuid() != 0:
                raise NotAllowed(f"{self.root} belongs to another user", "Set HERONRY_HOME to a folder of yours.")
            if stat.S_IMODE(found.st_mode) & 0o066:  # to pass through is no harm: heron.user.code.user may have to
                self._tighten()
        except (FileExistsError, NotADirectoryError) as error:
            raise Failure(
                f"{error.filename} is a file, not a folder", "Move it away, or set HERONRY_HOME to another folder."
            ) from error

    def need_space(self) -> None:
        """Raises NotAllowed, Failure where a topology could write neither its state nor its logs."""
        if not os.access(self.root, os.W_OK):  # asked first: a read-only file system often has no free space either
            raise NotAllowed(
                f"{self.root} cannot be written", "Make it writable, or set HERONRY_HOME to another folder."
            )
        free = shutil.disk_usage(self.root).free
        if free < SPACE_NEEDED_BYTES:
            raise Failure(
                f"the disk of {self.root} is full: {free // 1024} KiB are left",
                "Free some space, or set HERONRY_HOME to another disk.",
            )

    def _tighten(self) -> None:
        """Ours alone from now on; but a folder that holds other things is not ours to close."""
        known = {
            "state",
            "topologies",
            "history",
            "cache",
            "config.yaml",
            "credentials.json",
            "output",
            "pipeline",
            "spark",
        }
        strangers = sorted({entry.name for entry in self.root.iterdir()} - known)
        if strangers and not (self.root / "state").is_dir():
            raise Failure(
                f"{self.root} is open to other users and holds other things ({strangers[0]})",
                "Set HERONRY_HOME to a folder of its own.",
            )
        self.root.chmod(0o700)

    def read_config(self) -> dict[str, dict[str, Any]]:
        """Cluster to settings, as ``config.yaml`` has them. Raises Failure, OSError."""
        return read_config(self.root)

    def write_config(self, config: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace ``config.yaml`` at once (0600)."""
        import yaml

        self.prepare()
        text = yaml.safe_dump({name: dict(values) for name, values in config.items() if values}, sort_keys=True)
        replace_file(self.config_file, text, 0o600)

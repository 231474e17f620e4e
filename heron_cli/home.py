"""The home folder of the user (``HERONRY_HOME``), with the settings and the credentials in it.

It contains ``state/``, ``topologies/CLUSTER/ROLE/ENV/NAME/{log-files,package,metrics}/``, ``config.yaml`` and
``credentials.json``, with mode 0700. ``credentials.json`` (0600) holds the logins of ``heron login`` by the name that
the user gave to the cluster::

    {"docker": {"api": "http://127.0.0.1:9000", "cluster": "docker", "token": "…"}}
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heron_runtime.failures import Failure, NotAllowed
from heron_runtime.files import replace_file
from heron_runtime.user_home import NAME, home_of_user, read_config

if TYPE_CHECKING:
    from heron_runtime.state import StoreAddress

CREDENTIALS_FILE = "credentials.json"
SPACE_NEEDED_BYTES = 16 * 1024 * 1024
OWN_ENTRIES = frozenset(
    {"state", "topologies", "history", "cache", "checkpoints", NAME, CREDENTIALS_FILE, "output", "pipeline", "spark"}
)


class Home:
    """The home folder of a user."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_user(cls) -> Home:
        """Return ``HERONRY_HOME``, by default a folder in the data folder of the user."""
        return cls(home_of_user())

    def state_store(self, cluster: str) -> StoreAddress:
        """Return the address of the state store of ``local`` or ``slurm``. Raises StoreError."""
        from heron_runtime.state import local_store  # imported here, since few commands use a store

        return local_store(self.root, cluster)

    @property
    def config_file(self) -> Path:
        """The file with the settings of each cluster."""
        return self.root / NAME

    def prepare(self, *, for_topology: bool = False) -> None:
        """Create the folder and close it to other users.

        Args:
            for_topology: Also check that a topology can write its state and logs.

        Raises:
            NotAllowed: The folder belongs to another user, or is not writable for a topology.
            Failure: The path is a file, the folder is open to others and contains files of other programs, or the disk
                is too full for a topology.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            status = self.root.stat()
            if status.st_uid != os.geteuid() and os.geteuid() != 0:
                raise NotAllowed(f"{self.root} belongs to another user", "Set HERONRY_HOME to a folder of your own.")
            if stat.S_IMODE(status.st_mode) & 0o066:  # search permission is harmless: heron.user.code.user may need it
                self._restrict_access()
        except (FileExistsError, NotADirectoryError) as error:
            raise Failure(
                f"{error.filename} is a file, not a folder", "Move it away, or set HERONRY_HOME to another folder."
            ) from error
        if for_topology:
            self._check_space()

    def _check_space(self) -> None:
        if not os.access(self.root, os.W_OK):  # first, since a read-only file system often has no free space either
            raise NotAllowed(f"{self.root} is not writable", "Make it writable, or set HERONRY_HOME to another folder.")
        free = shutil.disk_usage(self.root).free
        if free < SPACE_NEEDED_BYTES:
            raise Failure(
                f"{self.root}: the disk is full, {free // 1024} KiB are left",
                "Free some space, or set HERONRY_HOME to another disk.",
            )

    def _restrict_access(self) -> None:
        """Set mode 0700, unless the folder contains files of other programs."""
        unknown = sorted({entry.name for entry in self.root.iterdir()} - OWN_ENTRIES)
        if unknown and not (self.root / "state").is_dir():
            raise Failure(
                f"{self.root}: open to other users, and contains unknown files ({unknown[0]})",
                "Set HERONRY_HOME to a folder that only Heronry uses.",
            )
        self.root.chmod(0o700)

    def read_config(self) -> dict[str, dict[str, Any]]:
        """Return the settings of each cluster. Raises Failure, OSError."""
        return read_config(self.root)

    def write_config(self, config: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace ``config.yaml`` atomically (mode 0600)."""
        import yaml

        self.prepare()
        text = yaml.safe_dump({name: dict(values) for name, values in config.items() if values}, sort_keys=True)
        replace_file(self.config_file, text, 0o600)


@dataclass(frozen=True, slots=True)
class SavedLogin:
    """URL of an API server, its own name of the cluster, and the token of the user (left out of the repr)."""

    api: str
    cluster: str
    token: str = field(repr=False)


def read_credentials(home: Home) -> dict[str, SavedLogin]:
    """Return the logins by the name of their cluster.

    Raises:
        NotAllowed: Other users can read the file.
        Failure: The file is damaged.
    """
    path = home.root / CREDENTIALS_FILE
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
    except FileNotFoundError:
        return {}
    if stat.S_IMODE(mode) & 0o077:
        cure = f"Run chmod 0600 {path}, and replace the tokens by new ones."
        raise NotAllowed(f"{path}: other users can read the tokens in it", cure)
    try:
        return {name: SavedLogin(**entry) for name, entry in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise Failure(f"{path}: invalid content", "Remove the file, and run `heron login` again.") from error


def write_credentials(home: Home, logins: Mapping[str, SavedLogin]) -> None:
    """Replace ``credentials.json`` atomically (mode 0600); remove it without logins. Raises OSError."""
    home.prepare()
    path = home.root / CREDENTIALS_FILE
    if not logins:
        path.unlink(missing_ok=True)
        return
    entries = {name: asdict(login) for name, login in sorted(logins.items())}
    replace_file(path, json.dumps(entries, indent=1) + "\n", 0o600)

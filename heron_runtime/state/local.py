"""Address of the state store of a cluster without an API server: a folder in the home, or set in ``config.yaml``.

::

    local:
      heron.state.url: zookeeper://zk1:2181,zk2:2181,zk3:2181/heronry/ada
      heron.state.credential.file: zookeeper-credential      # beside config.yaml, or an absolute path
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heron_runtime.failures import Failure
from heron_runtime.model.settings import STATE_KEYS
from heron_runtime.state.store import StoreError
from heron_runtime.user_home import NAME, read_config

FOLDERS = {"local": "state", "slurm": "state-slurm"}  # by cluster, in a home


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """URL of a store, and the path of the file with its credential ("" without a credential)."""

    url: str
    credential_file: str = ""


def local_store(home: Path, cluster: str = "local") -> StoreAddress:
    """Return the address of the store of a cluster in ``FOLDERS``. ``home`` is absolute. Raises StoreError."""
    settings = _settings(home, cluster)
    url, file = (settings.get(key) or "" for key in STATE_KEYS)
    if not isinstance(url, str) or not isinstance(file, str):
        raise StoreError(f"{home / NAME}: {STATE_KEYS[0]} and {STATE_KEYS[1]} are texts")
    files = (home / FOLDERS[cluster]).as_uri().replace("file:", "files:", 1)
    return StoreAddress(url or files, str(home / Path(file).expanduser()) if file else "")


def _settings(home: Path, cluster: str) -> dict[str, Any]:
    try:
        return read_config(home).get(cluster, {})
    except (Failure, OSError) as error:
        raise StoreError(str(error), error.cure if isinstance(error, Failure) else "") from error

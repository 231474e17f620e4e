"""State store: ``open_store`` selects an implementation by URL. The protocol is in ``store``, the tree in ``paths``.

Every process of a topology gets its store from ``store_of(launch)``, so that the credential is always included.

The store of a cluster without an API server is a folder in the home (``local_store``), or set in ``config.yaml``::

    local:
      heron.state.url: zookeeper://zk1:2181,zk2:2181,zk3:2181/heronry/ada
      heron.state.credential.file: zookeeper-credential      # beside config.yaml, or an absolute path
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heron_runtime.extensions import STATE_STORES, ExtensionError
from heron_runtime.failures import Failure
from heron_runtime.launch import Launch
from heron_runtime.model.settings import STATE_KEYS, Keys, setting
from heron_runtime.state.store import StateStore, StoreError, StoreMaker, StoreParameters
from heron_runtime.user_home import NAME, read_config


def store_of(launch: Launch) -> StateStore:
    """Return the store of a topology, not yet open, with its settings and credential. Raises StoreError."""
    credential = launch.store_credential or None
    return open_store(launch.store_url, credential_file=credential, create=False, **launch.settings)


def open_address(address: StoreAddress, **settings: Any) -> StateStore:
    """Return the store at ``address``, not yet open. Raises StoreError."""
    return open_store(address.url, credential_file=address.credential_file or None, **settings)


def open_store(
    url: str,
    *,
    session_timeout_secs: float | None = None,
    credential_file: str | Path | None = None,
    create: bool = True,
    **settings: Any,
) -> StateStore:
    """Return the store of a URL, not yet open.

    Args:
        url: ``files:///path``, ``memory://[name]``, ``zookeeper://host:port,…[/root]`` (``zookeeper+tls://…``), or a
            URL with the scheme of a plug-in.
        session_timeout_secs: Overrides ``heron.state.session.timeout.secs``.
        credential_file: Credential for ZooKeeper with ACLs (``heron_runtime.state.credential``).
        create: Let ``open`` create the folder of a store. Without it, ``open`` raises StoreMissing.
        **settings: ``heron.*`` keys, such as ``Launch.settings``.

    Raises:
        StoreError: The URL does not name a store, or the credential cannot be read.
    """
    timeout = session_timeout_secs
    if timeout is None:
        timeout = setting(settings, Keys.HERON_STATE_SESSION_TIMEOUT_SECS)
    parts = urlsplit(url)
    try:
        make: StoreMaker = STATE_STORES.load(parts.scheme)
    except ExtensionError as error:
        raise StoreError(f"{url!r} names no store: {error.line()}") from error
    return make(StoreParameters(parts, timeout, credential_file, create))


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

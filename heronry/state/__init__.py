"""The state store: ``open_store`` picks one by its URL. The protocol is in ``store``, the tree in ``paths``.

Every process of a topology takes its store from ``store_of(launch)``, so that no one forgets the credential.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from heronry.launch import Launch
from heronry.model.settings import setting
from heronry.state.credential import read_credential
from heronry.state.local import StoreAddress
from heronry.state.store import StateStore, StoreError

SESSION_TIMEOUT = "heron.state.session.timeout.secs"


def store_of(launch: Launch) -> StateStore:
    """The store of a topology, not yet open, with its settings and credential. Raises StoreError."""
    return open_store(launch.store_url, credential_file=launch.store_credential or None, **launch.settings)


def open_address(address: StoreAddress, **settings: Any) -> StateStore:
    """The store at ``address``, not yet open. Raises StoreError."""
    return open_store(address.url, credential_file=address.credential_file or None, **settings)


def open_store(
    url: str, *, session_timeout_secs: float | None = None, credential_file: str | Path | None = None, **settings: Any
) -> StateStore:
    """The store of a URL, not yet open: ``files:///path``, ``memory://[name]`` or ``zookeeper://host:port,…[/root]``.

    ``settings`` are ``heron.*`` keys (``Launch.settings`` fits); ``session_timeout_secs`` overrides
    ``heron.state.session.timeout.secs``. ``credential_file`` is for ZooKeeper with ACLs (``heronry.state.credential``).
    Raises StoreError for a URL that names no store, and for a credential that cannot be read.
    """
    timeout = setting(settings, SESSION_TIMEOUT) if session_timeout_secs is None else session_timeout_secs
    parts = urlsplit(url)
    if credential_file is not None and parts.scheme in ("files", "memory"):
        raise StoreError(f"{url!r} takes no credential: the mode of its folder protects it; leave the file out")
    if parts.scheme == "files":
        if parts.netloc or not parts.path.startswith("/") or parts.path == "/":
            raise StoreError(f"{url!r}: give an absolute folder, as files:///home/me/heronry/state (three slashes)")
        from heronry.state.files import FilesStore

        return FilesStore(unquote(parts.path), session_timeout_secs=timeout)
    if parts.scheme == "memory":
        from heronry.state.memory import MemoryStore, shared_tree

        return MemoryStore(shared_tree(parts.netloc + parts.path))
    if parts.scheme == "zookeeper":
        credential = None if credential_file is None else read_credential(credential_file)
        from heronry.state.zookeeper import ZookeeperStore

        return ZookeeperStore(
            parts.netloc, root=unquote(parts.path), session_timeout_secs=timeout, credential=credential
        )
    raise StoreError(f"{url!r} names no store; use files:///path, zookeeper://host:port/root or memory://name")

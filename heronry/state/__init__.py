"""The state store: ``open_store`` picks one by its URL. The protocol is in ``store``, the tree in ``paths``."""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import unquote, urlsplit

from heronry.model.settings import setting
from heronry.state.store import StateStore, StoreError

SESSION_TIMEOUT = "heron.state.session.timeout.secs"


def open_store(url: str, *, session_timeout_secs: float | None = None, **settings: Any) -> StateStore:
    """The store of a URL, not yet open: ``files:///path``, ``memory://[name]`` or ``zookeeper://host:port,…[/root]``.

    ``settings`` are ``heron.*`` keys (``Launch.settings`` fits); ``session_timeout_secs`` overrides
    ``heron.state.session.timeout.secs``. Raises StoreError for a URL that names no store.
    """
    timeout = setting(settings, SESSION_TIMEOUT) if session_timeout_secs is None else session_timeout_secs
    parts = urlsplit(url)
    if parts.scheme == "files":
        if parts.netloc or not parts.path.startswith("/") or parts.path == "/":
            raise StoreError(f"{url!r}: give an absolute folder, as files:///home/me/heronry/state (three slashes)")
        from heronry.state.files import FilesStore

        return FilesStore(unquote(parts.path), session_timeout_secs=timeout)
    if parts.scheme == "memory":
        from heronry.state.memory import MemoryStore, shared_tree

        return MemoryStore(shared_tree(parts.netloc + parts.path))
    if parts.scheme == "zookeeper":
        try:
            zookeeper = importlib.import_module("heronry.state.zookeeper")
        except ModuleNotFoundError as error:
            raise StoreError(f"{url!r}: this build has no ZooKeeper store ({error.name} is missing)") from error
        store: StateStore = zookeeper.ZookeeperStore(parts.netloc, root=parts.path, session_timeout_secs=timeout)
        return store
    raise StoreError(f"{url!r} names no store; use files:///path, zookeeper://host:port/root or memory://name")

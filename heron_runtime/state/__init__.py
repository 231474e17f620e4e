"""The state store: ``open_store`` picks one by its URL. The protocol is in ``store``, the tree in ``paths``.

Every process of a topology takes its store from ``store_of(launch)``, so that no one forgets the credential.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heron_runtime.extensions import STATE_STORES, ExtensionError
from heron_runtime.launch import Launch
from heron_runtime.model.settings import Keys, setting
from heron_runtime.state.local import StoreAddress
from heron_runtime.state.store import StateStore, StoreError, StoreMaker, StoreParameters


def store_of(launch: Launch) -> StateStore:
    """The store of a topology, not yet open, with its settings and credential. Raises StoreError."""
    return open_store(launch.store_url, credential_file=launch.store_credential or None, **launch.settings)


def open_address(address: StoreAddress, **settings: Any) -> StateStore:
    """The store at ``address``, not yet open. Raises StoreError."""
    return open_store(address.url, credential_file=address.credential_file or None, **settings)


def open_store(
    url: str, *, session_timeout_secs: float | None = None, credential_file: str | Path | None = None, **settings: Any
) -> StateStore:
    """The store of a URL, not yet open: ``files:///path``, ``memory://[name]``, ``zookeeper://host:port,…[/root]``
    (``zookeeper+tls://…``), or one of a scheme that is plugged in.

    ``settings`` are ``heron.*`` keys (``Launch.settings`` fits); ``session_timeout_secs`` overrides
    ``heron.state.session.timeout.secs``. ``credential_file`` is for ZooKeeper with ACLs
    (``heron_runtime.state.credential``). Raises StoreError for a URL that names no store, and for a credential that
    cannot be read.
    """
    timeout = session_timeout_secs
    if timeout is None:
        timeout = setting(settings, Keys.HERON_STATE_SESSION_TIMEOUT_SECS)
    parts = urlsplit(url)
    try:
        make: StoreMaker = STATE_STORES.load(parts.scheme)
    except ExtensionError as error:
        raise StoreError(f"{url!r} names no store: {error.line()}") from error
    return make(StoreParameters(parts, timeout, credential_file))

"""State store: ``open_store`` selects an implementation by URL. The protocol is in ``store``, the tree in ``paths``.

Every process of a topology gets its store from ``store_of(launch)``, so that the credential is always included.
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

"""Identity of the state store that a control plane has worked with, kept in its home.

A store that has lost its contents names no topology. A control plane that trusted it would remove everything that runs.
"""

from __future__ import annotations

from pathlib import Path

from heron_runtime.files import replace_file
from heron_runtime.state.store import StateStore, StoreError, StoreReplaced, check_identity, store_identity

STORE_ID_FILE = "store-id"


def known_store_id(home: Path) -> str:
    """Return the recorded identity, "" without a record. Raises StoreError."""
    try:
        return Path(home, STORE_ID_FILE).read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise StoreError(f"{home / STORE_ID_FILE}: {error}") from error


def check_store(store: StateStore, home: Path) -> str:
    """Check that the store still is the recorded one. Every store passes without a record.

    Returns:
        The recorded identity, "" without a record.

    Raises:
        StoreReplaced: It is another one.
        StoreError: The store does not answer, or the record cannot be read.
    """
    known = known_store_id(home)
    try:
        check_identity(store, known)
    except StoreReplaced as error:
        error.cure = (
            f"restore the data of the state store; or, to end the topologies that still run, remove "
            f"{home / STORE_ID_FILE} and start the API server again"
        )
        raise
    return known


def confirm_store(store: StateStore, home: Path) -> None:
    """Record the identity of the store, or check that it still is the recorded one.

    Raises:
        StoreReplaced: It is another one.
        StoreError: The store does not answer, or the record cannot be read or written.
    """
    if not check_store(store, home) and (found := store_identity(store, create=True)):
        try:
            replace_file(home / STORE_ID_FILE, found, 0o600)
        except OSError as error:
            raise StoreError(f"{home / STORE_ID_FILE}: {error.strerror}") from error

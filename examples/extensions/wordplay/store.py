"""State store ``ram://NAME``: the state of a temporary cluster in the memory of this machine.

It is the files store in a folder of ``/dev/shm``. A store of another kind implements the whole protocol
(``heron_runtime.state.store.StateStore``) and should pass ``tests/unit/state/test_store_contract.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

from heron_runtime.model.ids import is_safe_name
from heron_runtime.state.files import FilesStore
from heron_runtime.state.store import StateStore, StoreError, StoreParameters


def store_of_url(parameters: StoreParameters) -> StateStore:
    """Return the store of a URL, not yet open. Raises StoreError."""
    parameters.refuse_credential()
    name = parameters.url.netloc
    if not is_safe_name(name):
        raise StoreError(f"{parameters.url.geturl()!r}: write ram://NAME")
    folder = Path("/dev/shm", f"heronry-{os.geteuid()}-{name}")
    return FilesStore(folder, session_timeout_secs=parameters.session_timeout_secs)

"""A setting for finding mistakes: values of keyed state that user code changes behind the back of a checkpoint.

Theory of operation. A value that can be changed in place counts as changed when its key is read or written; so a
reference that outlives its call, or the value of a ``peek``, can be changed without the checkpoint taking it, and after
a restore the change is gone. Here a digest of each such value is kept from one checkpoint to the next: where it differs
and nobody has touched the key in between, a checkpoint would have lost the change. That costs a pickle of all values at
each checkpoint, so it is off unless asked for (``topology.stateful.check.references``).
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Collection, Mapping
from typing import Any


class KeptReference(TypeError):
    """A value was changed by a reference that had outlived the call of user code that read it."""


class References:
    """The digests of one task. ``unchangeable``: types of values that need none."""

    def __init__(self, unchangeable: Collection[object]) -> None:
        self._unchangeable = unchangeable
        self._digests: dict[Any, bytes] = {}

    def lost(self, values: Mapping[Any, Any], touched: Collection[Any]) -> list[Any]:
        """The keys whose values have changed since the last call of this, but for those ``touched`` since then."""
        before = self._digests
        self._digests = {
            key: digest
            for key, value in values.items()
            if type(value) not in self._unchangeable and (digest := _digest(value)) is not None
        }
        return [key for key, now in self._digests.items() if key not in touched and before.get(key, now) != now]


def _digest(value: Any) -> bytes | None:
    """None for what cannot be written: the checkpoint says so itself."""
    try:
        return hashlib.blake2b(pickle.dumps(value, 5), digest_size=16).digest()
    except Exception:  # whatever user code's own values raise
        return None

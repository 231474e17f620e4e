"""The watches and session listeners of a store's client, the same table in every store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from heron_runtime.state.store import SessionState

log = logging.getLogger(__name__)


class Watch:
    """A watched path, and whom to call. Stores add what they remember of it."""

    def __init__(self, path: str, changed: Callable[[str], None]) -> None:
        self.path = path
        self.changed = changed


W = TypeVar("W", bound=Watch)


class WatchTable(Generic[W]):
    """The watches and listeners of one client, in the order in which they came. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[W, None] = {}
        self._listeners: dict[object, Callable[[SessionState], None]] = {}

    def __bool__(self) -> bool:
        """True if anybody is to be called."""
        return bool(self._watches or self._listeners)

    def __contains__(self, watch: W) -> bool:
        return watch in self._watches

    def watch(self, watch: W) -> Callable[[], None]:
        """Add a watch; returns the undo."""
        with self._lock:
            self._watches[watch] = None
        return lambda: self._forget(self._watches, watch)

    def listen(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """Add a listener; returns the undo."""
        key = object()
        with self._lock:
            self._listeners[key] = changed
        return lambda: self._forget(self._listeners, key)

    def watches(self) -> list[W]:
        """Every watch that stands now."""
        with self._lock:
            return list(self._watches)

    def listeners(self) -> list[Callable[[SessionState], None]]:
        """Every listener that stands now."""
        with self._lock:
            return list(self._listeners.values())

    def tell(self, state: SessionState) -> None:
        """Call the listeners."""
        for listener in self.listeners():
            call(listener, state)

    def _forget(self, table: dict[Any, Any], key: object) -> None:
        with self._lock:
            table.pop(key, None)


def call(callback: Callable[..., None], *arguments: object) -> None:
    """Call; what the callback raises is logged."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of the store failed")

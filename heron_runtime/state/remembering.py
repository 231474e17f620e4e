"""A store that remembers some nodes while their watches say nothing: for loops that look again and again.

A look while nothing happens asks nobody. All nodes are read anew, in one breath, at the first look, and when

* a watch has fired since, as each does after a reconnect, too;
* this client has written: its own watch may fire later than it looks;
* the session is not connected: no watch may be relied on, and a store that is away says so to a reading;
* the last reading is ``SURE_SECS`` old: a watch that gets lost delays what it had to say, and hides nothing.

So what is read here may be as old as a watch takes to arrive. The first reading is the store's own: who starts because
of a submission finds it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from heron_runtime.state.store import Node, Operation, SessionState, StateStore
from heron_runtime.state.wrapped import WrappedStore

SURE_SECS = 6.0  # a session's usual length: a watch that is lost costs no more than a process that is


class RememberingStore(WrappedStore):
    """``store``, and what stood at ``paths``. ``clock`` is in seconds; any thread may use it."""

    def __init__(self, store: StateStore, paths: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self._paths = tuple(paths)
        self._clock = clock
        self._undo: list[Callable[[], None]] = []
        self._lock = threading.Lock()  # guards the two below
        self._known: dict[str, Node | None] = {}
        self._sure_until = 0.0
        self._doubted = True  # set by anybody, so that no callback waits for a reading; cleared by who reads

    def open(self) -> None:
        """As the store's, and begin to watch. Raises StoreError, and is closed then."""
        self._store.open()
        try:
            self.attach()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """As the store's."""
        self.detach()
        self._store.close()

    def attach(self) -> None:
        """Begin to watch; for a store that is open already. Idempotent. Raises StoreError."""
        for path in self._paths[len(self._undo) :]:
            self._undo.append(self._store.watch(path, self._doubt))

    def detach(self) -> None:
        """Watch no more, and leave the store open. Idempotent."""
        undo, self._undo = self._undo, []
        for each in undo:
            each()
        self._doubted = True

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """What is remembered, if all of ``paths`` are; else as the store's."""
        if not set(paths) <= set(self._paths):
            return self._store.get_all(paths)
        with self._lock:
            if not self._sure():
                self._read()
            return [self._known[path] for path in paths]

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """As the store's."""
        try:
            return self._store.commit(operations)
        finally:
            self._doubted = True

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """As the store's; whoever is called and looks then finds the change."""

        def called(which: str) -> None:
            self._doubt(which)
            changed(which)

        return self._store.watch(path, called)

    def _sure(self) -> bool:
        watched = bool(self._undo) and self._store.session() is SessionState.CONNECTED
        return watched and not self._doubted and self._clock() < self._sure_until

    def _read(self) -> None:
        began = self._clock()
        self._doubted = False  # before it is read: what changes meanwhile is doubted
        try:
            self._known = dict(zip(self._paths, self._store.get_all(self._paths), strict=True))
        except BaseException:
            self._doubted = True
            raise
        self._sure_until = began + SURE_SECS

    def _doubt(self, _: str) -> None:
        self._doubted = True

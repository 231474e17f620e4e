"""The thread of a ZooKeeper store that calls watches and session listeners.

ZooKeeper's watches fire once and go with the connection. Here a watch stays: when it fires it is *armed* again first,
and called then, so whatever changes after the call's own reading fires it again. After a reconnect all are armed and
called. An arming that fails (the store is away) is tried on until it succeeds, and is followed by a call.

The thread also tells listeners of the session's state, in order. It waits for nothing but the answer to an arming,
which fails as soon as the connection does; so SUSPENDED and LOST are told at once.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from kazoo.protocol.states import EventType

from heron_runtime.state.store import SessionState, StoreError, StoreUnavailable
from heron_runtime.state.watches import Watch, WatchTable, call

RETRY_SECS = 0.5
JOIN_SECS = 15.0
log = logging.getLogger(__name__)

Trigger = Callable[[Any], None]


class _ArmedWatch(Watch):
    """``trigger`` is what the store arms ZooKeeper with, the same each time."""

    def __init__(self, path: str, changed: Callable[[str], None], due: Callable[[_ArmedWatch], None]) -> None:
        super().__init__(path, changed)
        self.queued = False  # guarded by the thread's lock
        self._due = due

    def trigger(self, event: Any) -> None:
        """Something changed; on kazoo's thread."""
        if event.type != EventType.NONE:  # a lost connection is heard of otherwise
            self._due(self)


class WatchThread:
    """``arm(path, trigger)`` makes ZooKeeper call ``trigger`` at the next change; it raises StoreError."""

    def __init__(self, arm: Callable[[str, Trigger], None]) -> None:
        self._arm = arm
        self._table: WatchTable[_ArmedWatch] = WatchTable()
        self.listen = self._table.listen
        self._lock = threading.Lock()  # guards the watches' flags
        # Not a SimpleQueue, whose get may outlive its timeout for ever (``heron_instance/shell/inbox.py`` says when).
        self._queue: queue.Queue[_ArmedWatch | SessionState | Callable[[], None] | None] = queue.Queue()
        self._failed: list[_ArmedWatch] = []  # owned by the thread
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to call."""
        self._queue = queue.Queue()
        self._failed = []
        with self._lock:
            for watch in self._table.watches():
                watch.queued = False
        self._thread = threading.Thread(target=self._run, name="store-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No call begins after this, unless it is called by a callback, which ends first."""
        thread, self._thread = self._thread, None
        self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_SECS)

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Add a watch and arm it; returns the undo. Raises StoreError only if it can never be armed."""
        watch = _ArmedWatch(path, changed, self._due)
        undo = self._table.watch(watch)
        try:
            self._arm(path, watch.trigger)
        except StoreUnavailable:
            self._due(watch)  # nothing is known: it is called once the store answers
        except BaseException:
            undo()
            raise
        return undo

    def tell(self, state: SessionState) -> None:
        """Have the listeners told."""
        self._queue.put(state)

    def call(self, job: Callable[[], None]) -> None:
        """Have the thread do this."""
        self._queue.put(job)

    def fire_all(self) -> None:
        """Have every watch armed and called."""
        for watch in self._table.watches():
            self._due(watch)

    def _due(self, watch: _ArmedWatch) -> None:
        with self._lock:
            if watch.queued:
                return
            watch.queued = True
        self._queue.put(watch)

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=RETRY_SECS if self._failed else None)
            except queue.Empty:
                failed, self._failed = self._failed, []
                for watch in failed:
                    self._due(watch)
                continue
            if item is None:
                return
            if isinstance(item, _ArmedWatch):
                self._serve(item)
            elif isinstance(item, SessionState):
                self._table.tell(item)
            else:
                call(item)

    def _serve(self, watch: _ArmedWatch) -> None:
        with self._lock:
            watch.queued = False
        if watch not in self._table:
            return
        try:
            self._arm(watch.path, watch.trigger)
        except StoreError as error:
            if not isinstance(error, StoreUnavailable):
                log.error("watching %s: %s", watch.path, error)
            self._failed.append(watch)
            return
        call(watch.changed, watch.path)

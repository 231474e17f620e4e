"""Server-sent events: tell every open page which topology has changed.

An event says *that* something changed, not what it is now: the page requests what it shows. A slow listener loses
nothing when its changes are merged, because its queue holds each topology once. Limits: ``MAX_LISTENERS`` streams,
``MAX_OF_ONE`` per client address (a proxy is one), ``MAX_WAITING`` changes per stream; beyond that one event says
``everything``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from heron_runtime.failures import Unavailable
from heron_tracker.self_metrics import TrackerMetrics

MAX_LISTENERS = 200
MAX_OF_ONE = 50  # a browser opens at most six connections to a server
MAX_WAITING = 1000
PING_SECONDS = 15.0
RETRY_MILLISECONDS = 2000
GRACE_SECONDS = 1.0  # for ``EventBroadcast.close`` to end every stream before the library cuts it


@dataclass(frozen=True, slots=True)
class StoreChange:
    """A topology was ``added``, ``changed`` or ``removed``, or the cluster's store is ``stale`` or ``back``.

    Attributes:
        cluster: name of the cluster.
        topology: name of the topology, empty for a change of the cluster.
        what: kind of the change.
        environ: environment of the topology, empty if unknown.
    """

    cluster: str
    topology: str
    what: str
    environ: str = ""


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Changes that a listener receives. An empty set accepts everything, as does an unknown name of a change."""

    clusters: frozenset[str] = frozenset()
    environs: frozenset[str] = frozenset()
    topologies: frozenset[str] = frozenset()

    def accepts(self, change: StoreChange) -> bool:
        """Return True if the listener receives the change."""
        return (
            (not self.clusters or change.cluster in self.clusters)
            and (not self.topologies or not change.topology or change.topology in self.topologies)
            and (not self.environs or not change.environ or change.environ in self.environs)
        )


class TooManyListeners(Unavailable):
    """``MAX_LISTENERS`` streams are open, or ``MAX_OF_ONE`` from this address."""


class EventListener:
    """Queue of one open stream."""

    def __init__(self, changes: ChangeFilter, client: str) -> None:
        self.client = client
        self._changes = changes
        self._waiting: dict[tuple[str, str], StoreChange] = {}
        self._everything = False
        self._wake = asyncio.Event()
        self._ended = False

    def publish(self, change: StoreChange) -> None:
        """Queue a change, if it passes the filter."""
        if not self._changes.accepts(change):
            return
        if len(self._waiting) >= MAX_WAITING:
            self._everything = True
            self._waiting.clear()
        elif not self._everything:
            self._waiting.pop((change.cluster, change.topology), None)
            self._waiting[change.cluster, change.topology] = change
        self._wake.set()

    def end(self) -> None:
        """End the stream."""
        self._ended = True
        self._wake.set()

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Yield events until ``end``."""
        yield {"event": "hello", "data": "{}", "retry": RETRY_MILLISECONDS}
        while not self._ended:
            await self._wake.wait()
            self._wake.clear()
            if self._everything:
                self._everything = False
                yield {"event": "everything", "data": "{}"}
            changes, self._waiting = list(self._waiting.values()), {}
            for change in changes:
                event = {"cluster": change.cluster, "topology": change.topology, "change": change.what}
                yield {"event": "topology" if change.topology else "cluster", "data": json.dumps(event)}


class EventBroadcast:
    """All open streams."""

    def __init__(self, metrics: TrackerMetrics) -> None:
        self._listeners: set[EventListener] = set()
        self._metrics = metrics
        self._closed = False

    def stream(self, changes: ChangeFilter, client: str = "") -> EventStream:
        """Return the response for a new listener at the address ``client``. Raises TooManyListeners."""
        if self._closed or len(self._listeners) >= MAX_LISTENERS:
            raise TooManyListeners(f"{MAX_LISTENERS} event streams are open")
        if sum(listener.client == client for listener in self._listeners) >= MAX_OF_ONE:
            raise TooManyListeners(f"{MAX_OF_ONE} event streams are open from this address")
        listener = EventListener(changes, client)
        self._listeners.add(listener)
        self._metrics.listeners(len(self._listeners))
        return EventStream(listener, self)

    def leave(self, listener: EventListener) -> None:
        """Remove the listener of an ended stream."""
        self._listeners.discard(listener)
        self._metrics.listeners(len(self._listeners))

    def publish(self, change: StoreChange) -> None:
        """Queue a change for all listeners."""
        for listener in self._listeners:
            listener.publish(change)

    def close(self) -> None:
        """End all streams and refuse new ones."""
        self._closed = True
        for listener in self._listeners:
            listener.end()


class EventStream(EventSourceResponse):
    """Response that sends the events of a listener, and pings in between."""

    def __init__(self, listener: EventListener, broadcast: EventBroadcast) -> None:
        super().__init__(
            listener.events(), sep="\n", ping=PING_SECONDS, shutdown_grace_period=GRACE_SECONDS,
            ping_message_factory=lambda: ServerSentEvent(comment="still there", sep="\n"),
        )  # fmt: skip
        self._listener = listener
        self._broadcast = broadcast

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until either side ends the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._broadcast.leave(self._listener)

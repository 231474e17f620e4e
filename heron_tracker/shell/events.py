"""Server-sent events: which topology has changed, told to every open page.

An event says *that* something changed, not what it is now: whoever listens asks for what it shows. So a listener that
is slow loses nothing when its changes are merged: its queue holds each topology once. Bounds: MAX_LISTENERS streams,
MAX_WAITING changes each; beyond that one event says ``everything``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

from heron_tracker.shell.watch import Change

MAX_LISTENERS = 200
MAX_WAITING = 1000
PING_SECONDS = 15.0
RETRY_MILLISECONDS = 2000


class TooManyListeners(Exception):
    """There are MAX_LISTENERS open streams."""


class Listener:
    """One open stream."""

    def __init__(self, wanted: Callable[[Change], bool]) -> None:
        self._wanted = wanted
        self._waiting: dict[tuple[str, str], Change] = {}
        self._everything = False
        self._news = asyncio.Event()
        self._ended = False

    def tell(self, change: Change) -> None:
        """A change that may be of interest."""
        if not self._wanted(change):
            return
        if len(self._waiting) >= MAX_WAITING:
            self._everything = True
            self._waiting.clear()
        elif not self._everything:
            self._waiting.pop((change.cluster, change.topology), None)
            self._waiting[change.cluster, change.topology] = change
        self._news.set()

    def end(self) -> None:
        """Close the stream."""
        self._ended = True
        self._news.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """The stream as bytes, until ``end``."""
        yield f"retry: {RETRY_MILLISECONDS}\n".encode() + _event("hello", {})
        while not self._ended:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), PING_SECONDS)
            if not self._news.is_set():
                yield b": still there\n\n"
                continue
            self._news.clear()
            if self._everything:
                self._everything = False
                yield _event("everything", {})
            changes, self._waiting = list(self._waiting.values()), {}
            for change in changes:
                kind = "topology" if change.topology else "cluster"
                yield _event(kind, {"cluster": change.cluster, "topology": change.topology, "change": change.what})


class Broadcast:
    """All open streams."""

    def __init__(self, counted: Callable[[int], None]) -> None:
        self._listeners: set[Listener] = set()
        self._counted = counted
        self._closed = False

    def listen(self, wanted: Callable[[Change], bool]) -> Listener:
        """A new stream. Raises TooManyListeners."""
        if self._closed or len(self._listeners) >= MAX_LISTENERS:
            raise TooManyListeners(f"{MAX_LISTENERS} event streams are open")
        listener = Listener(wanted)
        self._listeners.add(listener)
        self._counted(len(self._listeners))
        return listener

    def leave(self, listener: Listener) -> None:
        """The stream has ended. Idempotent."""
        self._listeners.discard(listener)
        self._counted(len(self._listeners))

    def tell(self, change: Change) -> None:
        """Tell everybody."""
        for listener in self._listeners:
            listener.tell(change)

    def close(self) -> None:
        """End all streams, and take no more."""
        self._closed = True
        for listener in self._listeners:
            listener.end()


def _event(kind: str, data: dict[str, str]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()

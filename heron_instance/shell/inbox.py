"""Inbox of the executor thread: items from the gateway thread and from signal handlers.

It is not a ``SimpleQueue``, whose ``get`` with a timeout may wait forever (CPython 3.11, in C). When its lock is free
although the queue is empty, which is so after each item that came while no thread waited, ``get`` reads the clock a
second time. If the deadline has passed by then, the negative rest means "no timeout" to the lock below it. A wait of
some microseconds, or a processor lost at that moment, is enough, and nothing else wakes an idle spout.

So there is a deque and a *bell*, a lock that is held while nothing is new. A producer appends first and rings then;
the executor, after taking the bell, checks the deque again before it sleeps. So nothing gets lost between the check and
the sleep; at worst it checks once in vain. Neither side holds anything while it works, so a signal handler may
interrupt both.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from heron_runtime.model.checkpoints import CheckpointCommand, StatePart
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.data import Packet


@dataclass(frozen=True, slots=True)
class StreamManagerLinked:
    """The stream manager of this incarnation has sent its hello."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class PlanArrived:
    """A plan has arrived."""

    plan: PhysicalPlan


@dataclass(frozen=True, slots=True)
class PauseChanged:
    """Backpressure begins or ends."""

    paused: bool


@dataclass(frozen=True, slots=True)
class WeightsChanged:
    """The weights of tuples for downstream tasks have changed."""

    weights: dict[int, int]


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """Another process has taken this task."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommandArrived:
    """A checkpoint command of the master has arrived."""

    wish: CheckpointCommand


@dataclass(frozen=True, slots=True)
class Linked:
    """A link of this generation carries frames."""

    generation: int


@dataclass(frozen=True, slots=True)
class Unlinked:
    """The link of this generation has ended."""

    generation: int


@dataclass(frozen=True, slots=True)
class PartWritten:
    """A snapshot is on disk."""

    part: StatePart


@dataclass(frozen=True, slots=True)
class PartFailed:
    """A snapshot of this generation could not be written."""

    generation: int
    checkpoint: int
    why: str


class Stop:
    """SIGTERM has arrived."""


class WakeUp:
    """There is room in data-out, or user code has something to emit."""


CheckpointItem = CommandArrived | Linked | Unlinked | PartWritten | PartFailed
InboxItem = (
    Packet
    | StreamManagerLinked
    | PlanArrived
    | PauseChanged
    | WeightsChanged
    | LeaveRequested
    | Stop
    | WakeUp
    | CheckpointItem
)


class Inbox:
    """Queue to the executor. Any thread and any signal handler may put items."""

    def __init__(self) -> None:
        self._items: deque[InboxItem] = deque()
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, item: InboxItem) -> None:
        """Append an item, and wake the executor if it sleeps."""
        self._items.append(item)
        if self._bell.locked():
            try:
                self._bell.release()
            except RuntimeError:  # another thread, or a handler in this one, has just rung
                pass

    def take(self, wait_seconds: float | None) -> list[InboxItem]:
        """Return all items. If there are none, wait for the first (None: without a timeout)."""
        items, bell = self._items, self._bell
        if not items and wait_seconds != 0:
            self._sleep(wait_seconds)
        bell.acquire(blocking=False)  # before the check: an append after it rings again
        taken: list[InboxItem] = []
        while items:
            taken.append(items.popleft())
        return taken

    def wait(self, wait_seconds: float) -> bool:
        """Wait for an item without taking it. Return False on timeout; a late bell may return True without an item."""
        return bool(self._items) or self._bell.acquire(timeout=max(0.0, wait_seconds))

    def _sleep(self, wait_seconds: float | None) -> None:
        """Sleep until there is an item, or the time is up."""
        items, bell = self._items, self._bell
        if wait_seconds is None:
            while not items:
                bell.acquire()
            return
        deadline = time.monotonic() + wait_seconds
        # The bell may have been rung for an item that was taken before.
        while bell.acquire(timeout=max(0.0, deadline - time.monotonic())) and not items:
            pass

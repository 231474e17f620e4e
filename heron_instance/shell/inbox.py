"""What the gateway thread and signal handlers say to the executor thread: a queue of small items.

Not a ``SimpleQueue``: its ``get`` with a timeout may wait for ever (CPython 3.11, in C). When its lock is free although
the queue is empty, which is so after each item that came while nobody waited, it looks at the clock a second time; if
the deadline has passed by then, the negative rest means "no timeout" to the lock below it. A wait of some microseconds,
or a processor lost at that moment, is enough, and a spout whose tuples are all settled is woken by nobody else.

So there is a deque and a *bell*, a lock that is held while nothing is new. Whoever puts appends first and rings then;
the executor, when it has taken the bell, looks at the deque again before it sleeps. So between "looked" and "sleeps"
nothing gets lost; at worst it looks once in vain. Neither side holds anything while it works, so a signal handler may
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
class StreamManagerSaidHello:
    """A connection stands; the incarnation is that of the stream manager."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class PlanArrived:
    """A plan."""

    plan: PhysicalPlan


@dataclass(frozen=True, slots=True)
class PauseChanged:
    """Backpressure begins or ends."""

    paused: bool


@dataclass(frozen=True, slots=True)
class WeightsChanged:
    """What tuples weigh for tasks we send to."""

    weights: dict[int, int]


@dataclass(frozen=True, slots=True)
class MustLeave:
    """Another process has taken this task."""

    reason: str


@dataclass(frozen=True, slots=True)
class WishArrived:
    """What the master wants of checkpoints."""

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
    """SIGTERM."""


class Wake:
    """There is room in data-out, or the spout itself has something to emit."""


OfState = WishArrived | Linked | Unlinked | PartWritten | PartFailed
Item = Packet | StreamManagerSaidHello | PlanArrived | PauseChanged | WeightsChanged | MustLeave | Stop | Wake | OfState


class Inbox:
    """Any thread and any signal handler may put; the executor takes."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, item: Item) -> None:
        """Append, and wake the executor if it sleeps."""
        self._items.append(item)
        if self._bell.locked():
            try:
                self._bell.release()
            except RuntimeError:  # another thread, or a handler in this one, has just rung
                pass

    def take(self, wait_seconds: float | None) -> list[Item]:
        """All that is there; if there is nothing, wait (None: for ever) for the first."""
        items, bell = self._items, self._bell
        if not items and wait_seconds != 0:
            self._sleep(wait_seconds)
        bell.acquire(blocking=False)  # before the look: who appends after it rings again
        found: list[Item] = []
        while items:
            found.append(items.popleft())
        return found

    def wait(self, wait_seconds: float) -> bool:
        """Wait for an item and take none; False when the time is up. May be True without an item: a late bell."""
        return bool(self._items) or self._bell.acquire(timeout=max(0.0, wait_seconds))

    def _sleep(self, wait_seconds: float | None) -> None:
        """Until there is an item, or the time is up."""
        items, bell = self._items, self._bell
        if wait_seconds is None:
            while not items:
                bell.acquire()
            return
        deadline = time.monotonic() + wait_seconds
        # The bell may have been rung for an item that is taken already.
        while bell.acquire(timeout=max(0.0, deadline - time.monotonic())) and not items:
            pass

"""What the gateway thread and signal handlers say to the executor thread: a queue of small items."""

from __future__ import annotations

from dataclasses import dataclass
from queue import Empty, SimpleQueue

from heronry.model.plan import PhysicalPlan
from heronry.wire.data import Packet


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
class MustLeave:
    """Another process has taken this task."""

    reason: str


class Stop:
    """SIGTERM."""


class Wake:
    """There is room in data-out, or the spout itself has something to emit."""


Item = Packet | StreamManagerSaidHello | PlanArrived | PauseChanged | MustLeave | Stop | Wake


class Inbox:
    """Any thread and any signal handler may put; the executor takes."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self.put = self._queue.put

    def take(self, wait_seconds: float | None) -> list[Item]:
        """All that is there; if there is nothing, wait (None: for ever) for the first."""
        queue = self._queue
        found: list[Item] = []
        if queue.empty():
            if wait_seconds == 0:
                return found
            try:
                found.append(queue.get(timeout=wait_seconds))
            except Empty:
                return found
        while not queue.empty():
            found.append(queue.get())
        return found

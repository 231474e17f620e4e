"""What this stream manager allows others to send, renewed by halves.

A ``CreditGrant`` is a limit in bytes since the hello of a connection; frames count by weight, which is never less than
their bytes (``heron_runtime/model/weights.py``). The sender may send while what it has sent is below the
limit, so it may pass the limit by one frame. When half of the window is used up, the limit moves on: a credit message
costs as much as a packet, so it must be rare.

*Upload grants* (local instance → here) count a frame as used when it has arrived; a renewal is withheld while any
destination the instance has sent to is over its bound. *Peer grants* (peer → here, one per local task) count a frame as
used when it is handed on to the instance. With each limit goes how much of what came on the connection is used, and
once a second where that has changed: the sender counts the rest as lost if the connection breaks.

Memory. Let H be the high water mark, W_u and W_p the upload and peer windows, F the largest frame, I the local
instances, P the peers that send here, D the destination queues (local instances, and remote tasks sent to). A queue
over 2 H stops the renewals of everyone who feeds it, so it holds at most

    2 H + F  (what it may hold and still be open, and the frame that closed it)
    + I (W_u + F)  (what each local instance may still send)
    + P (W_p + F)  (for a local task: what each peer may still send; nobody can withhold these, they are per task)

and the process D times that; ``memory_bound`` is this formula and ``StreamManager.check`` holds each queue to it.
Frames that a changed plan moves from one queue to another are outside of it until they have drained.
Acks, fails and verdicts need no credit: their number is bounded by the tuples and roots in flight.
"""

from __future__ import annotations

from collections.abc import Container

from heron_runtime.model.weights import UNKNOWN_WEIGHT


class CreditGrant:
    """A sender's limit: weight since the hello of its connection."""

    __slots__ = ("container", "limit", "received", "task", "told", "used", "window")

    def __init__(self, window: int, container: int = 0, task: int = 0, open_now: bool = True) -> None:
        self.window = window
        self.container = container
        self.task = task
        self.received = 0
        self.used = 0
        self.limit = window if open_now else 0
        self.told = 0

    @property
    def taken(self) -> int:
        """How much is used of what came on this connection; what the one before left comes first."""
        return max(0, self.used)

    def restart(self, open_now: bool) -> None:
        """A new connection: count from zero, but what is still queued from the old one takes up room."""
        queued = self.received - self.used
        self.received = 0
        self.used = -queued
        self.told = 0
        self.limit = max(0, self.window - queued) if open_now else 0

    def receive(self, weight: int) -> bool:
        """A frame of that weight has come; False if it was sent without credit."""
        allowed = self.received < self.limit
        self.received += weight
        return allowed

    def use(self, weight: int) -> None:
        """A frame of that weight has gone on."""
        self.used += weight

    def renewal(self) -> int | None:
        """The new limit, when half of the window is used up; else None."""
        limit = self.used + self.window
        if limit - self.limit < self.window // 2:
            return None
        self.limit = limit
        return limit


def memory_bound(
    high: int, upload_window: int, peer_window: int, largest_frame: int, instances: int, peers: int
) -> int:
    """The most bytes one destination queue can hold (see above)."""
    return (
        2 * high + largest_frame + instances * (upload_window + largest_frame) + peers * (peer_window + largest_frame)
    )


class TupleWeights:
    """Of every task of the plan."""

    def __init__(self) -> None:
        self._by_task: dict[int, int] = {}
        self._changed: dict[int, None] = {}

    def of(self, task: int) -> int:
        """What a tuple weighs for this task at least."""
        return self._by_task.get(task, UNKNOWN_WEIGHT)

    def tell(self, task: int, weight: int) -> None:
        """The task's own word."""
        if self.of(task) != weight:
            self._by_task[task] = weight
            self._changed[task] = None

    def keep_only(self, tasks: Container[int]) -> None:
        """Forget the weights of all other tasks."""
        self._by_task = {task: weight for task, weight in self._by_task.items() if task in tasks}

    def take_changed(self) -> list[int]:
        """The tasks whose weight has changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def check(self) -> None:
        """Assert every invariant."""
        assert not self._changed, "changes are told by the end of each event"

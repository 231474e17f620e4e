"""Credit that this stream manager grants to senders, and the weight of one tuple for each task.

A ``CreditGrant`` is a limit in bytes since the hello of a connection. Frames count by weight, which is never less than
their bytes (``heron_runtime/model/dataflow.py``). A sender may send while the weight it has sent is below the limit, so
it can exceed the limit by one frame. The limit advances when half of the window is used: a credit message costs as much
as a packet, so it must be rare.

*Upload grants* (local instance to here) count a frame as used when it has arrived. A renewal is withheld while any
destination of the instance is over its bound. *Peer grants* (peer to here, one per local task) count a frame as used
when it is passed on to the instance. Each limit is sent together with the weight used so far, and again once a second
while that changes: if the connection breaks, the sender counts the rest as lost.

Memory. Let H be the high water mark, W_u and W_p the upload and peer windows, F the largest frame, I the local
instances, P the peers that send here, D the destination queues (local instances, and remote tasks sent to). A queue
over 2 H stops the renewals of all senders that feed it, so it holds at most

    2 H + F  (what it may hold and still be open, and the frame that closed it)
    + I (W_u + F)  (what each local instance may still send)
    + P (W_p + F)  (for a local task: what each peer may still send; these are per task and cannot be withheld)

and the process D times that. ``memory_bound`` is this formula, and ``StreamManager.check`` compares each queue with it.
Frames that a new plan moves from one queue to another are not part of it until they have drained. Acks, fails and
verdicts need no credit: the tuples and roots in flight bound their number.
"""

from __future__ import annotations

from collections.abc import Container

from heron_runtime.model.dataflow import UNKNOWN_WEIGHT


class CreditGrant:
    """Limit of one sender, as weight since the hello of its connection."""

    __slots__ = ("container", "limit", "received", "reported", "task", "used", "window")

    def __init__(self, window: int, container: int = 0, task: int = 0, open_now: bool = True) -> None:
        self.window = window
        self.container = container
        self.task = task
        self.received = 0
        self.used = 0
        self.limit = window if open_now else 0
        self.reported = 0

    @property
    def taken(self) -> int:
        """Weight used of what has arrived on this connection. Frames left by the previous connection come first."""
        return max(0, self.used)

    def restart(self, open_now: bool) -> None:
        """Start counting for a new connection. Frames still queued from the previous one take up room."""
        queued = self.received - self.used
        self.received = 0
        self.used = -queued
        self.reported = 0
        self.limit = max(0, self.window - queued) if open_now else 0

    def receive(self, weight: int) -> bool:
        """Count a frame that has arrived. Return False if it was sent without credit."""
        allowed = self.received < self.limit
        self.received += weight
        return allowed

    def use(self, weight: int) -> None:
        """Count a frame that has left."""
        self.used += weight

    def renewal(self) -> int | None:
        """Advance the limit if half of the window is used, and return it; else return None."""
        limit = self.used + self.window
        if limit - self.limit < self.window // 2:
            return None
        self.limit = limit
        return limit


def memory_bound(
    high: int, upload_window: int, peer_window: int, largest_frame: int, instances: int, peers: int
) -> int:
    """Return the most bytes that one destination queue can hold, by the formula above."""
    return (
        2 * high + largest_frame + instances * (upload_window + largest_frame) + peers * (peer_window + largest_frame)
    )


class TupleWeights:
    """Weight of one tuple for each task of the plan (``heron_runtime/model/dataflow.py``).

    A bolt reports its weight to its stream manager together with its credit. The stream manager passes it to its peers
    and to those local instances that send to the bolt. Tuples for a task that has not reported yet count as heavy, so
    that it receives few until its speed is known.
    """

    def __init__(self) -> None:
        self._by_task: dict[int, int] = {}
        self._changed: dict[int, None] = {}

    def of(self, task: int) -> int:
        """Return the weight of one tuple for a task."""
        return self._by_task.get(task, UNKNOWN_WEIGHT)

    def update(self, task: int, weight: int) -> None:
        """Store the weight that a task has reported."""
        if self.of(task) != weight:
            self._by_task[task] = weight
            self._changed[task] = None

    def keep_only(self, tasks: Container[int]) -> None:
        """Forget the weights of all other tasks."""
        self._by_task = {task: weight for task, weight in self._by_task.items() if task in tasks}

    def take_changed(self) -> list[int]:
        """Return the tasks whose weight has changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def check(self) -> None:
        """Assert every invariant."""
        assert not self._changed, "changed weights are sent by the end of each event"

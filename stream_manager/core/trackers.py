"""Ack trackers of all local spouts. Their verdicts are queued on the links of the spouts."""

from __future__ import annotations

from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.data import Ack, Fail, Init, Reason
from heron_runtime.wire.master import NOBODY, Bottleneck
from stream_manager.core.ack_tracker import AckTracker, Column, column, refuse_zero
from stream_manager.core.connections import ConnectionTable, ProtocolViolation
from stream_manager.core.plan import PlanRoutes

TOO_MANY = Reason(
    FailKind.FAILED,
    message="more tuples in flight than the stream manager tracks; lower topology.max.spout.pending",
)


def timed_out(holder: Bottleneck) -> Reason:
    """Return the reason for expired roots; ``holder`` is the bottleneck that the topology master reports."""
    if not holder.component:
        text = "not acked within the message timeout; no queue is long, so a bolt still holds it or a process lost it"
        return Reason(FailKind.TIMEOUT, message=text)
    return Reason(FailKind.TIMEOUT, holder.component, holder.task, f"bottleneck: {holder}")


def roots_of(message: Ack | Fail) -> Column:
    """Return the roots of a message.

    Raises:
        ProtocolViolation: A root is 0.
    """
    roots = column(message.roots)
    try:
        refuse_zero(roots)
    except ValueError as error:
        raise ProtocolViolation(str(error)) from None
    return roots


class AckTrackers:
    """One ``AckTracker`` per local spout task."""

    def __init__(self, buckets: int, connections: ConnectionTable) -> None:
        self._trackers: dict[int, AckTracker] = {}
        self._connections = connections
        self.opened = 0
        self.completed = 0
        self.failed = 0
        self.expired = 0
        self._unacked_since_ms: int | None = None  # when roots were open and none has been acked since
        self._completed_seen = 0
        self._open_ms = 0  # last time at which roots were open
        self._timeout_ms: int | None = None
        self.holder = NOBODY  # bottleneck task, as the topology master reports it
        self._late = 0  # acks and fails for tasks without a tracker, or of removed trackers
        self._buckets = buckets

    @property
    def late(self) -> int:
        """Number of acks and fails of unknown roots."""
        return self._late + sum(tracker.late for tracker in self._trackers.values())

    @property
    def live(self) -> int:
        """Number of roots in flight."""
        return sum(tracker.live for tracker in self._trackers.values())

    def set_routes(self, routes: PlanRoutes, now_ms: int) -> None:
        """Apply a new plan: create and remove trackers."""
        config, spouts = routes.plan.topology.config, routes.local_spouts
        timeout_ms: int | None = None
        if setting(config, Keys.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS):
            timeout_ms = 1000 * setting(config, Keys.TOPOLOGY_MESSAGE_TIMEOUT_SECS)
        self._timeout_ms = timeout_ms
        for task in [task for task in self._trackers if task not in spouts]:
            self._late += self._trackers.pop(task).late
        for task in spouts:
            if task not in self._trackers:
                tracker = self._trackers[task] = AckTracker(task, timeout_ms, self._buckets, now_ms)
                incarnation = self._connections.instance(task).incarnation
                if incarnation is not None:  # its hello arrived before the plan
                    tracker.begin(incarnation)

    def begin(self, task: int, incarnation: int) -> None:
        """Start a new incarnation of a spout task. Its older roots are forgotten."""
        tracker = self._trackers.get(task)
        if tracker is not None:
            tracker.begin(incarnation)

    def init(self, task: int, message: Init) -> None:
        """Open new roots.

        Raises:
            ProtocolViolation: The task is not a local spout, or the roots are not of its incarnation.
        """
        tracker = self._trackers.get(task)
        if tracker is None:
            raise ProtocolViolation(f"task {task} opens roots but is not a spout of this container")
        try:
            complete, refused = tracker.init(message.first_root, message.xors)
        except ValueError as error:
            raise ProtocolViolation(str(error)) from None
        self.opened += len(message.xors) // 8
        self._complete(task, complete)
        self._fail(task, refused, TOO_MANY)

    def ack(self, message: Ack) -> None:
        """Apply acks. Those for unknown spout tasks are counted as late.

        Raises:
            ProtocolViolation: A root is 0.
        """
        tracker = self._trackers.get(message.task)
        if tracker is None:
            self._late += len(message.roots) // 8
        else:
            self._complete(message.task, tracker.ack(roots_of(message), column(message.xors)))

    def fail(self, message: Fail) -> None:
        """Apply fails. Those for unknown spout tasks are counted as late.

        Raises:
            ProtocolViolation: A root is 0.
        """
        tracker = self._trackers.get(message.task)
        if tracker is None:
            self._late += len(message.roots) // 8
        else:
            self._fail(message.task, tracker.fail(roots_of(message)), message.reason)

    def verdict(self, task: int, roots: bytes, reason: Reason | None) -> None:
        """Queue verdicts for a spout task. ``reason`` None means complete."""
        instance = self._connections.instance(task)
        instance.link.settlements.verdict(task, roots, reason)
        self._connections.dirty[instance] = None

    def stalled_ms(self, now_ms: int) -> int:
        """Return how long no root was acked while some were open; 0 below the message timeout or without one."""
        if self._unacked_since_ms is None or self._timeout_ms is None:
            return 0
        unacked_ms = now_ms - self._unacked_since_ms
        return unacked_ms if unacked_ms >= self._timeout_ms else 0

    def _note_flow(self, now_ms: int) -> None:
        """Update since when no root has been acked. A rest as long as the message timeout resets it."""
        if self.completed != self._completed_seen:
            self._completed_seen, self._unacked_since_ms = self.completed, None
        if self.live:
            self._open_ms = now_ms
            if self._unacked_since_ms is None:
                self._unacked_since_ms = now_ms
        elif self._timeout_ms is None or now_ms - self._open_ms >= self._timeout_ms:
            self._unacked_since_ms = None

    def tick(self, now_ms: int) -> None:
        """Expire roots."""
        self._note_flow(now_ms)
        for task, tracker in self._trackers.items():
            expired = tracker.tick(now_ms)
            if len(expired):
                self.expired += len(expired)
                self._fail(task, expired, timed_out(self.holder))

    def totals(self) -> dict[str, float]:
        """Return counters by metric name."""
        return {
            "__roots_opened": self.opened,
            "__roots_completed": self.completed,
            "__roots_failed": self.failed,
            "__roots_expired": self.expired,
            "__late_acks": self.late,
        }

    def check(self) -> None:
        """Assert every invariant."""
        for tracker in self._trackers.values():
            tracker.check()

    def _complete(self, task: int, roots: Column) -> None:
        if len(roots):
            self.completed += len(roots)
            self.verdict(task, roots.tobytes(), None)

    def _fail(self, task: int, roots: Column, reason: Reason) -> None:
        if len(roots):
            self.failed += len(roots)
            self.verdict(task, roots.tobytes(), reason)

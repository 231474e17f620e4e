"""The trackers of all local spouts, and the verdicts they reach."""

from __future__ import annotations

from collections.abc import Callable

from heronry.model.plan import PhysicalPlan
from heronry.model.reasons import FailKind
from heronry.model.settings import setting
from heronry.wire.data import Ack, Fail, Init, Reason
from stream_manager.core.ack_tracker import AckTracker, Column, column
from stream_manager.core.neighbours import ProtocolViolation

TIMED_OUT = Reason(FailKind.TIMEOUT)
TOO_MANY = Reason(
    FailKind.FAILED,
    message="more tuples in flight than the stream manager tracks; lower topology.max.spout.pending",
)

Tell = Callable[[int, bytes, Reason | None], None]


class Tracking:
    """One tracker per local spout task. ``tell(task, roots, reason)`` takes each verdict."""

    tell: Tell

    def __init__(self, buckets: int) -> None:
        self.trackers: dict[int, AckTracker] = {}
        self.opened = 0
        self.completed = 0
        self.failed = 0
        self.expired = 0
        self._late = 0  # for tasks without a tracker, or of trackers that are gone
        self._buckets = buckets

    @property
    def late(self) -> int:
        """Acks and fails of unknown roots."""
        return self._late + sum(tracker.late for tracker in self.trackers.values())

    @property
    def live(self) -> int:
        """Roots in flight."""
        return sum(tracker.live for tracker in self.trackers.values())

    def set_spouts(self, plan: PhysicalPlan, spouts: tuple[int, ...], now_ms: int) -> None:
        """These are the local spout tasks now."""
        config = plan.topology.config
        timeout_ms: int | None = None
        if setting(config, "topology.enable.message.timeouts"):
            timeout_ms = 1000 * int(setting(config, "topology.message.timeout.secs"))
        for task in [task for task in self.trackers if task not in spouts]:
            self._late += self.trackers.pop(task).late
        for task in spouts:
            if task not in self.trackers:
                self.trackers[task] = AckTracker(task, timeout_ms, self._buckets, now_ms)

    def begin(self, task: int, incarnation: int) -> None:
        """The task's process said hello."""
        tracker = self.trackers.get(task)
        if tracker is not None:
            tracker.begin(incarnation)

    def init(self, task: int, message: Init) -> None:
        """New roots, from the spout task itself. Raises ProtocolViolation."""
        tracker = self.trackers.get(task)
        if tracker is None:
            raise ProtocolViolation(f"task {task} opens roots but is no spout of this container")
        try:
            complete, refused = tracker.init(message.first_root, message.xors)
        except ValueError as error:
            raise ProtocolViolation(str(error)) from None
        self.opened += len(message.xors) // 8
        self._complete(task, complete)
        self._fail(task, refused, TOO_MANY)

    def ack(self, message: Ack) -> None:
        """Acks for a local spout task."""
        tracker = self.trackers.get(message.task)
        if tracker is None:
            self._late += len(message.roots) // 8
        else:
            self._complete(message.task, tracker.ack(column(message.roots), column(message.xors)))

    def fail(self, message: Fail) -> None:
        """Fails for a local spout task."""
        tracker = self.trackers.get(message.task)
        if tracker is None:
            self._late += len(message.roots) // 8
        else:
            self._fail(message.task, tracker.fail(column(message.roots)), message.reason)

    def drop(self, roots: int) -> None:
        """Acks or fails that have nowhere to go."""
        self._late += roots

    def tick(self, now_ms: int) -> None:
        """Let roots expire."""
        for task, tracker in self.trackers.items():
            expired = tracker.tick(now_ms)
            self.expired += len(expired)
            self._fail(task, expired, TIMED_OUT)

    def check(self) -> None:
        """Assert every invariant."""
        for tracker in self.trackers.values():
            tracker.check()

    def _complete(self, task: int, roots: Column) -> None:
        if len(roots):
            self.completed += len(roots)
            self.tell(task, roots.tobytes(), None)

    def _fail(self, task: int, roots: Column, reason: Reason) -> None:
        if len(roots):
            self.failed += len(roots)
            self.tell(task, roots.tobytes(), reason)

"""Values of the data path: backpressure causes, failures of tuples, tuple weights, unconfirmed frames.

The *weight* of a tuple is its size in bytes, or the time that its receiver takes for it, whichever is more. Every queue
and every credit window has a bound in bytes. Bytes bound the memory but not the time: a window that one bolt empties at
once takes another an hour. Time is therefore counted in bytes: one second of a task's work weighs `SECOND_BYTES`. A
task reports what one tuple weighs (`tuple_weight`), each sender writes it into its frames, and from there on frames are
counted by weight (`Frame.weight`). A default high water mark thus holds a second of work and a data-in queue a quarter
of one, both never more than their bytes. The weight of quick tuples is below their bytes, and nothing changes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from heron_runtime.model.settings import MiB


class CauseKind(StrEnum):
    """Destination of the buffer that is over its high water mark."""

    TASK = "task"
    LINK = "link"


@dataclass(frozen=True, slots=True, order=True)
class Cause:
    """Buffer over its high water mark. `container` announces it; `peer` is the far end of a slow link."""

    kind: CauseKind
    component: str
    task: int
    container: int
    peer: int = 0

    def __str__(self) -> str:
        if self.kind is CauseKind.TASK:
            return f"{self.component} task {self.task} (seen in container {self.container})"
        return f"link from container {self.container} to container {self.peer}"


MAX_REASON_TEXT = 8_192


class FailKind(StrEnum):
    """Kinds of failures of a tuple tree."""

    FAILED = "failed"
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    STREAM_MANAGER_LOST = "stream_manager_lost"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class FailReason:
    """Reason and place of the failure of a tuple tree, given to `Spout.fail(tup_id, reason)`.

    `component` and `task` name the bolt that failed the tuple. A timeout has several causes: there they name the
    bottleneck at that time (empty: no queue was long), and `message` says so in one line. `elapsed_ms` is the time from
    emit to fail, measured by the spout.
    """

    kind: FailKind
    component: str = ""
    task: int = 0
    message: str = ""
    traceback: str = ""
    elapsed_ms: float = 0.0


SECOND_BYTES = 16 * MiB  # a second of work weighs this much
UNKNOWN_WEIGHT = SECOND_BYTES // 20  # of a tuple for a task that has not processed any yet, so that few are sent first
LIGHT_BYTES = 64  # minimal size of a tuple


def weight_of(milliseconds: float) -> int:
    """Return the weight of a tuple that takes its receiver this long; 0 if its bytes weigh more."""
    weight = int(milliseconds * SECOND_BYTES / 1000)
    return weight if weight >= LIGHT_BYTES else 0


def seconds_of(weight: float) -> float:
    """Return the duration of the work of this weight."""
    return weight / SECOND_BYTES


class UnconfirmedFrames:
    """Frames of one queue that a connection has sent and the receiver has not confirmed, in order.

    The far end reports with its credit, and every second, the weight that it has taken from the connection. The loss
    that is counted at a break is therefore never below the actual loss, but may include frames taken since the report.
    """

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames: deque[tuple[int, int, int]] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, sent: int, stream: int, tuples: int) -> None:
        """Record a frame; `sent` is the total weight sent, including it."""
        self._frames.append((sent, stream, tuples))

    def take(self, taken: int) -> None:
        """Forget the frames within the total weight that the far end has taken."""
        frames = self._frames
        while frames and frames[0][0] <= taken:
            frames.popleft()

    def lose(self, lost: dict[int, int]) -> None:
        """Add the tuples lost with the connection to `lost` (stream to tuples) and start again."""
        for _, stream, tuples in self._frames:
            lost[stream] = lost.get(stream, 0) + tuples
        self._frames.clear()

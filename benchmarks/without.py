"""Takes one lesson of Storm's redesign away from an instance, to see what it is worth (``benchmarks/lessons.py``).

The benchmark topology loads this file inside an instance when ``user.without`` names a lesson; nothing else does.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Any

from heron_instance.core.output import TaskOutput
from heron_instance.core.values_codec import Encoded, ValuesCodec

FIRST_LEVEL_ROWS = 100


def take_away(lesson: str, component: Any, context: Any) -> None:
    """Undo a lesson in this process. Raises KeyError for one that is not known."""
    {
        "one level of batches": _two_levels,
        "flush when idle": _no_idle_flush,
        "no wake-up per tuple": _wake_up_per_tuple,
        "skip the empty ack queue": _poll_per_call,
    }[lesson](component, context)


def _two_levels(component: Any, context: Any) -> None:
    """Batches of a hundred rows within the batch that is sent."""
    encode_cut = ValuesCodec.encode_cut

    def in_hundreds(self: ValuesCodec, rows: Any) -> list[Encoded]:
        return [
            Encoded(start + piece.start, start + piece.stop, piece.codec, piece.data, piece.refused)
            for start in range(0, len(rows), FIRST_LEVEL_ROWS)
            for piece in encode_cut(self, rows[start : start + FIRST_LEVEL_ROWS])
        ]

    ValuesCodec.encode_cut = in_hundreds  # type: ignore[method-assign]  # that is the point


def _no_idle_flush(component: Any, context: Any) -> None:
    """Only a full batch or the flush interval sends."""
    take_due = TaskOutput.take_due
    TaskOutput.take_due = (  # type: ignore[method-assign]  # that is the point
        lambda self, now_ms, idle, gap_ms: take_due(self, now_ms, False, gap_ms)
    )
    TaskOutput.deadline_ms = (  # type: ignore[method-assign]  # the same
        lambda self, gap_ms: None if self.waiting_since_ms is None else self.waiting_since_ms + self.interval_ms
    )


def _wake_up_per_tuple(component: Any, context: Any) -> None:
    """Each emit puts an item into the executor's inbox."""
    if not hasattr(component, "next_tuple"):
        return
    emit, wake = component.emit, context.wake_up

    def emit_and_wake(*values: Any) -> None:
        emit(*values)
        wake()

    component.emit = emit_and_wake


def _poll_per_call(component: Any, context: Any) -> None:
    """A look into an empty queue after each ``next_tuple``."""
    if not hasattr(component, "next_tuple"):
        return
    queue: SimpleQueue[None] = SimpleQueue()
    next_tuple = component.next_tuple

    def next_tuple_and_poll() -> None:
        next_tuple()
        try:
            queue.get_nowait()
        except Empty:
            pass

    component.next_tuple = next_tuple_and_poll

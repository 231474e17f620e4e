"""What a tuple weighs: its bytes, or the time its receiver takes for it, whichever is more.

Every queue and every window of credit on the way of a tuple has a bound in bytes. Bytes say what memory it takes, but
not how long its work takes: a window that is a blink for one bolt is an hour for another. So time is counted in bytes,
too. One second of a task's work weighs ``SECOND_BYTES``; a task tells what one tuple weighs for it (``tuple_weight``),
whoever emits to that task writes it into each frame, and from there on frames are counted by weight
(``Frame.weight``). A default high water mark thus holds a second of work, a data-in queue a quarter of one, and both
never more than their bytes. Where tuples are quick their weight is less than their bytes and nothing changes.
"""

from __future__ import annotations

from heron_runtime.model.settings import MiB

SECOND_BYTES = 16 * MiB  # a second of work weighs this much
UNKNOWN_WEIGHT = SECOND_BYTES // 20  # of a tuple for a task that has not worked yet: start small
LIGHT_BYTES = 64  # a tuple has at least so many bytes anyway


def weight_of(milliseconds: float) -> int:
    """What a tuple weighs that takes its receiver so long; 0 where its bytes say enough."""
    weight = int(milliseconds * SECOND_BYTES / 1000)
    return weight if weight >= LIGHT_BYTES else 0


def seconds_of(weight: float) -> float:
    """How long the work of this weight takes."""
    return weight / SECOND_BYTES

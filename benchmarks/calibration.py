"""Calibration: a fixed piece of work, timed in CPU seconds, that measures the current speed of this machine.

Other load changes the CPU seconds of the same work by 30 % and more. A figure divided by the calibration just before
and after it can be compared across moments and machines of the same kind.
"""

from __future__ import annotations

import statistics
import time

REFERENCE_NS = 29.0  # per step, on the idle machine on which the targets were set


def nanoseconds_per_step(steps: int = 1_000_000, times: int = 5) -> float:
    """Return the CPU nanoseconds of one step of a fixed loop, the median of several rounds."""
    return statistics.median(_round(steps) for _ in range(times))


def _round(steps: int) -> float:
    counts: dict[int, int] = {}
    began = time.process_time_ns()
    for number in range(steps):
        counts[number & 1023] = number
    return (time.process_time_ns() - began) / steps

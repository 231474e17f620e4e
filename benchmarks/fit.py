"""What a cost that grows with k containers is made of: a constant, a part for each, and a part for each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fit:
    """``fixed`` + ``each``·k + ``pair``·k(k-1), and the largest difference from what was measured, as a part of it."""

    fixed: float
    each: float
    pair: float
    worst: float = 0.0

    def at(self, containers: int) -> float:
        """The cost at this many containers."""
        return self.fixed + self.each * containers + self.pair * containers * (containers - 1)

    def parts(self, containers: int) -> tuple[float, float, float]:
        """The three terms at this many containers."""
        return self.fixed, self.each * containers, self.pair * containers * (containers - 1)


def fit(points: Sequence[tuple[int, float]]) -> Fit:
    """Least squares over (containers, cost), each weighed by its own size, so that small ones count as much as large
    ones. A part that would be negative is none: the others are fitted without it. Raises ValueError for fewer than
    three different numbers of containers."""
    if len({k for k, _ in points}) < 3:
        raise ValueError("three parts need at least three different numbers of containers")
    k = np.array([number for number, _ in points], dtype=float)
    cost = np.array([value for _, value in points])
    rows = np.stack([np.ones_like(k), k, k * (k - 1)], axis=1)
    scale = 1 / np.maximum(np.abs(cost), 1e-12)
    wanted = [0, 1, 2]
    while True:
        found, *_ = np.linalg.lstsq(rows[:, wanted] * scale[:, None], cost * scale, rcond=None)
        if len(wanted) == 1 or min(found) >= 0:
            break
        wanted.pop(int(np.argmin(found)))
    parts = np.zeros(3)
    parts[wanted] = found
    worst = float(np.max(np.abs(rows @ parts - cost) * scale))
    return Fit(float(parts[0]), float(parts[1]), float(parts[2]), worst)

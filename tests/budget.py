"""How long a part of the tests goes on whose size is free: by time, with a floor that is always met.

Machines of one kind were seen two to four times slower than the one that set a number of seeds, and a run that is late
is a red run. So simulator seeds, mutations, tables of faults and Hypothesis' examples run until their seconds are used
up, and never less than their floor. ``HERONRY_TIME=3`` gives every part three times its seconds, ``0`` only the floors.
"""

from __future__ import annotations

import math
import os
import time


class Budget:
    """``while budget.more(): …``: true ``floor`` times, and then as long as the seconds since its first call last, but
    ``enough`` times at most.

    Where only a part of the time counts, ``spend`` says how much, and the clock does not.
    """

    def __init__(self, seconds: float, floor: int, enough: float = math.inf) -> None:
        times = float(os.environ.get("HERONRY_TIME", "1"))
        self.seconds = seconds * times
        self.floor = floor
        self.enough = enough * max(1.0, times)
        self.used = 0
        self._began: float | None = None
        self._spent: float | None = None

    def more(self) -> bool:
        """Take one more piece?"""
        if self._began is None:
            self._began = time.monotonic()
        gone = time.monotonic() - self._began if self._spent is None else self._spent
        if self.used >= self.floor and (gone >= self.seconds or self.used >= self.enough):
            return False
        self.used += 1
        return True

    def spend(self, seconds: float) -> None:
        """So much more of the time is gone."""
        self._spent = (self._spent or 0.0) + seconds

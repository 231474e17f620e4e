"""Seeds of a test run: how many schedules each simulated world takes, and which seeds a lane runs.

``HERONRY_SIM_SCHEDULES`` sets the number of schedules of the main simulator: 1,000 by default, 10,000 in a larger run.
The other worlds take proportionally many. The numbers do not depend on the speed of the machine.
"""

from __future__ import annotations

import os

ORDINARY = 1_000
SCHEDULES = max(ORDINARY, int(os.environ.get("HERONRY_SIM_SCHEDULES", "0")))


def scaled(ordinary: int) -> int:
    """Return the number of schedules of a world that takes ``ordinary`` of them in a run of 1,000."""
    return ordinary * SCHEDULES // ORDINARY


def lane_seeds(lane: int, lanes: int, schedules: int) -> range:
    """Return the block of consecutive seeds of a lane; all lanes together take the seeds 1 to ``schedules``.

    Args:
        lane: number of the lane, from 0.
        lanes: number of lanes.
        schedules: number of schedules in all lanes.
    """
    return range(1 + schedules * lane // lanes, 1 + schedules * (lane + 1) // lanes)

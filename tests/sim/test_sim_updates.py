"""Updates that move tasks while tuples flow and masters die: awaited tuples are processed, and every update ends.

No invariant here checks that a bolt waits for the barrier of every task upstream of it, or that the master waits for
bolts and for tasks on the old plan: each is worth only some milliseconds. Unit tests check them
(``test_barriers.py``, ``test_draining_laws.py``).
"""

from __future__ import annotations

from collections import Counter

import pytest

from .seeds import lane_seeds, scaled
from .simulation import Violation
from .updates import run

LANES, SCHEDULES = 2, scaled(24)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lane", range(LANES))
def test_awaited_tuples_are_processed_and_every_update_ends(lane: int) -> None:
    steps, undrained = Counter[str](), 0
    for seed in lane_seeds(lane, LANES, SCHEDULES):
        try:
            cluster = run(seed)
        except Violation as violation:
            story = "\n".join(violation.story[-40:])
            pytest.fail(f"seed {seed}: {violation.law}\nreplay: tests.sim.updates.run({seed}, print)\n{story}")
        steps.update(step.name for step in cluster.steps)
        undrained += bool(cluster.undrained)
    assert steps["SETTLING"] > 5, "updates wait, and go on"
    assert undrained > 0, "some give up"


@pytest.mark.parametrize("seed", [518, 833])
def test_seeds_that_once_broke_an_invariant_hold(seed: int) -> None:
    run(seed)

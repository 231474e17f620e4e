"""Invariants of checkpoints with the production executors."""

from __future__ import annotations

import pytest

from .checkpoints.engine import EngineTask
from .seeds import lane_seeds, scaled
from .test_sim_checkpoints import check_laws

LANES, SCHEDULES = 2, scaled(16)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("lane", range(LANES))
def test_state_and_output_equal_those_of_one_execution(lane: int) -> None:
    check_laws(lane_seeds(lane, LANES, SCHEDULES), EngineTask, "--engine ")

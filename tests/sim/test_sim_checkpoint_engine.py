"""The laws of checkpoints with the production executors, and that each rule of theirs is needed."""

from __future__ import annotations

import itertools

import pytest
from budget import Budget

from .checkpoints.engine import EngineTask
from .checkpoints.engine_mutations import MUTATIONS
from .checkpoints.world import run
from .test_sim_checkpoints import laws_hold

LANES = 2
FLOOR, SECONDS = 8, 15.0  # of each lane
SEEDS_OF_A_MUTATION = 30


@pytest.mark.timeout(900)
@pytest.mark.parametrize("lane", range(LANES))
def test_state_and_output_are_those_of_one_execution(lane: int) -> None:
    laws_hold(itertools.count(lane, LANES), Budget(SECONDS, FLOOR), EngineTask, "--engine ")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", list(MUTATIONS))
def test_without_the_rule_a_law_breaks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    assert any(_breaks(seed) for seed in range(SEEDS_OF_A_MUTATION)), f"no seed notices: {name}"


def _breaks(seed: int) -> bool:
    try:
        run(seed, None, EngineTask)
    except (AssertionError, ValueError):
        return True
    return False

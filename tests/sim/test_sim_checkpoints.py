"""The laws of checkpoints, restores and rescaling (S1 to S8), and that each rule of the protocol is needed for them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from budget import Budget

from .checkpoints.mutations import MUTATIONS
from .checkpoints.outside import Violation
from .checkpoints.tasks import Task
from .checkpoints.world import World, run

ROOT = Path(__file__).resolve().parents[2]
LANES = 4
FLOOR, SECONDS = 12, 9.0  # of each lane
SEEDS_OF_A_MUTATION = 50


@pytest.mark.timeout(900)
@pytest.mark.parametrize("lane", range(LANES))
def test_state_and_output_are_those_of_one_execution(lane: int) -> None:
    laws_hold(itertools.count(lane, LANES), Budget(SECONDS, FLOOR))


def laws_hold(seeds: Iterator[int], budget: Budget, process: type[Task] = Task, option: str = "") -> None:
    """While the budget lasts; and in these schedules everything has happened that may."""
    told, counts = list[str](), Counter[str]()
    for seed in itertools.takewhile(lambda _: budget.more(), seeds):
        try:
            counts.update(run(seed, None, process))
        except Violation as violation:
            told.append(f"python -m tests.sim.checkpoints {option}--seeds {seed} --verbose\n{violation}")
    assert not told, "\n\n".join(told)
    for happened in ("faults", "restoring", "complete", "frames lost", "updates", "masters", "told to leave"):
        assert counts[happened] > 0, f"nothing of this kind in {budget.used} schedules: {happened}"


def test_histories_begin_with_older_checkpoints() -> None:
    """Each keeps the laws by itself; the seeds are some in which the owner goes back."""
    counts = sum((run(seed) for seed in (2, 14, 24)), Counter[str]())
    assert counts["histories"] >= 3


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", list(MUTATIONS))
def test_without_the_rule_a_law_breaks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    assert any(_breaks(seed) for seed in range(SEEDS_OF_A_MUTATION)), f"no seed notices: {name}"


def _breaks(seed: int) -> bool:
    try:
        run(seed)
    except (AssertionError, ValueError):  # a law; an invariant of a core; a manifest of parts that do not fit
        return True
    return False


def test_a_seed_fixes_the_schedule_of_checkpoints() -> None:
    def trace(seed: int) -> list[str]:
        lines: list[str] = []
        World(seed, lines.append).run()
        return lines

    here = trace(4)
    assert here == trace(4)
    assert any("is complete" in line for line in here)
    program = "from tests.sim.checkpoints.world import World\nWorld(4, print).run()"
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        said = subprocess.check_output(command, cwd=ROOT, env=environment, text=True, timeout=120)
        assert said.splitlines() == here

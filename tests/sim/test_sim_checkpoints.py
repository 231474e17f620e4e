"""Invariants of checkpoints, restores and rescaling (S1 to S8) under faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .checkpoints.outside import Violation
from .checkpoints.simulation import CheckpointSimulation, run
from .checkpoints.tasks import Task
from .seeds import lane_seeds, scaled

ROOT = Path(__file__).resolve().parents[2]
LANES, SCHEDULES = 4, scaled(60)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("lane", range(LANES))
def test_state_and_output_equal_those_of_one_execution(lane: int) -> None:
    check_laws(lane_seeds(lane, LANES, SCHEDULES))


def check_laws(seeds: range, process: type[Task] = Task, option: str = "") -> None:
    """Run the schedules of ``seeds``; check the invariants, and that every possible event has happened."""
    failures, counts = list[str](), Counter[str]()
    for seed in seeds:
        try:
            counts.update(run(seed, None, process))
        except Violation as violation:
            failures.append(f"python -m tests.sim.checkpoints {option}--seeds {seed} --verbose\n{violation}")
    assert not failures, "\n\n".join(failures)
    for happened in ("faults", "restoring", "complete", "frames lost", "updates", "masters", "told to leave"):
        assert counts[happened] > 0, f"never happened in {len(seeds)} schedules: {happened}"


def test_new_histories_begin_with_older_checkpoints() -> None:
    """Each seed keeps the invariants separately; in these the owner returns to older checkpoints."""
    counts = sum((run(seed) for seed in (2, 14, 24)), Counter[str]())
    assert counts["histories"] >= 3


def test_seed_determines_the_checkpoint_schedule() -> None:
    def trace(seed: int) -> list[str]:
        lines: list[str] = []
        CheckpointSimulation(seed, lines.append).run()
        return lines

    here = trace(4)
    assert here == trace(4)
    assert any("is complete" in line for line in here)
    program = "from tests.sim.checkpoints.simulation import CheckpointSimulation\nCheckpointSimulation(4, print).run()"
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        said = subprocess.check_output(command, cwd=ROOT, env=environment, text=True, timeout=120)
        assert said.splitlines() == here

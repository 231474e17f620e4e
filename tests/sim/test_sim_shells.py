"""Schedules of production shells on simulated time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .seeds import scaled
from .shells.schedule import Outcome, run
from .simulation import broken_law

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = scaled(12)


@pytest.mark.timeout(600)
def test_links_keep_their_invariants(record_property: Callable[[str, object], None]) -> None:
    outcomes: list[Outcome] = []
    failures: list[str] = []
    for seed in range(1, SCHEDULES + 1):
        broken = broken_law(lambda seed: outcomes.append(run(seed)), seed)
        if broken:
            failures.append(f"seed {seed}: {broken}\nreplay: python -m tests.sim.shells {seed}")
    record_property("schedules of shells", SCHEDULES)
    assert not failures, "\n".join(failures)
    assert sum(outcome.received for outcome in outcomes) > 3000
    assert sum(outcome.faults for outcome in outcomes) > 60
    assert any(outcome.missing for outcome in outcomes)
    assert any(outcome.counted > outcome.missing for outcome in outcomes)


def test_seed_determines_the_schedule_of_shells() -> None:
    program = "from tests.sim.shells.schedule import run; print(run(10))"
    found = {str(run(10))}
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        found.add(subprocess.check_output(command, cwd=ROOT, env=environment, text=True, timeout=120).strip())
    assert len(found) == 1, found

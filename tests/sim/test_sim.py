"""Schedules of the simulator: every invariant holds, and a seed determines its schedule.

An ordinary run takes the seeds 1 to 1,000, a larger one 1 to 10,000 (``seeds.py``), in addition to the corpus.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from heron_instance.core.spout_executor import SpoutExecutor
from heron_runtime.model.plan import PlanVersion

from . import corpus
from .schedule import SOMETIMES, Result, failure_text, make, run
from .seeds import SCHEDULES, lane_seeds
from .shrink import MOST_FAULTS, Shrinker, kind_of
from .simulation import Violation

ROOT = Path(__file__).resolve().parents[2]
LANES = 8
MOST_FAILURES_TOLD = 3
STATE_LANES = 2


@pytest.mark.parametrize("seed", corpus.seeds())
def test_corpus_seeds_hold_all_invariants(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("lane", range(STATE_LANES))
def test_seeds_that_reach_rare_states_hold_all_invariants(lane: int) -> None:
    """A change may make the seeds reach other states, which is not an error; ``make sim`` then finds fresh ones."""
    for seed in corpus.seeds(corpus.STATES)[lane::STATE_LANES]:
        run(seed)


def test_seed_with_a_new_combination_of_states_is_kept_once(tmp_path: Path) -> None:
    kept, states = tmp_path / "corpus.txt", tmp_path / "states.txt"
    assert corpus.explore(0.001, lambda line: None, 1, kept, states) == 0
    assert corpus.seeds(states) == [1]
    assert corpus.explore(0.001, lambda line: None, 1, kept, states) == 0
    assert corpus.seeds(states) == [1], "nothing new"
    assert corpus.explore(0.001, lambda line: None, 3, kept, states) == 0
    assert corpus.seeds(states) == [1, 3]
    assert corpus.combinations("ab") == {("a",), ("b",), ("a", "b")}


def test_failing_seed_is_kept_and_its_schedule_reduced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a broken core: the corpus gets the seed once, and the reduced schedule breaks the same invariant."""
    monkeypatch.setattr(SpoutExecutor, "on_pause", lambda self, now_ms, paused: None)
    kept, told = tmp_path / "corpus.txt", []
    seed = next(seed for seed in range(1, 200) if _law(seed))
    for _ in range(2):
        assert corpus.explore(0.001, told.append, seed, kept, tmp_path / "states.txt") == 1
    assert corpus.seeds(kept) == [seed]
    assert "while it is paused" in told[0]
    found = _law(seed)
    assert found is not None
    small = Shrinker(seed, found).shrink()
    assert small.cut.faults is not None
    assert len(small.cut.faults) < MOST_FAULTS
    assert kind_of(small.violation.law) == kind_of(found.law)
    with pytest.raises(Violation, match="while it is paused"):
        run(seed, cut=small.cut)


def _law(seed: int) -> Violation | None:
    try:
        run(seed)
    except Violation as violation:
        return violation
    return None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("lane", range(LANES))
def test_invariants_hold_and_everything_comes_to_rest(
    lane: int, record_property: Callable[[str, object], None]
) -> None:
    results: list[Result] = []
    failures: list[str] = []
    for seed in lane_seeds(lane, LANES, SCHEDULES):
        try:
            results.append(run(seed))
        except Violation as violation:
            failures.append(failure_text(seed, violation))
        if len(failures) == MOST_FAILURES_TOLD:
            break
    record_property("schedules", len(results) + len(failures))
    assert not failures, "\n\n".join(failures)
    if lane == 0:
        assert_not_idle(results)


def assert_not_idle(results: list[Result]) -> None:
    """Check that roots are acked and fail, and that everything in ``SOMETIMES`` has happened."""
    assert sum(result.acked for result in results) > 200
    assert sum(result.failed for result in results) > 20
    assert sum(result.steps for result in results) > 10_000
    reached = frozenset[str]().union(*(result.reached for result in results))
    assert SOMETIMES.keys() - reached == set(), "never happened"


def test_checker_rejects_an_older_plan() -> None:
    """No schedule brings an older plan to a stream manager, so the test calls the checker itself."""
    cluster, _ = make(8)
    cluster.start()
    cluster.world.run_until(2000)
    manager = cluster.stream_managers[1]
    plan = manager.core.current.routes.plan
    with pytest.raises(Violation, match="goes back from plan"):
        cluster.checkers.plan_seen(manager.name, manager.life, replace(plan, version=PlanVersion(0, 1)))


@pytest.mark.parametrize("seed", [3, 8, 21])
def test_seed_determines_the_schedule(seed: int) -> None:
    """A failing seed can be replayed: the trace's hash is equal in two runs and under other hash seeds."""
    hashes = {run(seed).trace_hash, run(seed).trace_hash}
    program = f"from tests.sim.schedule import run; print(run({seed}).trace_hash)"
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        hashes.add(subprocess.check_output(command, cwd=ROOT, env=environment, text=True, timeout=120).strip())
    assert len(hashes) == 1

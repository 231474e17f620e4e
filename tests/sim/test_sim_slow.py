"""Queueing delay with slow bolts and default settings is bounded.

A spout emits whenever it is asked, and in the simulator a call takes no time, so the spout sends as much as it may. The
invariant: after a warm-up, a new tuple is processed within seconds, whatever its size, in every mode, and the slowest
bolt never starves.
"""

from __future__ import annotations

import pytest

from heron_runtime.model.settings import MiB
from tests.support.definitions import component, topology_spec

from .cluster import Cluster
from .programs import FIELDS, Habits, Program, pack
from .simulation import Simulation, Violation

SECONDS_MS, LOOK_EACH_MS = 15_000.0, 500.0
LONGEST_WAIT_MS = 5_000.0
MESSAGES = 8_000  # many times what may be queued
EARLY_SEED = 22  # the fast bolt is asked for its weight before its first flush
Case = tuple[tuple[float, ...], int, str, int, float]
# ms per tuple of each bolt in the row, bytes of padding, mode, containers, ms of warm-up. Before any bolt has worked,
# tuples are weighed by an estimate of 50 ms each: downstream of a fast bolt, one of 200 ms takes a dozen seconds to
# work off the excess.
CASES: dict[str, Case] = {
    "one bolt, small tuples": ((200,), 30, "ATMOST_ONCE", 1, 10_000),
    "one bolt, large tuples, acks": ((200,), 30_000, "ATLEAST_ONCE", 1, 10_000),
    "two bolts, acks": ((200, 200), 30, "ATLEAST_ONCE", 2, 10_000),
    "a quick bolt before a slow one": ((0, 200), 30, "ATMOST_ONCE", 2, 15_000),
    "a slow bolt before a slower one": ((20, 200), 30, "ATMOST_ONCE", 1, 10_000),
    "a bolt of five milliseconds": ((5,), 30, "ATLEAST_ONCE", 1, 10_000),
}


def slow_cluster(case: Case, seed: int) -> Cluster:
    """Return a cluster of a spout and bolts in a row, one task each, with all bounds at their defaults."""
    costs, pad_bytes, mode, containers, _ = case
    components = [component("b0", fields=FIELDS, code="sim:Spout")]
    for number in range(1, len(costs) + 1):
        fields = () if number == len(costs) else FIELDS
        components.append(component(f"b{number}", f"b{number - 1}", fields=fields, code="sim:Bolt"))
    topology = topology_spec("slow", *components, config={"topology.reliability.mode": mode})
    habits = {spec.name: Habits("basic") for spec in components[1:]}
    slow_ms = {number + 1: cost for number, cost in enumerate(costs, 1)}
    program = Program(
        topology, pack(topology, containers), habits, MESSAGES, 0.0, pad_bytes, calm=True, slow_ms=slow_ms
    )
    cluster = Cluster(Simulation(seed), program)
    for window in ("upload", "peer"):
        cluster.settings[f"heron.streammgr.{window}.window.bytes"] = 4 * MiB
    return cluster


def waiting_ms(cluster: Cluster, costs: tuple[float, ...]) -> float:
    """Return the minimum latency of a tuple emitted now: each bolt first works off its queue."""
    emitted = cluster.instances[1].emitted_copies
    return max((emitted - cluster.instances[number + 1].processed) * cost for number, cost in enumerate(costs, 1))


def run_case(case: Case, seed: int) -> None:
    """Run a case. Raises Violation if tuples wait long, or the slowest bolt waits for tuples."""
    costs, warm_up_ms = case[0], case[-1]
    slowest = max(range(len(costs)), key=lambda n: costs[n])
    cluster = slow_cluster(case, seed)
    cluster.start()
    cluster.world.run_until(warm_up_ms)
    node = cluster.instances[slowest + 2]
    first, now_ms = node.processed, warm_up_ms
    while True:
        waits = waiting_ms(cluster, costs)
        if waits > LONGEST_WAIT_MS:
            raise Violation(f"a tuple emitted now waits for {waits:.0f} ms")
        if now_ms >= warm_up_ms + SECONDS_MS:
            break
        now_ms += LOOK_EACH_MS
        cluster.world.run_until(now_ms)
    assert cluster.instances[1].emitted_copies < MESSAGES, "the spout has not run dry"
    share = (node.processed - first) * costs[slowest] / SECONDS_MS
    if share < 0.95:
        raise Violation(f"the slowest bolt works only {share:.0%} of the time")


@pytest.mark.parametrize("name", CASES)
def test_queued_tuples_are_processed_within_seconds(name: str) -> None:
    for seed in (1, 2, EARLY_SEED):
        run_case(CASES[name], seed)

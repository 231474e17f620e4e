"""Scaling advice: monotonic in the load, sufficient, and stable once followed."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_control.history import advice
from heron_control.history.advice import HIGH, MAX_FACTOR, ComponentLoad, TaskLoad, advise, tasks_for, unheld

ONE = settings(report_multiple_bugs=False)
DEMANDS, RATES, TASKS = st.floats(0.1, 1e6), st.floats(1, 1e5), st.integers(1, 200)


@ONE
@given(DEMANDS, DEMANDS, RATES, TASKS)
def test_more_load_never_gets_fewer_tasks(one: float, other: float, rate: float, tasks: int) -> None:
    less, more = sorted((one, other))
    assert tasks_for(less, rate, tasks) <= tasks_for(more, rate, tasks)


@ONE
@given(DEMANDS, RATES, TASKS)
def test_advice_is_sufficient_and_stable(demand: float, rate: float, tasks: int) -> None:
    found = tasks_for(demand, rate, tasks)
    assert found >= 1
    if math.ceil(demand / rate / advice.TARGET) <= advice.MAX_TASKS:
        assert found * rate * HIGH >= demand * (1 - 1e-9), "never below what the load needs"
    assert tasks_for(demand, rate, found) == found, "advice that is followed is not followed by other advice"


@ONE
@given(st.floats(0, 0.99), RATES, TASKS, st.floats(0.1, 0.8))
def test_advice_accounts_for_suppressed_load(held: float, rate: float, tasks: int, busy: float) -> None:
    """For a bolt that throttles its spout, the advised demand is that of the load without backpressure."""
    sent = 1000.0 * (1 - held)
    waiting = 60 * (1 - held)
    spout = component(
        "words", sent * 60, 60 * busy * (1 - held), waiting - 60 * busy * (1 - held), 60 * held, spout=True
    )
    bolt = component("slow", sent * 60, sent * 60 / rate, 0.0, 0.0, tasks=tasks, edges={"words": sent * 60})
    found = advise([spout, bolt]).components[1]
    if bolt.true_rate is not None and held <= 1 - 1 / MAX_FACTOR:
        assert found.demand == pytest.approx(1000.0, rel=1e-6)


@ONE
@given(st.lists(st.tuples(st.floats(0, 0.95), st.floats(1, 1e6)), min_size=1, max_size=4))
def test_merged_streams_use_the_mean_of_their_factors(spouts: list[tuple[float, float]]) -> None:
    found = [component(f"s{n}", count, 30, 30, 60 * h / (1 - h), spout=True) for n, (h, count) in enumerate(spouts)]
    first = component("first", 1000, 1, 0, 0, edges={f"s{n}": count for n, (_, count) in enumerate(spouts)})
    behind = component("behind", 1000, 1, 0, 0, edges={"first": 500.0})
    factors = unheld([behind, first, *found])
    wanted = [min(1 / (1 - held), MAX_FACTOR) for held, _ in spouts]
    assert min(wanted) * (1 - 1e-9) <= factors["first"] <= max(wanted) * (1 + 1e-9)
    assert factors["behind"] == pytest.approx(factors["first"]), "whatever the order of components"


def component(
    name: str, tuples: float, busy: float, idle: float, held: float, *, tasks: int = 1, spout: bool = False,
    edges: dict[str, float] | None = None,
) -> ComponentLoad:  # fmt: skip
    each = TaskLoad(f"container_1_{name}_1", tuples, busy, idle, held)
    return ComponentLoad(name, spout, tasks, (each,), edges or {}, (tuples / 60,))


def test_advice_contains_command_and_notes() -> None:
    spout = component("words", 60_000, 30, 24, 6, spout=True)
    tasks = (TaskLoad("container_1_slow_2", 54_000, 55, 5, 0, 12), TaskLoad("container_1_slow_3", 6_000, 5, 55, 0))
    slow = ComponentLoad("slow", False, 2, tasks, {"words": 60_000}, (1000.0, 1000.0))
    idle = component("idle", 60_000, 2, 58, 0, tasks=3, edges={"slow": 60_000})
    found = advise([spout, slow, idle])
    assert found.bottleneck is not None
    assert found.bottleneck.component.name == "words"
    assert [each.tasks for each in found.components] == [1, 2, 1]
    assert found.command("local/me/default", "words") == (
        "heron update local/me/default words --component-parallelism idle:1"
    )
    assert any("container_1_slow_2 worked 1.8 times" in note for note in found.notes)
    assert any("slow caused it for 12 s (container_1_slow_2 12 s)" in note for note in found.notes)
    busier = dataclasses.replace(slow, rates=(3000.0, 3000.0))
    assert "slow:5" in advise([spout, busier, idle]).command("local/me/default", "words")


def test_insufficient_data_yields_no_advice() -> None:
    found = advise([component("slow", 99, 0.5, 3, 0, tasks=4)])
    assert found.command("local", "words") == ""
    assert found.bottleneck is None
    assert found.components[0].why == "too little was seen"


def test_peak_ignores_one_minute_in_twenty() -> None:
    rates = (10.0,) * 19 + (1000.0,)
    assert ComponentLoad("slow", False, 1, rates=rates).peak == 10
    assert ComponentLoad("slow", False, 1, rates=(*rates[1:], 1000.0)).peak == 1000

"""Online results equal those of the reference once all watermarks have closed, and batch results for any functions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_pipeline.core.combine import ASIDE
from data_pipeline.core.decode import Decoding
from data_pipeline.core.planner import plan
from data_pipeline.core.runner import Runner
from heronry import TopologyError
from heronry.streamlet import Builder, Context, Streamlet, collect, sequence, to_files, tumbling
from heronry.streamlet.endpoints import SequenceSource
from heronry.streamlet.reference import run
from heronry.streamlet.results import finished, read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import (
    OnlineEngine,
    definition_of,
    ends_online,
    importable,
    letters_in,
    run_online,
)
from tests.support.streamlets.random_programs import DENSE, RECIPES, Recipe


@settings(max_examples=25)  # each example is a whole run
@example(DENSE, 1)
@given(RECIPES, st.integers(0, 1000))
def test_random_programs_online_give_the_results_of_the_reference(recipe: Recipe, seed: int) -> None:
    program = recipe.build().build()
    ends = zip(run(program).values(), ends_online(recipe.build, seed), strict=True)
    for number, (expected, found) in enumerate(ends):
        assert difference(expected, found) == "", f"end {number} of {program.describe()}"


def test_failing_handlers_online_yield_the_letters_of_the_reference() -> None:
    def picky(context: Context, record: dict[str, Any]) -> None:
        if record["t"] % 10 == 7:
            raise ValueError("no sevens")
        context.state = (context.state or 0) + 1
        context.emit(context.state)

    out: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("picky", {"user.streamlet.folder": folder})
        stream = builder.source([{"k": n % 3, "t": n} for n in range(100)], event_time="t")
        told = stream.key_by("k").process(picky, name="picky")
        told.tap(out.append, name="out").sink(collect(), name="kept")
        expected: list[Any] = []
        truth = run(builder.build(), failed=expected)["kept"]
        out.clear()
        run_online(builder, Path(folder))
        letters = letters_in(folder)
    keys = ("step", "record", "failed_on", "error")
    found, wanted = (sorted(repr([one[key] for key in keys]) for one in those) for those in (letters, expected))
    assert found == wanted
    assert len(found) == 10
    assert difference(out, truth) == ""


def test_idle_source_does_not_hold_windows_open() -> None:
    """One of two sources becomes silent after a record; windows of the other close once it is marked idle."""
    out: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("idle", {"user.streamlet.folder": folder, "user.streamlet.idle.secs": 1})
        endless = SequenceSource(None, make=lambda n: {"t": n, "k": "x"}, rate=50)
        quiet = SequenceSource(None, make=lambda n: {"t": n, "k": "y"}, rate=1e-9)
        a = builder.source(endless, event_time="t", name="busy")
        b = builder.source(quiet, event_time="t", name="quiet")
        a.union(b).window(tumbling(10)).key_by("k").count_by_key().tap(out.append, name="out")
        with importable(builder):
            world = OnlineEngine(definition_of(builder), Path(folder), 1)
            world.run_on(0.8)
            assert out == []
            world.run_on(10)
            world.stop()
    busy = [row for row in out if row.key == "x"]
    assert [row.start for row in busy] == [10_000 * n for n in range(len(busy))]
    assert len(busy) > 20
    assert all(row.value == 10 for row in busy)


@pytest.mark.parametrize("par", [1, 3])
def test_fail_policy_restores_all_tasks_and_names_the_record(par: int) -> None:
    tries: list[Any] = []

    def picky(record: int) -> int:
        if record == 1500:
            tries.append(record)
            if len(tries) < 3:
                raise ValueError("not yet")
        return record

    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("fails", {"user.streamlet.folder": folder, "user.streamlet.on.error": "fail"})
        mapped = builder.source(range(3000)).map(picky).map(lambda n: n, parallelism=par, name="same")
        mapped.sink(to_files(f"{folder}/out"))
        world = run_online(builder, Path(folder), par)
        assert sorted(read(f"{folder}/out")) == list(range(3000))
    assert len(world.failures) == 2
    assert all("step 'picky' failed on the record 1500" in text for text in world.failures)


def test_memory_state_is_lost_only_with_its_task() -> None:
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("once", {"user.streamlet.folder": folder, "topology.reliability.mode": "ATMOST_ONCE"})
        source = SequenceSource(400, make=lambda n: {"t": n, "k": n % 3}, rate=100)
        counts = builder.source(source, event_time="t").key_by("k").window(tumbling(10)).count_by_key(name="counts")
        counts.sink(to_files(f"{folder}/out"), name="out")
        with importable(builder):
            world = OnlineEngine(definition_of(builder), Path(folder), 1)
            world.run_on(2.5)
            (task,) = world.plan.tasks_of("counts")
            world.kill(task)
            world.until_final()
            world.stop()
        found = {(row.key, row.start): row.value for row in read(f"{folder}/out")}
        assert finished(f"{folder}/out")
        truth = {(row.key, row.start): row.value for row in run(builder.build())["out"]}
    assert all(found[place] <= truth[place] for place in found)
    assert sum(found[place] == truth[place] for place in found) >= len(found) - 3
    assert 60 <= len(found) < len(truth)


@pytest.mark.parametrize(
    ("setting", "value", "cure"),
    [
        ("user.streamlet.durable", False, "ATMOST_ONCE"),
        ("user.streamlet.retries", 3, "let the function itself retry"),
        ("user.streamlet.state", "/shared", "user.streamlet.folder"),
        ("topology.reliability.mode", "ATLEAST_ONCE", "leave it out"),
    ],
)
def test_removed_settings_are_rejected_with_a_hint(setting: str, value: Any, cure: str) -> None:
    builder = Builder("gone", {setting: value})
    builder.source(range(3)).log()
    with importable(builder), pytest.raises(TopologyError, match=cure) as refused:
        definition_of(builder)
    assert len(refused.value.problems) == 1
    assert setting in str(refused.value)


Answer = tuple[dict[str, list[Any]], list[str]]  # results by sink, and the failed step of each letter
Steps = Callable[[Streamlet], dict[str, Streamlet]]


def program(records: list[Any], steps: Steps, **config: Any) -> Builder:
    """Return a program without reducers; ``steps`` maps sinks to streams."""
    builder = Builder("program", config)
    texts = [json.dumps(record) for record in records]
    source = builder.source(sequence(len(records), lambda n: json.loads(texts[n])), name="source")
    for name, stream in steps(source).items():
        stream.sink(collect(), name=name)
    return builder


def aside(lines: list[dict[str, Any]]) -> list[str]:
    return [line["step"] for line in lines]


def by_reference(records: list[Any], steps: Steps) -> Answer:
    letters: list[dict[str, Any]] = []
    return run(program(records, steps).build(), failed=letters), aside(letters)


def by_batch(records: list[Any], steps: Steps) -> Answer:
    (scan,) = plan(program(records, steps).build()).scans
    assert scan.unit is not None
    runner = Runner(scan.unit, {output.tag: json_of for output in scan.unit.outputs})
    decoding = Decoding(scan.step, scan.source, None, False)
    found, times, places, _ = decoding.singly({"id": list(range(len(records)))})
    rows = list(runner.sifted(found, times, places))
    results: dict[str, list[Any]] = {output.step: [] for output in scan.unit.outputs}
    names = {output.tag: output.step for output in scan.unit.outputs}
    for part in rows:
        if part.tag != ASIDE:
            results[names[part.tag]] += map(json.loads, part.payloads)
    letters = [json.loads(payload) for part in rows if part.tag == ASIDE for payload in part.payloads]
    return results, aside(letters)


def json_of(record: Any) -> bytes:
    return json.dumps(record).encode()


def online(records: list[Any], steps: Steps) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        builder = program(records, steps, **{"user.streamlet.folder": f"{folder}/own"})
        run_online(builder, Path(folder), 0)
        sinks = [step.name for step in builder.build().sinks()]
        return {name: read(f"{folder}/own/collect/{name}") for name in sinks}, aside(letters_in(folder))


def assert_answer(records: list[Any], steps: Steps, results: dict[str, list[Any]], put_aside: list[str]) -> None:
    for engine in (by_reference, by_batch, online):
        found, letters = engine(records, steps)
        for name, expected in results.items():
            assert difference(found[name], expected) == "", f"{engine.__name__}, sink {name}"
        assert letters == put_aside, engine.__name__


def stops_at_odd(n: int) -> int:
    return next(iter(())) if n % 2 else n


def lists_even(n: int) -> Iterator[int]:
    return iter([stops_at_odd(n)])


STOPPING: dict[str, Callable[[Streamlet], Streamlet]] = {
    "map": lambda source: source.map(stops_at_odd, name="step"),
    "flat_map": lambda source: source.flat_map(lists_even, name="step"),
    "filter": lambda source: source.filter(lambda n: stops_at_odd(n) is n, name="step"),
    "tap": lambda source: source.tap(stops_at_odd, name="step"),
    "branch": lambda source: source.branch(lambda n: stops_at_odd(n) is n, name="step")[0],
}


@pytest.mark.parametrize("kind", STOPPING)
def test_stop_iteration_in_a_function_fails_only_its_record(kind: str) -> None:
    assert_answer([*range(6)], lambda source: {"all": STOPPING[kind](source)}, {"all": [0, 2, 4]}, ["step"] * 3)


def doubled(order: dict[str, Any]) -> dict[str, Any]:
    order["price"] *= 2
    return order


def amount(order: dict[str, Any]) -> float:
    return float(order.pop("amount"))


def marked(order: dict[str, Any]) -> dict[str, Any]:
    order["n"] = -1
    return order


def counted(match: Any) -> int:
    match.row["seen"] += 1
    return int(match.row["seen"])


def test_failed_block_reruns_on_the_original_records() -> None:
    orders = [{"price": n} for n in range(6)] + [{"price": None}, {"price": 7}]
    expected = [{"price": 2 * order["price"]} for order in orders if order["price"] is not None]
    assert_answer(orders, lambda source: {"all": source.map(doubled, name="step")}, {"all": expected}, ["step"])


def test_mutation_before_a_failure_does_not_affect_other_records() -> None:
    orders = [{"amount": str(n)} for n in range(6)] + [{"amount": "n/a"}, {"amount": "7"}]
    expected = [float(n) for n in (*range(6), 7)]
    assert_answer(orders, lambda source: {"all": source.map(amount, name="step")}, {"all": expected}, ["step"])


def test_mutation_by_one_reader_is_invisible_to_others() -> None:
    def steps(source: Streamlet) -> dict[str, Streamlet]:
        even, odd = source.branch(lambda order: order["n"] % 2 == 0)
        return {
            "before": source.map(lambda order: order["n"]),
            "marked": source.map(marked),
            "after": source.map(lambda order: order["n"]),
            "plain": source,
            "union": even.union(odd),
            "changed": even.map(marked),
        }

    orders = [{"n": n} for n in range(6)]
    expected = {
        "before": [*range(6)],
        "marked": [{"n": -1}] * 6,
        "after": [*range(6)],
        "plain": orders,
        "union": orders,
        "changed": [{"n": -1}] * 3,
    }
    assert_answer(orders, steps, expected, [])


def test_mutation_of_a_lookup_row_is_invisible_to_other_records() -> None:
    def steps(source: Streamlet) -> dict[str, Streamlet]:
        table = sequence(1, lambda n: {"k": n, "seen": 1})
        return {"all": source.lookup(table, on=lambda order: order["k"], key="k").map(counted)}

    assert_answer([{"k": 0}] * 4, steps, {"all": [2] * 4}, [])

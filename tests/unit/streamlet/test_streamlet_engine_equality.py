"""Equal results on all engines for functions that raise StopIteration and functions that mutate their argument."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.core.combine import ASIDE
from data_pipeline.core.decode import Decoding
from data_pipeline.core.planner import plan
from data_pipeline.core.runner import Runner
from heronry.streamlet import Builder, Streamlet, collect, sequence
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import letters_in, run_online

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

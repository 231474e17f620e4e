"""One answer on every engine: functions that raise what iterators raise, and functions that change their argument."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from comparing import difference
from online_world import OnlineWorld, definition_of, importable

from data_pipeline.core.combine import ASIDE
from data_pipeline.core.decode import Decoding
from data_pipeline.core.planner import plan
from data_pipeline.core.runner import Runner
from heronry.streamlet import Builder, Streamlet, collect, sequence
from heronry.streamlet.reference import run
from heronry.streamlet.results import read

Answer = tuple[dict[str, list[Any]], list[tuple[str, str]]]  # results by sink, (step, record put aside)
Steps = Callable[[Streamlet], dict[str, Streamlet]]


def program(records: list[Any], steps: Steps, **config: Any) -> Builder:
    """A program without reducers; ``steps`` returns what each sink gets."""
    builder = Builder("program", config)
    texts = [json.dumps(record) for record in records]
    source = builder.source(sequence(len(records), lambda n: json.loads(texts[n])), name="source")
    for name, stream in steps(source).items():
        stream.sink(collect(), name=name)
    return builder


def aside(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((line["step"], json.dumps(line["record"])) for line in lines)


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
        with importable(builder):
            world = OnlineWorld(definition_of(builder), Path(folder), 0)
            world.until_final()
            world.stop()
        lines = [line for file in Path(folder).glob("own/failed/*.jsonl") for line in file.read_text().splitlines()]
        sinks = [step.name for step in builder.build().sinks()]
        return {name: read(f"{folder}/own/collect/{name}") for name in sinks}, aside([*map(json.loads, lines)])


def assert_answer(records: list[Any], steps: Steps, results: dict[str, list[Any]], put_aside: list[Any]) -> None:
    for engine in (by_reference, by_batch, online):
        found, letters = engine(records, steps)
        for name, expected in results.items():
            assert difference(found[name], expected) == "", f"{engine.__name__}, sink {name}"
        assert letters == aside(put_aside), engine.__name__


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
def test_a_function_that_raises_stop_iteration_fails_its_record_and_no_other(kind: str) -> None:
    failing = [{"step": "step", "record": n} for n in (1, 3, 5)]
    assert_answer([*range(6)], lambda source: {"all": STOPPING[kind](source)}, {"all": [0, 2, 4]}, failing)

"""Run a batch plan over lists with partitions and a shuffle, without Spark."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable
from typing import Any

from data_pipeline.core.combine import Limits, Rows
from data_pipeline.core.decode import Decoding
from data_pipeline.core.merge import Merged, merged, processed, result_of
from data_pipeline.core.plan import Plan, Unit
from data_pipeline.core.render import to_pickle
from data_pipeline.core.runner import Runner
from heronry.streamlet.program import ReduceStep

PARTITIONS = 3


def evaluate(plan: Plan, seed: int = 0, limits: Limits | None = None) -> dict[str, list[Any]]:
    """Return the input of each sink; the seed determines the partitions and the order of records and rows."""
    chance = random.Random(seed)
    exits: dict[tuple[str, int], list[tuple[bytes, int, bytes]]] = {}
    for scan in plan.scans:
        numbers = list(range(scan.source.start, scan.source.stop or 0))
        decoding = Decoding(scan.step, scan.source, scan.event_time, scan.event_time is not None)
        for part in dealt(chance, numbers):
            records, times, _ = decoding.decode({"id": part})
            if scan.unit is not None:
                collect(exits, scan.unit, run(scan.unit, records, times, limits))
    for reduction in plan.reductions:
        rows = [row for place in reduction.inputs for row in exits.get(place, ())]
        for part in by_key(rows):
            chance.shuffle(part)
            records, times = results_of(reduction.step, merged(reduction.step, sorted(part, key=sort_key)))
            collect(exits, reduction.unit, run(reduction.unit, records, times, limits))
    return {
        output.step: [pickle.loads(row[2]) for place in output.inputs for row in exits.get(place, ())]
        for output in plan.outputs
    }


def results_of(step: ReduceStep, found: Iterable[Merged]) -> tuple[list[Any], list[Any]]:
    if step.process is None:
        pairs = [result_of(step, item) for item in found]
        return [record for record, _ in pairs], [time for _, time in pairs]
    outcomes = list(processed(step, found))
    assert not [outcome for outcome in outcomes if outcome.error is not None]
    return [outcome.record for outcome in outcomes], [outcome.time_ms for outcome in outcomes]


def dealt(chance: random.Random, items: list[Any]) -> list[list[Any]]:
    parts: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    for item in items:
        chance.choice(parts).append(item)
    return parts


def by_key(rows: list[tuple[bytes, int, bytes]]) -> list[list[tuple[bytes, int, bytes]]]:
    parts: list[list[tuple[bytes, int, bytes]]] = [[] for _ in range(PARTITIONS)]
    for row in rows:
        parts[sum(row[0]) % PARTITIONS].append(row)
    return parts


def sort_key(row: tuple[bytes, int, bytes]) -> tuple[bytes, int]:
    return row[:2]


def run(unit: Unit, records: list[Any], times: list[Any] | None, limits: Limits | None) -> list[Rows]:
    render = {e.tag: to_pickle for e in unit.outputs if e.kind == "sink"}
    runner = Runner(unit, render, limits)
    made = []
    for at in range(0, len(records), 5):
        these = None if times is None else times[at : at + 5]
        made += runner.run(records[at : at + 5], these, lambda _: "")
    return [*made, *runner.finish()]


def collect(exits: dict[tuple[str, int], list[Any]], unit: Unit, made: list[Rows]) -> None:
    for rows in made:
        found = zip(rows.keys, rows.starts, rows.payloads, strict=True)
        exits.setdefault((unit.entry, rows.tag), []).extend(found)

"""Programs with many steps in a row or in diamonds: bounded time and depth of planning and running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from data_pipeline.core.describe import described
from data_pipeline.core.plan import Unit
from data_pipeline.core.planner import plan
from data_pipeline.core.runner import Runner
from heronry.streamlet import Builder, collect, sequence
from heronry.streamlet.online.stages import needs_ids, needs_times, plan_stages
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run

cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="needs PySpark: deploy/spark-setup")


def diamonds(count: int, **options: Any) -> Program:
    builder = Builder("diamonds")
    stream = builder.source(sequence(40), name="numbers", **options)
    for number in range(count):
        even, odd = stream.branch(lambda n: n % 2 == 0)
        stream = even.map(lambda n: n + 1).union(odd.map(lambda n: n + 2), name=f"union{number}")
    stream.sink(collect(), name="out")
    return builder.build()


def row(count: int, **options: Any) -> Program:
    builder = Builder("row")
    stream = builder.source(sequence(40), name="numbers", **options)
    for _ in range(count):
        stream = stream.map(lambda n: n + 1)
    stream.sink(collect(), name="out")
    return builder.build()


def ran(unit: Unit) -> list[Any]:
    """Return the sink's output for the numbers, from a unit that was pickled for a worker."""
    sent = cloudpickle.loads(cloudpickle.dumps(unit))
    runner = Runner(sent, {0: lambda record: record})
    times = [0] * 40 if unit.timed else None
    found = [payload for rows in runner.run(range(40), times, str) for payload in rows.payloads]
    again = [payload for rows in runner.sifted(range(40), times, [""] * 40) for payload in rows.payloads]
    assert sorted(found) == sorted(again), "record by record, too"
    return sorted(found)


@pytest.mark.parametrize(("make", "count"), [(diamonds, 25), (row, 600)])
def test_long_program_runs(make: Callable[[int], Program], count: int) -> None:
    program = make(count)
    (scan,) = plan(program).scans
    assert scan.unit is not None
    assert ran(scan.unit) == run(program)["out"]
    assert len(described(plan(program)).splitlines()) < 6 * len(program.steps)
    stages = plan_stages(program)
    assert len(stages.stages) <= len(program.steps)
    assert not needs_times(program, program.by_name["numbers"])
    assert not needs_ids(program, program.by_name["numbers"])


def test_times_pass_through_a_long_row_of_steps() -> None:
    program = row(600)
    (scan,) = plan(program).scans
    assert scan.unit is not None
    timed = Unit(scan.unit.entry, scan.unit.nodes, scan.unit.outputs, timed=True)
    assert ran(timed) == run(program)["out"]

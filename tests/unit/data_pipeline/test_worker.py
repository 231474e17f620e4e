"""Python worker: results of random plans, failures that name step, file and value, and bounded memory."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.core.combine import Limits, PartitionCombiner
from data_pipeline.core.decode import Decoding
from data_pipeline.core.failure import Failure, RecordFailed, failed, failure_in
from data_pipeline.core.payload import dump, load
from data_pipeline.core.planner import plan
from data_pipeline.core.runner import Runner
from data_pipeline.core.trace import Trace, Traced, trace_in
from heronry.streamlet import Builder, collect, count, distinct, files, monoid, sequence, sum_, tumbling
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.reference import run
from tests.support.streamlets.batch_engine import evaluate
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.random_programs import RECIPES, Recipe


def inverse(number: int) -> float:
    return 1 / number


def failing(build: Any, stop: int = 10) -> Failure:
    """Return the failure of a program over 0, 1, 2, …"""
    builder = Builder("p")
    build(builder.source(sequence(stop), name="numbers"))
    with pytest.raises(RecordFailed) as caught:
        evaluate(plan(builder.build()))
    return caught.value.failure


def test_failure_names_step_and_value_for_every_kind_of_step() -> None:
    steps = {
        "divide": lambda s: s.map(inverse, name="divide").sink(collect()),
        "choose": lambda s: s.filter(inverse, name="choose").sink(collect()),
        "cut": lambda s: s.flat_map(lambda n: [inverse(n)], name="cut").sink(collect()),
        "look": lambda s: s.tap(inverse, name="look").sink(collect()),
        "part": lambda s: s.branch(inverse, name="part")[0].sink(collect()),
        "by": lambda s: s.key_by(inverse, name="by").count_by_key().sink(collect()),
        "when": lambda s: s.key_by().window(tumbling(5), inverse, name="when").count_by_key().sink(collect()),
        "add": lambda s: s.sum_by_key(inverse, key=abs, name="add").sink(collect()),
        "behind": lambda s: s.map(lambda n: n).filter(lambda n: n < 1).map(inverse, name="behind").sink(collect()),
    }
    for name, build in steps.items():
        found = failing(build)
        assert (found.step, found.value) == (name, "0"), found
        assert "ZeroDivisionError" in found.error
        assert "inverse" in found.traceback
        assert "runner.py" not in found.traceback


def test_failing_monoid_is_named_with_its_value() -> None:
    strict = monoid(0, lambda a, b: a + b, finish=lambda acc: 1 / acc, name="strict")
    found = failing(
        lambda s: s.map(lambda n: n and "text").reduce_by_key(sum_(), key=lambda n: 1, name="add").sink(collect())
    )
    assert found.step == "add"
    found = failing(
        lambda s: s.map(lambda n: 0).reduce_by_key(strict, key=lambda n: "all", name="total").sink(collect())
    )
    assert (found.step, found.value) == ("total", "'all'")


def test_unsupported_key_is_rejected_with_a_remedy() -> None:
    found = failing(lambda s: s.key_by(lambda n: [n], name="by").count_by_key().sink(collect()))
    assert found.step == "by"
    assert "use tuple(value)" in found.error


def test_invalid_json_line_is_named_with_its_file() -> None:
    decoding = Decoding("lines", files("/in", "json"), None, False)
    with pytest.raises(RecordFailed) as caught:
        decoding.decode({"value": [b"1", b" ", b"{no", b"2"], "file": ["a", "a", "b", "b"]})
    assert (caught.value.failure.step, caught.value.failure.file) == ("lines", "b")
    assert "{no" in caught.value.failure.value
    records, _, file = decoding.decode({"value": [b"1", b" ", b"2"], "file": ["a", "b", "c"]})
    assert (records, file(0), file(1)) == ([1, 2], "a", "c")


@given(source=st.text(min_size=1), partition=st.integers(0), lines=st.lists(st.text(), min_size=1))
def test_trace_is_recovered_from_the_file_column(source: str, partition: int, lines: list[str]) -> None:
    column = Traced(source, partition, lines)
    for number, line in enumerate(lines):
        digest = hashlib.sha1(line.encode()).hexdigest()
        assert trace_in(column[number]) == Trace(source, partition, digest)
        assert column[number : number + 1] == [column[number]] == [Traced(source, partition, [line.encode()])[0]]
    assert trace_in("/in/heronry-line:0:x:y") is None


def test_failing_line_without_a_file_is_traced() -> None:
    decoding = Decoding("lines", files("/in", "json"), None, False)
    lines = [b"1", b"{no"]
    with pytest.raises(RecordFailed) as caught:
        decoding.decode({"value": lines, "file": Traced("lines", 3, lines)})
    assert trace_in(caught.value.failure.file) == Trace("lines", 3, hashlib.sha1(b"{no").hexdigest())


def test_failure_that_does_not_repeat_is_reported_as_such() -> None:
    calls = iter([True])
    found = failing(lambda s: s.map(lambda n: inverse(0) if next(calls, False) else n, name="once").sink(collect()))
    assert "not found" in found.value
    assert "ZeroDivisionError" in found.error


@given(step=st.text(), value=st.text(), file=st.text(), before=st.text(max_size=20), after=st.text(max_size=20))
def test_failure_is_recovered_from_surrounding_text(step: str, value: str, file: str, before: str, after: str) -> None:
    error = failed(step, value, ValueError("no"), file)
    assert failure_in(f"{before}\n{error}\n{after}") == error.failure
    assert pickle.loads(pickle.dumps(error)).failure == error.failure


def combiner(reducer: Any, limits: Limits) -> PartitionCombiner:
    builder = Builder("p")
    builder.source(sequence(1)).key_by(lambda n: n % 1000).reduce_by_key(reducer, name="r").sink(collect())
    step = builder.build().by_name["r"]
    assert isinstance(step, ReduceStep)
    return PartitionCombiner(0, step, False, limits)


@pytest.mark.parametrize(
    "reducer", [count(), sum_(), distinct(5), monoid(frozenset, frozenset.union, lift=lambda n: frozenset([n]))]
)
def test_combiner_holds_at_most_its_limit_and_a_chunk(reducer: Any) -> None:
    tried = combiner(reducer, Limits(max_keys=50, chunk_records=20))
    rows, most = 0, 0
    for part in tried.add(iter(range(5_000))):
        rows += len(part.keys)
        most = max(most, len(part.keys))
    assert most <= 50 + 20
    assert rows + len(tried.combiner.table) == 5_000
    assert not list(combiner(reducer, Limits()).flush())


def test_large_accumulators_are_flushed_by_size() -> None:
    longer = monoid(bytes, bytes.__add__, lift=lambda n: b"x" * 1_000, name="longer")
    tried = combiner(longer, Limits(max_bytes=1_500_000, chunk_records=500))
    assert any(list(tried.add(iter(range(100_000)))))
    assert len(tried.combiner.table) <= 1_000
    assert max(map(len, tried.combiner.table.values()), default=0) < 100_000


def test_large_flat_map_output_is_not_collected() -> None:
    builder = Builder("p")
    builder.source(sequence(1)).flat_map(lambda n: range(10_000_000), name="many").sink(collect())
    (scan,) = plan(builder.build()).scans
    assert scan.unit is not None
    seen: list[int] = []

    def render(record: int) -> bytes:
        seen.append(record)
        return b""

    runner = Runner(scan.unit, {0: render})
    first = next(runner.run([0], None, lambda _: ""))
    assert len(first.payloads) == len(seen) < 10_000


ANY = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.tuples(st.integers()))


@given(key=ANY, accumulator=ANY)
def test_shuffled_values_keep_their_types(key: Any, accumulator: Any) -> None:
    found = load(dump(key, accumulator))
    assert repr(tuple(found)) == repr((key, accumulator))
    assert [type(part) for part in found] == [type(key), type(accumulator)]


def test_lone_surrogate_survives_the_shuffle() -> None:
    assert tuple(load(dump("\ud800", 1 << 70))) == ("\ud800", 1 << 70)


@given(recipe=RECIPES, seed=st.integers(0, 1000), small=st.booleans())
def test_plan_gives_the_result_of_the_reference(recipe: Recipe, seed: int, small: bool) -> None:
    program = recipe.build().build()
    limits = Limits(max_keys=2, max_bytes=50, chunk_records=3) if small else None
    found = evaluate(plan(program), seed, limits)
    for sink, expected in run(program).items():
        assert difference(expected, found[sink]) == "", sink

"""Construction of programs: validation messages, step names, and the reference on small examples."""

from __future__ import annotations

import operator
import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronry import TopologyError
from heronry.streamlet import (
    Builder,
    KeyValue,
    Streamlet,
    Windowed,
    archive,
    collect,
    count,
    files,
    max_,
    monoid,
    sequence,
    sliding,
    sum_,
    to_files,
    top_k,
    tumbling,
    view,
)
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.extract import NoSuchField
from heronry.streamlet.program import MapStep, Program, ReduceStep, Ref, SinkStep, SourceStep
from heronry.streamlet.reference import run

SEQUENCE = sequence(10)


def lambda_with_lock() -> Callable[[Any], Any]:
    lock = threading.Lock()
    return lambda record: lock.locked() and record


def stream(name: str = "p") -> Any:
    return Builder(name).source(SEQUENCE, name="numbers")


def timed() -> Any:
    return Builder("p").source(SEQUENCE, event_time=lambda n: n, name="numbers")


def two_views(folder: str) -> Any:
    builder = Builder("p")
    for reducer, step, name in (("a", "s", "v"), ("b", "t", "w")):
        source = builder.source(SEQUENCE, event_time=lambda n: n)
        views = source.count_by_key(key=0, name=reducer).sink(view(name, folder), name=step)
    return views


def later(make: Callable[[], Any]) -> Callable[[], Any]:
    """Defer an error that only the whole program shows until the build."""

    def build() -> Any:
        made = make()
        draft = made._draft if isinstance(made, Streamlet) else made._reducer.draft
        return draft.to_program()

    return build


async def awaitable(record: Any) -> Any:
    return record


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no key": (lambda: stream().count_by_key(name="c"), "step 'c' (after 'numbers'): no key; put key_by"),
    "two keys": (lambda: stream().key_by(name="a").key_by(name="b"), "step 'b': 'a' has set the key already"),
    "key twice": (lambda: stream().key_by(name="a").count_by_key(key=0), "key= and key_by('a') both set the key"),
    "two windows": (
        lambda: stream().window(tumbling(1), name="a").window(tumbling(1), name="b"),
        "step 'b': 'a' has set the window",
    ),
    "map behind key_by": (lambda: stream().key_by(name="k").map(abs), "map cannot follow key_by 'k'"),
    "sink behind window": (lambda: stream().window(tumbling(1)).sink(collect()), "sink cannot follow window 'w"),
    "union behind key_by": (lambda: stream().key_by(name="k").union(), "union cannot follow key_by 'k'"),
    "union of programs": (lambda: stream().union(stream(), name="u"), "Streamlet('numbers') is not a streamlet"),
    "no window": (lambda: stream().window(60, name="w"), "step 'w': 60 is not a window"),
    "no monoid": (lambda: stream().reduce_by_key(3, key=0, name="r"), "step 'r': 3 is not a monoid"),
    "late of a map": (lambda: stream().map(abs).late(), "step 'abs' has no late data"),
    "sliding too far": (lambda: sliding(10, 20), "would skip records"),
    "window of nothing": (lambda: tumbling(0), "at least 1 ms"),
    "window of parts": (lambda: tumbling(0.0001), "whole milliseconds"),
    "top_k of none": (lambda: top_k(0), "write how many"),
    "format": (lambda: files("x", "jsno"), "did you mean 'json'?"),
    "sink format": (lambda: to_files("x", "xml"), "one of json, parquet, csv"),
    "schema of text": (lambda: files("x", "text", schema={"a": "int"}), "does not accept a schema"),
    "schema type": (lambda: files("x", schema={"a": "integer"}), "one of str, int, float, bool"),
    "key_by and nothing": (later(lambda: stream().tap(abs).key_by(name="k")), "'k': key_by is followed by no reducer"),
    "no sink": (later(lambda: stream().map(abs, name="m")), "step 'm': nothing reads it; end with sink"),
    "no sink behind a reducer": (later(lambda: stream().count_by_key(key=0, name="c")), "step 'c': nothing reads it"),
    "no function": (later(lambda: stream().map(3, name="m").log()), "step 'm': its function is 3"),
    "coroutine": (later(lambda: stream().map(awaitable).log()), "step 'awaitable': its function is a coroutine"),
    "generator": (
        later(lambda: stream().map(lambda r: (yield r), name="m").log()), "step 'm': its function is a generator",
    ),
    "a lock inside": (
        later(lambda: stream().map(lambda_with_lock(), name="m").log()), "its function holds lock = lock",
    ),
    "no event time": (
        later(lambda: stream().key_by().window(tumbling(1), name="w").count_by_key(name="c").log()),
        "step 'c': 'w' has no event time: 'numbers' does not set one",
    ),
    "time lost in a reducer": (
        later(
            lambda: timed().count_by_key(key=0, name="a", updates=False).window(tumbling(1)).key_by()
            .count_by_key(name="b").log()
        ),
        "'a' does not set one",
    ),
    "one name twice": (later(lambda: stream().map(abs, name="m").map(abs, name="m").log()), "2 steps are named 'm'"),
    "an unsafe name": (later(lambda: stream().map(abs, name="a/b").log()), "is not valid in file names"),
    "parallelism": (later(lambda: stream().map(abs, name="m", parallelism=0).log()), "step 'm': parallelism is 0"),
    "running results reduced": (
        later(lambda: stream().count_by_key(key=0, name="a").count_by_key(key=0, name="b").log()),
        "step 'b': reduces the running results of 'a'",
    ),
    "no such sink": (later(lambda: stream().sink("file", name="s")), "step 's': 'file' is not a sink"),
    "view of a map": (later(lambda: timed().map(abs).sink(view("v", "/v"), name="s")), "directly follow a reducer"),
    "view without time": (later(lambda: stream().count_by_key(key=0).sink(view("v", "/v"))), "needs event time"),
    "archive of results": (
        later(lambda: timed().count_by_key(key=0, name="c").sink(archive("/a"), name="s")),
        "move it before the reducer 'c'",
    ),
    "archive without time": (later(lambda: stream().sink(archive("/a"), name="s")), "the archive has no event time"),
    "two views in one folder": (
        later(lambda: two_views("/f")),
        "steps 's', 't' write into one folder, /f; a view and an archive need their own",
    ),
    "a sink in its source": (
        later(lambda: Builder("p").source(files("/in", grows=True), name="a").sink(to_files("/in"), name="s")),
        "step 's' writes into the folder that step 'a' reads, /in",
    ),
    "branch of nothing": (later(lambda: stream().branch(name="b")[0].log()), "needs at least one predicate"),
    "level": (later(lambda: stream().log("LOUD", name="l")), "step 'l': level is 'LOUD'"),
    "unit": (later(lambda: Builder("p").source(SEQUENCE, event_time=0, unit="min").log()), "unit is 'min'"),
    "no source": (lambda: Builder("p").build(), "the program has no source"),
    "source of what": (later(lambda: Builder("p").source("x", name="s").log()), "step 's': 'x' is not a source"),
    "backwards": (later(lambda: Builder("p").source(sequence(1, start=2)).log()), "runs backwards"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_invalid_wiring_is_rejected_with_its_step(case: str) -> None:
    make, text = WRONG[case]
    with pytest.raises(TopologyError) as caught:
        make()
    assert text in str(caught.value)


def test_all_problems_are_reported_together() -> None:
    numbers = stream()
    numbers.map(3, name="a")
    numbers.key_by(name="b")
    with pytest.raises(TopologyError) as caught:
        numbers._draft.to_program()
    assert len(caught.value.problems) == 3


def test_cycles_and_missing_inputs_are_reported() -> None:
    source = SourceStep("s", SEQUENCE)
    loop = (MapStep("a", Ref("b"), abs), MapStep("b", Ref("a"), abs), SinkStep("out", Ref("b"), collect()))
    from heronry.streamlet.check import validate_program

    (problem,) = (p for p in validate_program(Program("p", (source, *loop))) if "cycle" in p)
    assert problem.startswith("step 'a' reads 'b', which comes after it")
    gone = validate_program(Program("p", (source, SinkStep("out", Ref("sss"), collect()))))
    assert "step 'out' reads 'sss', which does not exist" in gone[0]


def test_steps_are_named_after_functions_and_numbered() -> None:
    numbers = stream()
    numbers.map(abs).map(abs).filter(lambda n: n).flat_map(range).log()
    assert [step.name for step in numbers._draft.to_program().steps] == [
        "numbers",
        "abs",
        "abs_2",
        "filter",
        "range",
        "log",
    ]


def test_program_describes_itself() -> None:
    numbers = stream()
    numbers.branch(bool, name="b")[1].count_by_key(key=0, name="c").sink(collect())
    program = numbers._draft.to_program()
    assert program.describe().splitlines()[2] == "c: reduce <- b[1]"


def test_builder_is_rechecked_after_a_change_without_a_step() -> None:
    builder = Builder("p")
    numbers = builder.source([1, 2], name="numbers")
    numbers.sink(collect())
    assert builder.build().name == "p"
    numbers.key_by(name="dangling")
    with pytest.raises(TopologyError, match="'dangling'"):
        builder.build()


def test_plain_reducers_are_marked() -> None:
    numbers = stream()
    numbers.reduce_by_key(sum_(), key="k", value="v", name="plain").log()
    numbers.reduce_by_key(sum_(), key=lambda r: r, name="key").log()
    numbers.reduce_by_key(monoid(0, operator.add), key="k", name="own").log()
    steps = numbers._draft.to_program().by_name
    assert [steps[name].plain for name in ("plain", "key", "own")] == [True, False, False]  # type: ignore[union-attr]
    assert isinstance(steps["own"], ReduceStep)


def test_reference_runs_a_small_example() -> None:
    builder = Builder("p")
    events = builder.source([{"t": 59.9, "k": 1}, {"t": 60, "k": 1.0}, {"t": -1, "k": "x"}], event_time="t")
    events.key_by("k").window(sliding(60, 30)).count_by_key().sink(collect(), name="windows")
    events.reduce_by_key(max, key=lambda r: type(r["k"]).__name__, value="t").sink(collect(), name="latest")
    big, rest = events.branch(lambda r: r["t"] > 0)
    big.union(rest).map(lambda r: r["t"]).sink(collect(), name="all")
    found = run(builder.build())
    assert set(found["windows"]) == {
        Windowed(1, 0, 60_000, 1), Windowed(1, 30_000, 90_000, 2), Windowed(1, 60_000, 120_000, 1),
        Windowed("x", -60_000, 0, 1), Windowed("x", -30_000, 30_000, 1),
    }  # fmt: skip
    assert set(found["latest"]) == {KeyValue("int", 59.9), KeyValue("float", 60), KeyValue("str", -1)}
    assert sorted(found["all"]) == [-1, 59.9, 60]


def test_reference_error_names_step_and_record() -> None:
    builder = Builder("p")
    builder.source([1, 0, 2]).map(lambda n: 1 / n, name="inverse").sink(collect())
    with pytest.raises(StepFailed, match="step 'inverse' failed on the record 0: ZeroDivisionError"):
        run(builder.build())
    builder = Builder("p")
    builder.source([[1]]).key_by(name="k").count_by_key().sink(collect())
    with pytest.raises(StepFailed, match=r"step 'k' failed on the record \[1\].*use tuple"):
        run(builder.build())


def test_missing_field_is_named_with_the_existing_ones() -> None:
    builder = Builder("p")
    builder.source([{"user": 1, "time": 2}]).key_by("usr", name="by").count_by_key(name="c").sink(collect())
    with pytest.raises(StepFailed, match=r"no field 'usr', it has 'user', 'time'; did you mean 'user'\?") as caught:
        run(builder.build())
    again = pickle.loads(pickle.dumps(caught.value.__cause__))
    assert (type(again), str(again)) == (NoSuchField, str(caught.value.__cause__))


def test_inputs_may_replace_sources() -> None:
    builder = Builder("p")
    builder.source(files("/nowhere", "text"), name="lines").key_by().count_by_key().sink(collect(), name="out")
    assert run(builder.build(), {"lines": ["a", "a"]}) == {"out": [KeyValue("a", 2)]}
    with pytest.raises(TopologyError, match="unknown source step 'line'"):
        run(builder.build(), {"lines": [], "line": []})
    with pytest.raises(FileNotFoundError):
        run(builder.build())


def test_monoids_are_values() -> None:
    assert count().builtin == "count"
    assert repr(top_k(3, by="n")) == "top_k(k=3, by=n)"
    assert max_() == max_()


def test_programs_of_the_guide_run() -> None:
    """The first program of docs/explanation/streamlet.md and its test."""
    guide = (Path(__file__).resolve().parents[3] / "docs" / "explanation" / "streamlet.md").read_text()
    program, test = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[:2]
    names: dict[str, Any] = {}
    exec(program, names)
    exec(test.replace("from words import words\n", ""), names)

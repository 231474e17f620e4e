"""Online results after all watermarks have closed equal those of the reference."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronry import TopologyError
from heronry.streamlet import (
    Builder,
    Context,
    Monoid,
    collect,
    count,
    distinct,
    max_,
    mean,
    min_,
    monoid,
    session,
    sliding,
    sum_,
    to_files,
    top_k,
    tumbling,
)
from heronry.streamlet.endpoints import SequenceSource
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.results import finished, latest, read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.exact_programs import Visits
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable

SPAN_SECONDS = 200


def _half(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "v": None if record["v"] is None else record["v"] / 2}


def _odd(record: dict[str, Any]) -> bool:
    return record["t"] % 2 == 1


def _twice(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [record, {**record, "k": record["k"] * 2}] if record["t"] % 3 else []


@dataclass(frozen=True)
class Typed:
    t: int
    k: str
    v: float | None = 0.5


def _loose(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record as CSV may contain it."""
    value = record["v"]
    found = {"t": str(record["t"]), "k": str(record["k"]), "v": "" if value is None else repr(value)}
    return found if record["t"] % 5 else {"t": record["t"], "k": str(record["k"])}


OPERATIONS: dict[str, Callable[[Any, int | None], Any]] = {
    "map": lambda s, par: s.map(_half, parallelism=par),
    "filter": lambda s, par: s.filter(_odd, parallelism=par),
    "flat_map": lambda s, par: s.flat_map(_twice, parallelism=par),
    "branch": lambda s, par: s.branch(_odd, parallelism=par)[1],
    "union": lambda s, par: s.union(s.filter(_odd), parallelism=par),
    "lookup": lambda s, par: s.lookup([{"k": "a", "n": 2}, {"k": 2.5, "n": 3}], "k", how="left", parallelism=par).map(
        lambda found: {**found.record, "t": found.record["t"] + (found.row["n"] if found.row else 0)}
    ),
    "schema": lambda s, par: s.map(_loose).with_schema(Typed, parallelism=par),
    "split and union": lambda s, par: (lambda a, b: a.map(_half).union(b, parallelism=par))(*s.branch(_odd)),
}
MONOIDS: dict[str, Monoid] = {
    "count": count(),
    "sum": sum_(),
    "min": min_(),
    "max": max_(),
    "mean": mean(),
    "top_k": top_k(2),
    "distinct": distinct(6),
    "own": monoid(frozenset, lambda a, b: a | b, sorted, lambda v: frozenset([str(v)]), name="own"),
}
WINDOWS = {"tumbling": tumbling(30), "sliding": sliding(30, 7), "session": session(6)}
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(-50, SPAN_SECONDS),
            "k": st.sampled_from(["a", "b", "ß", 1, 2.5, ("x", 1)]),
            "v": st.one_of(st.none(), st.integers(-9, 9), st.floats(-1e6, 1e6)),
        }
    ),
    max_size=60,
)


@dataclass(frozen=True)
class Shape:
    """Randomly drawn shape of a program."""

    records: list[dict[str, Any]]
    operations: list[tuple[str, int | None]]
    monoid: str
    window: str
    time_from_source: bool
    parallelism: tuple[int, int | None]
    updates: bool


SHAPES = st.builds(
    Shape,
    RECORDS,
    st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.sampled_from([None, None, 1, 2, 3])), max_size=4),
    st.sampled_from(sorted(MONOIDS)),
    st.sampled_from(["none", *sorted(WINDOWS)]),
    st.booleans(),
    st.tuples(st.integers(1, 2), st.sampled_from([None, 1, 3])),
    st.booleans(),
)


def built(shape: Shape, folder: Path, out: list[Any]) -> Builder:
    builder = Builder("law", {"user.streamlet.folder": str(folder)})
    source = SequenceSource(len(shape.records), make=tuple(shape.records).__getitem__)
    stream = builder.source(
        source, event_time="t" if shape.time_from_source else None, parallelism=shape.parallelism[0]
    )
    for name, par in shape.operations:
        stream = OPERATIONS[name](stream, par)
    if shape.window != "none":
        window = WINDOWS[shape.window]
        time = None if shape.time_from_source else "t"
        stream = stream.window(window, event_time=time, allowed_lateness=10 * SPAN_SECONDS)
    reduced = stream.key_by("k").reduce_by_key(
        MONOIDS[shape.monoid], value="v", updates=shape.updates, parallelism=shape.parallelism[1]
    )
    reduced.tap(out.append, name="out")
    return builder


def reference(program: Program, out: list[Any]) -> list[Any]:
    run(program)
    expected, out[:] = out[:], []
    return expected


@given(SHAPES, st.integers(0, 1000))
def test_online_equals_the_reference(shape: Shape, seed: int) -> None:
    out: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        builder = built(shape, Path(folder), out)
        expected = reference(builder.build(), out)
        with importable(builder):
            world = OnlineEngine(definition_of(builder), Path(folder), seed)
            world.until_final()
            world.stop()
    online = latest(out) if shape.updates and shape.window == "none" else out
    assert difference(online, expected) == ""


@settings(max_examples=25)
@given(RECORDS, st.tuples(st.integers(1, 2), st.integers(1, 3)), st.booleans(), st.integers(0, 1000))
def test_process_online_equals_the_reference(
    records: list[dict[str, Any]], parallelism: tuple[int, int], time_from_source: bool, seed: int
) -> None:
    out: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("law", {"user.streamlet.folder": folder})
        stream = builder.source(records, event_time="t" if time_from_source else None, parallelism=parallelism[0])
        told = stream.key_by("k").process(
            Visits, event_time=None if time_from_source else "t", allowed_lateness=SPAN_SECONDS,
            parallelism=parallelism[1],
        )  # fmt: skip
        told.tap(out.append, name="out")
        told.late().tap(out.append, name="late")
        told.key_by("key").window(tumbling(10)).count_by_key().tap(out.append, name="counts")
        expected = reference(builder.build(), out)
        with importable(builder):
            world = OnlineEngine(definition_of(builder), Path(folder), seed)
            world.until_final()
            world.stop()
    assert difference(out, expected) == ""


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
        with importable(builder):
            world = OnlineEngine(definition_of(builder), Path(folder), 1)
            world.until_final()
            world.stop()
        files = Path(folder, "failed").glob("*.jsonl")
        letters = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    keys = ("step", "record", "failed_on", "error")
    found, wanted = (sorted(repr([one[key] for key in keys]) for one in those) for those in (letters, expected))
    assert found == wanted
    assert len(found) == 10
    assert difference(out, truth) == ""


def test_two_reducers_in_a_row_equal_the_reference() -> None:
    """The ten most frequent words: final counts, and windows, feed another reducer."""
    out: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("two", {"user.streamlet.folder": folder})
        words = [{"t": n % 97, "w": f"w{n * n % 23}"} for n in range(500)]
        source = builder.source(words, event_time="t", parallelism=2)
        counts = source.key_by("w").count_by_key(updates=False, parallelism=2)
        counts.key_by(lambda kv: "all").reduce_by_key(top_k(10, by="value"), parallelism=2).tap(out.append, name="top")
        minutes = source.window(tumbling(10), allowed_lateness=200).key_by("w").count_by_key(parallelism=2)
        minutes.window(sliding(30, 10)).key_by("key").sum_by_key("value").tap(out.append, name="sums", parallelism=2)
        expected = reference(builder.build(), out)
        with importable(builder):
            world = OnlineEngine(definition_of(builder), Path(folder), 3)
            world.until_final()
            world.stop()
    windowed = [r for r in out if len(r) == 4]
    assert difference(windowed + latest([r for r in out if len(r) == 2]), expected) == ""
    assert len(windowed) > 50


def test_late_data_goes_to_its_own_stream_and_is_counted() -> None:
    on_time: list[Any] = []
    late: list[Any] = []
    times = [*range(5000), 3, *range(5000, 9000)]
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("late", {"user.streamlet.folder": folder})
        counts = (
            builder.source([{"t": t, "k": "x"} for t in times])
            .key_by("k")
            .window(tumbling(10), event_time="t", allowed_lateness=5)
            .count_by_key()
        )
        counts.tap(on_time.append, name="on_time")
        counts.late().tap(late.append, name="late")
        with importable(builder):
            world = OnlineEngine(definition_of(builder), Path(folder), 1)
            world.until_final()
            (reducer,) = world.objects("count_by_key")
            world.stop()
    assert late == [("x", 0, 10_000, 1)]
    assert reducer.late_count.get_value() == 1
    assert sum(row.value for row in on_time) == len(times) - 1
    assert len({row.start for row in on_time}) == len(on_time) == 900


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
        with importable(builder):
            world = OnlineEngine(definition_of(builder), Path(folder), par)
            world.until_final()
            world.stop()
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

"""The law: what a program gives online, after every watermark has closed, is what the reference gives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from comparing import difference
from hypothesis import given, settings
from hypothesis import strategies as st
from online_world import OnlineWorld, definition_of, importable

from heronry.streamlet import (
    Builder,
    Monoid,
    count,
    distinct,
    max_,
    mean,
    min_,
    monoid,
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

SPAN_SECONDS = 200


def _half(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "v": None if record["v"] is None else record["v"] / 2}


def _odd(record: dict[str, Any]) -> bool:
    return record["t"] % 2 == 1


def _twice(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [record, {**record, "k": record["k"] * 2}] if record["t"] % 3 else []


OPERATIONS: dict[str, Callable[[Any, int | None], Any]] = {
    "map": lambda s, par: s.map(_half, parallelism=par),
    "filter": lambda s, par: s.filter(_odd, parallelism=par),
    "flat_map": lambda s, par: s.flat_map(_twice, parallelism=par),
    "branch": lambda s, par: s.branch(_odd, parallelism=par)[1],
    "union": lambda s, par: s.union(s.filter(_odd), parallelism=par),
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
    """A program, drawn."""

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
    st.sampled_from(["none", "tumbling", "sliding"]),
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
        window = tumbling(30) if shape.window == "tumbling" else sliding(30, 7)
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


@settings(max_examples=60)
@given(SHAPES, st.integers(0, 1000))
def test_online_equals_the_reference(shape: Shape, seed: int) -> None:
    out: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        builder = built(shape, Path(folder), out)
        expected = reference(builder.build(), out)
        with importable(builder):
            world = OnlineWorld(definition_of(builder), Path(folder), seed)
            world.until_final()
            world.stop()
    online = latest(out) if shape.updates and shape.window == "none" else out
    assert difference(online, expected) == ""


def run_with_deaths(builder: Builder, folder: Path, seed: int, data: st.DataObject, least: int) -> None:
    """Run to the end while ``least`` to four tasks are killed at any moment."""
    world = OnlineWorld(definition_of(builder), folder, seed)
    for _ in range(data.draw(st.integers(least, 4))):
        world.run_on(data.draw(st.sampled_from([0.2, 0.7, 1.5])))
        world.kill(data.draw(st.sampled_from(world.plan.tasks())))
    # FINAL is repeated each five seconds, for those who were not there.
    for _ in range(10):
        world.run_on(7)
        if world.is_final() and finished(f"{folder}/out"):
            break
        world.expire()
    assert finished(f"{folder}/out")
    world.stop()


@settings(max_examples=12)
@given(RECORDS.filter(lambda records: len(records) > 5), st.integers(0, 1000), st.data())
def test_nothing_is_lost_when_tasks_die(records: list[dict[str, Any]], seed: int, data: st.DataObject) -> None:
    """Every task may die at any time; each record is counted at least once, and no key is invented."""
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("deaths", {"user.streamlet.folder": f"{folder}/state"})
        source = SequenceSource(len(records), make=tuple(records).__getitem__, rate=40)
        (
            builder.source(source, parallelism=2)
            .map(_half, parallelism=2)
            .map(lambda record: str(record["k"]), parallelism=1)
            .key_by()
            .count_by_key(parallelism=2)
            .sink(to_files(f"{folder}/out"))
        )
        with importable(builder):
            run_with_deaths(builder, Path(folder), seed, data, least=1)
        counted = {r.key: r.value for r in latest(read(f"{folder}/out"))}
        (expected,) = run(builder.build()).values()
        truth = {r.key: r.value for r in expected}
    assert counted.keys() == truth.keys()
    assert all(counted[key] >= truth[key] for key in truth)


def test_two_reducers_in_a_row() -> None:
    """The ten most frequent words: final counts into a reducer of their own; windows into windows."""
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
            world = OnlineWorld(definition_of(builder), Path(folder), 3)
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
            world = OnlineWorld(definition_of(builder), Path(folder), 1)
            world.until_final()
            (reducer,) = world.objects("count_by_key")
            world.stop()
    assert late == [("x", 0, 10_000, 1)]
    assert reducer.late_count.get_value() == 1
    assert sum(row.value for row in on_time) == len(times) - 1
    assert len({row.start for row in on_time}) == len(on_time) == 900


def test_an_idle_source_does_not_hold_windows_open() -> None:
    """One of two sources falls silent after a record; windows of the other's close once it has said so."""
    out: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("idle", {"user.streamlet.folder": folder, "user.streamlet.idle.secs": 1})
        endless = SequenceSource(None, make=lambda n: {"t": n, "k": "x"}, rate=50)
        quiet = SequenceSource(None, make=lambda n: {"t": n, "k": "y"}, rate=1e-9)
        a = builder.source(endless, event_time="t", name="busy")
        b = builder.source(quiet, event_time="t", name="quiet")
        a.union(b).window(tumbling(10)).key_by("k").count_by_key().tap(out.append, name="out")
        with importable(builder):
            world = OnlineWorld(definition_of(builder), Path(folder), 1)
            world.run_on(0.8)
            assert out == []
            world.run_on(10)
            world.stop()
    busy = [row for row in out if row.key == "x"]
    assert [row.start for row in busy] == [10_000 * n for n in range(len(busy))]
    assert len(busy) > 20
    assert all(row.value == 10 for row in busy)


@pytest.mark.parametrize("par", [1, 3])
def test_a_record_that_fails_is_named_and_comes_again(par: int) -> None:
    tries: list[Any] = []

    def picky(record: int) -> int:
        if record == 1500:
            tries.append(record)
            if len(tries) < 3:
                raise ValueError("not yet")
        return record

    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("fails", {"user.streamlet.folder": folder})
        out: list[Any] = []
        builder.source(range(3000)).map(picky).map(lambda n: n, parallelism=par, name="same").tap(out.append)
        with importable(builder):
            world = OnlineWorld(definition_of(builder), Path(folder), par)
            world.until_final()
            reasons = [reason.message for reason in world.failed.values()]
            world.stop()
    assert set(out) == set(range(3000))
    assert len(reasons) == 2
    assert all("step 'picky' failed on the record 1500" in text for text in reasons)


@settings(max_examples=12)
@given(RECORDS.filter(lambda records: len(records) > 5), st.integers(0, 1000), st.data())
def test_no_window_is_lost_when_tasks_die(records: list[dict[str, Any]], seed: int, data: st.DataObject) -> None:
    """What came in time and what came late, together, is at least the truth, for every key and window."""
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder("windows", {"user.streamlet.folder": f"{folder}/state", "user.streamlet.idle.secs": 1})
        source = SequenceSource(len(records), make=tuple(records).__getitem__, rate=60)
        counts = (
            builder.source(source, event_time="t", parallelism=2)
            .key_by(lambda record: str(record["k"]))
            .window(tumbling(20), allowed_lateness=data.draw(st.sampled_from([0, 40])))
            .count_by_key(name="counts", parallelism=2)
        )
        counts.sink(to_files(f"{folder}/out"), name="out")
        counts.late().sink(to_files(f"{folder}/late"), name="late")
        with importable(builder):
            run_with_deaths(builder, Path(folder), seed, data, least=0)
        found: dict[Any, int] = {}
        for row in read(f"{folder}/out"):  # one that was shown just before a death may be shown again
            found[row.key, row.start] = max(found.get((row.key, row.start), 0), row.value)
        for row in read(f"{folder}/late"):
            found[row.key, row.start] = found.get((row.key, row.start), 0) + row.value
        truth = {(row.key, row.start): row.value for row in run(builder.build())["out"]}
    assert found.keys() == truth.keys()
    assert all(found[place] >= truth[place] for place in truth)

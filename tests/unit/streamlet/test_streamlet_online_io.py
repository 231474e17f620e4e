"""Online sources, sinks, views and on-disk state in the deterministic engine."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from operator import add
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_runtime.model.keys import encode, index_of
from heronry import TopologyError
from heronry.streamlet import (
    Builder,
    Window,
    archive,
    collect,
    distinct,
    files,
    mean,
    monoid,
    sequence,
    sum_,
    to_files,
    tumbling,
    view,
)
from heronry.streamlet.decoding import read_all
from heronry.streamlet.monoid import builtin_monoid
from heronry.streamlet.online.compile import compile_program
from heronry.streamlet.online.locate import PATHS, load_submitted_program
from heronry.streamlet.online.process_state import ProcessReducerState
from heronry.streamlet.online.session_state import SessionReducerState
from heronry.streamlet.online.stages import StageKind, plan_stages
from heronry.streamlet.online.state import ReducerEntry, WindowReducerState
from heronry.streamlet.online.watermark import FOREVER
from heronry.streamlet.process import handlers_of
from heronry.streamlet.reference import run
from heronry.streamlet.results import finished, latest, read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import (
    OnlineEngine,
    builder_in,
    definition_of,
    importable,
    letters_in,
    run_online,
)


def all_entries(state: WindowReducerState) -> list[ReducerEntry]:
    return [entry for start in (None, *state.starts()) for entry in state.entries(start)]


def test_stages_fuse_adjacent_steps() -> None:
    builder = Builder("stages")
    lines = builder.source(sequence(5), name="numbers", parallelism=2)
    a = lines.map(abs, name="a").filter(bool, name="b")
    c = a.map(abs, name="c", parallelism=3).map(abs, name="d")
    counts = c.count_by_key(key=lambda n: n, name="counts").map(abs, name="e")
    counts.sink(collect(), name="out")
    lines.key_by().count_by_key(name="direct").log(name="log", parallelism=1)
    a.union(c, name="u").log(name="log2")
    stages = plan_stages(builder.build())
    assert [(s.name, s.kind, s.parallelism, s.steps) for s in stages.stages] == [
        ("numbers", StageKind.SOURCE, 2, ("numbers",)),
        ("a", StageKind.CHAIN, 2, ("a", "b")),
        ("c", StageKind.CHAIN, 3, ("c", "d")),
        ("counts", StageKind.REDUCER, 3, ("counts", "e", "out")),
        ("direct", StageKind.REDUCER, 2, ("direct",)),
        ("log", StageKind.CHAIN, 1, ("log",)),
        ("u", StageKind.CHAIN, 3, ("u", "log2")),
    ]
    assert stages.stage("a").combines == ("direct",)
    assert stages.stage("c").combines == ("counts",)
    assert stages.origins("u") == {"a": ["numbers"], "c": ["numbers"]}
    with importable(builder):
        definition = definition_of(builder)
    assert {c.name for c in definition.components} == {s.name for s in stages.stages}


def test_only_the_submitted_program_is_loaded_with_its_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder("found")
    builder.source(files("/a/b", "text"), name="s").log()
    other = Builder("found")
    other.source(files("/c/d", "text"), name="s").tap(abs)
    with pytest.raises(TopologyError, match="is in no variable that its tasks could import"):
        compile_program(builder.build())
    with importable(builder):
        (config, *_) = [dict(spec.config) for spec in definition_of(builder).components]
        config[PATHS] = {"s": "/elsewhere"}
        assert next(load_submitted_program(config).sources()).source.path == "/elsewhere"  # type: ignore[union-attr]
    with importable(other), pytest.raises(TopologyError, match="is not the program that was submitted"):
        load_submitted_program(config)


def test_file_url_is_a_path() -> None:
    builder = Builder("near")
    builder.source(files("file:///near/in", "text"), name="a").sink(to_files("file:///near/a%20b"), name="b")
    assert [step.source for step in builder.build().sources()] == [files("/near/in", "text")]
    assert [step.sink for step in builder.build().sinks()] == [to_files("/near/a b")]
    with pytest.raises(TopologyError, match="path is empty"):
        files("")


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), data=st.data())
def test_growing_folder_is_read_once_for_any_faults(
    seed: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("grows")
    builder = builder_in(folder)
    source = files(folder / "in", "json", grows=True)
    builder.source(source, name="lines", parallelism=2).sink(to_files(folder / "out"), parallelism=2)
    written: list[Any] = []
    (folder / "in").mkdir()
    with importable(builder):
        world = OnlineEngine(definition_of(builder), folder, seed)
        for _ in range(4):
            name = data.draw(st.sampled_from(["a", "b", "c"]))
            with (folder / "in" / name).open("a") as file:
                for _ in range(data.draw(st.integers(0, 30))):
                    written.append(len(written))
                    file.write(f"{written[-1]}\n")
                file.write(" ")  # an incomplete line
            world.run_on(1)
            fault = data.draw(st.integers(0, 3))
            if fault == 0:
                world.kill(data.draw(st.sampled_from(world.plan.tasks())))
            elif fault == 1:
                world.rescale({"lines": data.draw(st.integers(1, 3))})
        world.run_on(12)
        world.stop()
    assert sorted(read(folder / "out")) == written


def test_finished_source_stays_finished_after_a_restore(tmp_path: Path) -> None:
    """Files added later to a fixed folder are not read, and deleted ones are not missed."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first").write_text("a\nb\n")
    builder = builder_in(tmp_path)
    source = builder.source(files(tmp_path / "in", "text"), name="lines", parallelism=2)
    source.key_by().count_by_key(name="counts").sink(to_files(tmp_path / "out"))
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.until_final()
        for name in "cdefgh":
            (tmp_path / "in" / name).write_text(f"{name}\n")
        world.kill(world.plan.tasks()[0])
        world.run_on(8)
        world.rescale({"lines": 3, "counts": 2})
        world.until_final()
        world.stop()
    assert finished(tmp_path / "out")
    assert sorted(read(tmp_path / "out")) == [("a", 1), ("b", 1)]


def test_missing_input_is_named_with_a_remedy(tmp_path: Path) -> None:
    builder = builder_in(tmp_path)
    builder.source(files(tmp_path / "absent", "text"), name="lines").sink(to_files(tmp_path / "out"))
    with importable(builder), pytest.raises(FileNotFoundError, match="step 'lines': no such file") as raised:
        OnlineEngine(definition_of(builder), tmp_path, 1)
    assert raised.value.filename == str(tmp_path / "absent")
    assert "mount it at the same path" in str(raised.value)


def test_archive_keeps_each_record_once(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    builder = builder_in(tmp_path)
    made = builder.source(
        sequence(3000, lambda n: {"t": n * 7, "n": n}, rate=2000), event_time="t", name="s", parallelism=2
    )
    doubled = made.flat_map(lambda r: [r, {**r, "again": True}] if r["n"] % 2 else [], name="double", parallelism=2)
    doubled.sink(archive(tmp_path / "archive"), name="archive")
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 5)
        world.run_on(0.7)
        (task, *_) = world.plan.tasks_of("double")
        world.kill(task)
        world.until_final()
        world.stop()
    kept = list(read_all(files(tmp_path / "archive", "archive")))
    expected = [({"t": n * 7, "n": n, **more}, n * 7000) for n in range(1, 3000, 2) for more in ({}, {"again": True})]
    assert difference(kept, expected) == ""
    hours = sorted(p.relative_to(tmp_path / "archive").as_posix() for p in (tmp_path / "archive").glob("date=*/hour=*"))
    assert hours == [f"date=1970-01-01/hour={hour:02}" for hour in range(6)]
    hidden = [path.name for path in (tmp_path / "archive").rglob(".*")]
    assert all(name.startswith(".archive-done-") for name in hidden), "only the marks of what was committed stay"
    import pyarrow.parquet

    first = sorted((tmp_path / "archive" / hours[0]).iterdir())[0]
    table = pyarrow.parquet.read_table(first)
    assert table.column_names == ["message_id", "index", "event_time", "value"]
    assert re.fullmatch(r"s::\d+", table["message_id"][0].as_py())
    assert set(table["index"].to_pylist()) == {"0", "1"}


def test_archive_rejects_values_that_json_would_change(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    builder = builder_in(tmp_path)
    builder.source([(1, 2), [3, 4]], event_time=0, name="s").sink(archive(tmp_path / "archive"), name="a")
    (bolt,) = run_online(builder, tmp_path).objects("a")
    (aside,) = letters_in(tmp_path)
    assert (aside["step"], aside["failed_on"]) == ("a", "(1, 2)")
    assert "map it to lists" in aside["error"]
    assert bolt.letters.count.get_value() == 1
    assert [record for record, _ in read_all(files(tmp_path / "archive", "archive"))] == [[3, 4]]


def view_rows(folder: Path) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return finished values by (key, start), and the header of the files."""
    found: dict[Any, Any] = {}
    head: dict[str, Any] = {}
    for file in sorted(folder.glob("online/*/*.msgpack")):
        body = msgspec.msgpack.decode(file.read_bytes())
        tried = builtin_monoid(body["monoid"], body["parameters"])
        for key, start, packed in body.pop("rows"):
            assert str(start) == file.parent.name
            assert (key, start) not in found, "a key stands in one task's file"
            found[key, start] = tried.finish(tried.unpack(packed))
        head = body
    return found, head


def test_view_has_the_accumulators_of_each_bucket(tmp_path: Path) -> None:
    builder = builder_in(tmp_path)
    rows = [{"t": t, "k": f"k{t % 7}", "v": t} for t in range(0, 9000, 13)]
    timed = builder.source(rows, event_time="t", parallelism=2)
    running = timed.reduce_by_key(mean(), value="v", key="k", name="running", parallelism=2)
    running.sink(view("running", tmp_path / "running", bucket=3600), name="v1")
    running.sink(collect(), name="totals")
    windows = timed.key_by("k").window(tumbling(1000), allowed_lateness=10_000)
    windows.reduce_by_key(distinct(), value="v", name="windows").sink(view("windows", tmp_path / "windows"), name="v2")
    run_online(builder, tmp_path, 2)
    found, head = view_rows(tmp_path / "running")
    truth = {
        (key, hour * 3_600_000): sum(mine) / len(mine)
        for hour in range(3)
        for key in {r["k"] for r in rows}
        if (mine := [r["v"] for r in rows if r["k"] == key and r["t"] // 3600 == hour])
    }
    assert found == pytest.approx(truth)
    assert (head["view"], head["bucket_ms"], head["length_ms"]) == ("running", 3_600_000, None)
    totals = latest(read(tmp_path / "own" / "collect" / "totals"))
    assert difference(totals, run(builder.build())["totals"]) == ""
    found, head = view_rows(tmp_path / "windows")
    assert head["length_ms"] == 1_000_000
    assert sum(found.values()) == len(rows)


def test_keys_and_accumulators_of_any_kind_are_restored(tmp_path: Path) -> None:
    """Includes values that a view cannot publish, or publishes in another form."""
    rows = [{"t": t, "k": key, "v": t} for t in range(120) for key in (frozenset([t % 3]), ("a", t % 2), 2**70, 1.5)]
    builder = builder_in(tmp_path)
    own = monoid(tuple, lambda a, b: (*a, *b), sorted, lambda v: (v,))
    made = builder.source(sequence(len(rows), rows.__getitem__, rate=100), event_time="t")
    reduced = made.reduce_by_key(own, key="k", value="v", name="made", parallelism=2)
    reduced.sink(view("odd", tmp_path / "view", bucket=10), name="v")
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 7)
        world.run_on(3.5)
        world.kill(world.plan.tasks_of("made")[0])
        world.rescale({"made": 3})
        world.until_final()
        reducers = world.objects("made")
        world.stop()
    entries = [entry for reducer in reducers for entry in all_entries(reducer._state)]
    found = {(entry.key, entry.start): sorted(entry.acc) for entry in entries}
    truth: dict[Any, list[int]] = {}
    for row in rows:
        truth.setdefault((row["k"], row["t"] // 10 * 10_000), []).append(row["v"])
    assert found == truth


# Single components.

KEYS = st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans(), st.tuples(st.text(), st.integers()))


@given(rows=st.lists(st.tuples(st.sampled_from([0, 10, 20]), KEYS, st.integers())), data=st.data())
def test_changed_entries_rebuild_the_state(rows: list[Any], data: st.DataObject) -> None:
    state = WindowReducerState(sum_(), 10)
    kept: dict[Any, ReducerEntry] = {}

    def keep() -> None:
        dropped, changed = state.take_changed()
        for start, key in dropped:
            kept.pop((start, index_of(key)), None)
        kept.update({(entry.start, index_of(entry.key)): entry for entry in changed})

    for start, key, value in rows:
        state.add(start, key, value)
        choice = data.draw(st.integers(0, 5))
        if choice == 0:
            state.take_shown()
        elif choice == 1:
            keep()
        elif choice == 2:
            state.close(data.draw(st.integers(0, 20)))
        state.check()
    keep()
    restored = WindowReducerState(sum_(), 10)
    restored.restore(kept.values(), state.closed_ms)
    assert restored.due() == []
    entries = [{(e.start, index_of(e.key)): e.acc for e in all_entries(s)} for s in (state, restored)]
    assert entries[0] == entries[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: WindowReducerState(sum_(), 10),
        lambda: SessionReducerState(monoid(int, add), 10, 0),
        lambda: ProcessReducerState("p", handlers_of(lambda context, record: None), 0),
    ],
)
@given(keys=st.lists(st.sampled_from([1, True, 1.0, Decimal(1), Fraction(1), np.int8(1), "a", np.str_("a"), b"a"])))
def test_equal_keys_of_different_types_share_an_entry(make: Any, keys: list[Any]) -> None:
    state = make()
    acc = {WindowReducerState: 1, SessionReducerState: (0, 1), ProcessReducerState: [1]}[type(state)]
    assert state.add_rows([(key, 0, acc) for key in keys]) == []
    assert sorted(map(encode, [entry.key for entry in state.entries(0)])) == sorted({*map(encode, keys)})


def test_keys_of_closed_windows_are_released() -> None:
    state = WindowReducerState(sum_(), 10)
    for start in range(0, 1000, 10):
        state.add(start, ("k", start), 1)
        state.add(start, ("all",), 1)
        state.close(start)
    assert len(state) == 2
    assert len(state._keys) == 2
    assert {entry.key for entry in all_entries(state)} == {("k", 990), ("all",)}


def test_closed_window_rejects_records() -> None:
    state = WindowReducerState(sum_(), 10, 5)
    assert state.add(0, "a", 1)
    assert state.close(14) == []
    assert state.add(0, "a", 1)
    assert state.close(15) == [(0, [ReducerEntry(0, "a", 2)])]
    assert not state.add(0, "a", 1)
    assert state.add(1, "a", 1)
    assert state.close(12) == []
    assert [start for start, _ in state.close(FOREVER)] == [1]


def test_windows_are_values() -> None:
    assert tumbling(60) == Window(60_000, 60_000)

"""Online sources, sinks, views and state on disk, in the deterministic world."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from comparing import difference
from hypothesis import given, settings
from hypothesis import strategies as st
from online_world import OnlineWorld, definition_of, importable

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
from heronry.streamlet.monoid import by_name
from heronry.streamlet.online.compile import compile_program
from heronry.streamlet.online.locate import PATHS, find
from heronry.streamlet.online.stages import StageKind, stages_of
from heronry.streamlet.online.state import Entry, ReduceState, identity
from heronry.streamlet.online.state_log import StateLog
from heronry.streamlet.online.watermark import FOREVER, Mark, Watermark
from heronry.streamlet.reference import run
from heronry.streamlet.results import finished, latest, read

ROOT = Path(__file__).resolve().parents[3]
NOVEL = ROOT / "examples" / "data" / "northanger_abbey.txt"


def builder_in(folder: Path, **more: Any) -> Builder:
    return Builder("io", {"user.streamlet.folder": str(folder / "state"), **more})


def test_stages_fuse_what_runs_together() -> None:
    builder = Builder("stages")
    lines = builder.source(sequence(5), name="numbers", parallelism=2)
    a = lines.map(abs, name="a").filter(bool, name="b")
    c = a.map(abs, name="c", parallelism=3).map(abs, name="d")
    counts = c.count_by_key(key=lambda n: n, name="counts").map(abs, name="e")
    counts.sink(collect(), name="out")
    lines.key_by().count_by_key(name="direct").log(name="log", parallelism=1)
    a.union(c, name="u").log(name="log2")
    stages = stages_of(builder.build())
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


def test_a_program_is_found_again_with_its_paths_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder("found")
    builder.source(files("/a/b", "text"), name="s").log()
    other = Builder("found")
    other.source(files("/c/d", "text"), name="s").tap(abs)
    with pytest.raises(TopologyError, match="is in no variable that its tasks could import"):
        compile_program(builder.build())
    with importable(builder):
        (config, *_) = [dict(spec.config) for spec in definition_of(builder).components]
        config[PATHS] = {"s": "/elsewhere"}
        assert next(find(config).sources()).source.path == "/elsewhere"  # type: ignore[union-attr]
    with importable(other), pytest.raises(TopologyError, match="is not the program that was submitted"):
        find(config)


def test_paths_are_local_online() -> None:
    builder = Builder("far")
    builder.source(files("hdfs://far/in", "text"), name="a").sink(to_files("file:///near/a%20b"), name="b")
    with importable(builder), pytest.raises(TopologyError, match="step 'a': hdfs://far/in is a URL") as caught:
        definition_of(builder)
    assert len(caught.value.problems) == 1
    assert [step.sink for step in builder.build().sinks()] == [to_files("/near/a b")]
    with pytest.raises(TopologyError, match="path is empty"):
        files("")


def test_word_count_over_the_novel(tmp_path: Path) -> None:
    builder = builder_in(tmp_path)
    (
        builder.source(files(NOVEL, "text"))
        .flat_map(lambda line: re.findall(r"[a-z']+", line.lower()), parallelism=2)
        .key_by()
        .count_by_key(parallelism=2)
        .sink(to_files(tmp_path / "out"), name="out")
    )
    with importable(builder):
        world = OnlineWorld(definition_of(builder), tmp_path, 1)
        world.until_final()
        world.stop()
    assert finished(tmp_path / "out")
    truth = Counter(re.findall(r"[a-z']+", NOVEL.read_text().lower()))
    assert dict(latest(read(tmp_path / "out"))) == truth
    assert difference(latest(read(tmp_path / "out")), run(builder.build())["out"]) == ""
    written = [json.loads(p.read_text()) for p in (tmp_path / "state" / "offsets").glob("*.json")]
    assert written == [{"": [NOVEL.stat().st_size, NOVEL.read_bytes().count(b"\n")]}]


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), data=st.data())
def test_a_folder_that_grows_is_read_to_its_end_whatever_dies(
    seed: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("grows")
    builder = builder_in(folder)
    source = files(folder / "in", "json", grows=True)
    builder.source(source, parallelism=2).sink(to_files(folder / "out"), parallelism=2)
    written: list[Any] = []
    (folder / "in").mkdir()
    with importable(builder):
        world = OnlineWorld(definition_of(builder), folder, seed)
        for turn in range(4):
            name = data.draw(st.sampled_from(["a", "b", "c"]))
            with (folder / "in" / name).open("a") as file:
                for _ in range(data.draw(st.integers(0, 30))):
                    written.append(len(written))
                    file.write(f"{written[-1]}\n")
                file.write(" ")  # a line that is not yet whole
            world.run_on(1)
            if data.draw(st.booleans()):
                world.kill(data.draw(st.sampled_from(world.plan.tasks())))
            if turn == 2:
                world.expire()
        world.expire()
        world.run_on(12)
        world.stop()
    found = read(folder / "out")
    assert set(found) == set(written)


def test_offsets_are_kept_and_nothing_is_read_twice_after_a_clean_stop(tmp_path: Path) -> None:
    text = tmp_path / "in"
    text.write_text("a\nb\n")
    builder = builder_in(tmp_path)
    builder.source(files(text, "text", grows=True)).sink(to_files(tmp_path / "out"))
    with importable(builder):
        for more in ("", "c\nd\n"):
            with text.open("a") as file:
                file.write(more)
            world = OnlineWorld(definition_of(builder), tmp_path, 1)
            world.run_on(4)
            world.stop()
    assert read(tmp_path / "out") == list("abcd")


def test_an_input_that_a_task_does_not_see_is_named_with_the_cure(tmp_path: Path) -> None:
    builder = builder_in(tmp_path)
    builder.source(files(tmp_path / "absent", "text"), name="lines").sink(to_files(tmp_path / "out"))
    with importable(builder), pytest.raises(FileNotFoundError, match="step 'lines': there is no such file") as raised:
        OnlineWorld(definition_of(builder), tmp_path, 1)
    assert raised.value.filename == str(tmp_path / "absent")
    assert "mount it at the same path" in str(raised.value)


def test_the_archive_keeps_what_passed_once_a_batch_has_removed_duplicates(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    builder = builder_in(tmp_path)
    made = builder.source(
        sequence(3000, lambda n: {"t": n * 7, "n": n}, rate=2000), event_time="t", name="s", parallelism=2
    )
    doubled = made.flat_map(lambda r: [r, {**r, "again": True}] if r["n"] % 2 else [], name="double", parallelism=2)
    doubled.sink(archive(tmp_path / "archive"), name="archive")
    with importable(builder):
        world = OnlineWorld(definition_of(builder), tmp_path, 5)
        world.run_on(0.7)
        (task, *_) = world.plan.tasks_of("double")
        world.kill(task)
        world.expire()
        for _ in range(6):
            world.run_on(6)
        world.stop()
    kept = list(read_all(files(tmp_path / "archive", "archive")))
    expected = [({"t": n * 7, "n": n, **more}, n * 7000) for n in range(1, 3000, 2) for more in ({}, {"again": True})]
    assert difference(kept, expected) == ""
    hours = sorted(p.relative_to(tmp_path / "archive").as_posix() for p in (tmp_path / "archive").glob("date=*/hour=*"))
    assert hours == [f"date=1970-01-01/hour={hour:02}" for hour in range(6)]
    assert not list((tmp_path / "archive").rglob(".*"))
    import pyarrow.parquet

    first = sorted((tmp_path / "archive" / hours[0]).iterdir())[0]
    table = pyarrow.parquet.read_table(first)
    assert table.column_names == ["message_id", "index", "event_time", "value"]
    assert re.fullmatch(r"s::\d+", table["message_id"][0].as_py())
    assert set(table["index"].to_pylist()) == {"0", "1"}


def test_what_json_would_change_is_refused_by_the_archive(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    builder = builder_in(tmp_path, **{"user.streamlet.retries": 1})
    builder.source([(1, 2), [3, 4]], event_time=0, name="s").sink(archive(tmp_path / "archive"), name="a")
    with importable(builder):
        world = OnlineWorld(definition_of(builder), tmp_path, 1)
        world.until_final()
        (bolt,) = world.objects("a")
        reasons = [reason.message for reason in world.failed.values()]
        world.stop()
    (reason,) = reasons  # the first try; the last one puts the record aside
    assert "step 'a' failed on the record (1, 2): TypeError" in reason
    assert "map it to lists" in reason
    assert bolt.letters.count.get_value() == 1
    assert [record for record, _ in read_all(files(tmp_path / "archive", "archive"))] == [[3, 4]]


def view_rows(folder: Path) -> tuple[dict[Any, Any], dict[str, Any]]:
    """(key, start) to finished value, and the head of the files."""
    found: dict[Any, Any] = {}
    head: dict[str, Any] = {}
    for file in sorted(folder.glob("online/*/*.msgpack")):
        body = msgspec.msgpack.decode(file.read_bytes())
        tried = by_name(body["monoid"], body["parameters"])
        for key, start, packed in body.pop("rows"):
            assert str(start) == file.parent.name
            assert (key, start) not in found, "a key stands in one task's file"
            found[key, start] = tried.finish(tried.unpack(packed))
        head = body
    return found, head


def test_a_view_has_the_accumulators_of_each_bucket(tmp_path: Path) -> None:
    builder = builder_in(tmp_path)
    rows = [{"t": t, "k": f"k{t % 7}", "v": t} for t in range(0, 9000, 13)]
    timed = builder.source(rows, event_time="t", parallelism=2)
    running = timed.reduce_by_key(mean(), value="v", key="k", name="running", parallelism=2)
    running.sink(view("running", tmp_path / "running", bucket=3600), name="v1")
    running.sink(collect(), name="totals")
    windows = timed.key_by("k").window(tumbling(1000), allowed_lateness=10_000)
    windows.reduce_by_key(distinct(), value="v", name="windows").sink(view("windows", tmp_path / "windows"), name="v2")
    with importable(builder):
        world = OnlineWorld(definition_of(builder), tmp_path, 2)
        world.until_final()
        world.stop()
    found, head = view_rows(tmp_path / "running")
    truth = {
        (key, hour * 3_600_000): sum(mine) / len(mine)
        for hour in range(3)
        for key in {r["k"] for r in rows}
        if (mine := [r["v"] for r in rows if r["k"] == key and r["t"] // 3600 == hour])
    }
    assert found == pytest.approx(truth)
    assert (head["view"], head["bucket_ms"], head["length_ms"]) == ("running", 3_600_000, None)
    totals = latest(read(tmp_path / "state" / "collect" / "totals"))
    assert difference(totals, run(builder.build())["totals"]) == ""
    found, head = view_rows(tmp_path / "windows")
    assert head["length_ms"] == 1_000_000
    assert sum(found.values()) == len(rows)


@settings(max_examples=10)
@given(events=st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abcd")), min_size=5, max_size=80), data=st.data())
def test_buckets_of_a_view_are_spilled_and_come_back(
    events: list[Any], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With room for three accumulators, whatever dies: each bucket and total is at least the truth, exact without."""
    folder = tmp_path_factory.mktemp("spill")
    builder = builder_in(folder, **{"user.streamlet.view.keys": 3})
    rows = [{"t": t, "k": k} for t, k in events]
    timed = builder.source(sequence(len(rows), rows.__getitem__, rate=10), event_time="t")
    counts = timed.count_by_key("k", name="counts")
    counts.sink(view("spilled", folder / "view", bucket=10), name="v")
    counts.sink(collect(), name="totals")
    kills = data.draw(st.lists(st.sampled_from([0.3, 1.1, 2.6]), max_size=3))
    with importable(builder):
        world = OnlineWorld(definition_of(builder), folder, 7)
        for pause in kills:
            world.run_on(pause)
            world.kill(world.plan.tasks_of("counts")[0])
        for _ in range(12):
            world.run_on(7)
            if world.is_final() and finished(folder / "state" / "collect" / "totals"):
                break
            world.expire()
        (reducer,) = world.objects("counts")
        kept = {entry.start: 0 for entry in reducer._state.all_entries() if entry.start is not None}
        for entry in reducer._state.all_entries():
            if entry.start is not None:
                kept[entry.start] += 1
        world.stop()
    assert len(kept) <= 1 or sum(kept.values()) <= 3
    found, _ = view_rows(folder / "view")
    truth = Counter((k, t // 10 * 10_000) for t, k in events)
    totals = {row.key: row.value for row in latest(read(folder / "state" / "collect" / "totals"))}
    true_totals = Counter(k for _, k in events)
    assert found.keys() == truth.keys()
    assert totals.keys() == true_totals.keys()
    assert all(found[place] >= truth[place] for place in truth)
    assert all(totals[key] >= true_totals[key] for key in true_totals)
    if not kills:
        assert (found, totals) == (dict(truth), dict(true_totals))


def test_spilled_keys_and_accumulators_come_back_as_they_were(tmp_path: Path) -> None:
    """Also those that a view cannot publish, or publishes as something else."""
    rows = [{"t": t, "k": key, "v": t} for t in range(120) for key in (frozenset([t % 3]), ("a", t % 2))]
    builder = builder_in(tmp_path, **{"user.streamlet.view.keys": 1})
    own = monoid(tuple, lambda a, b: (*a, *b), sorted, lambda v: (v,))
    made = builder.source([*rows, *rows], event_time="t").reduce_by_key(own, key="k", value="v", name="made")
    made.sink(view("odd", tmp_path / "view", bucket=10), name="v")
    with importable(builder):
        world = OnlineWorld(definition_of(builder), tmp_path, 7)
        world.until_final()
        (reducer,) = world.objects("made")
        assert len(reducer._state.spilled) > 5
        assert len(reducer._state) <= 5
        spilled = [entry for start in reducer._state.spilled for entry in reducer._spill.read(start)]
        world.stop()
    found = {(entry.key, entry.start): sorted(entry.acc) for entry in [*spilled, *reducer._state.all_entries()]}
    truth: dict[Any, list[int]] = {}
    for row in [*rows, *rows]:
        truth.setdefault((row["k"], row["t"] // 10 * 10_000), []).append(row["v"])
    assert found == {place: sorted(values) for place, values in truth.items()}


# Parts by themselves.

KEYS = st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans(), st.tuples(st.text(), st.integers()))


@given(rows=st.lists(st.tuples(st.sampled_from([None, 0, 10]), KEYS, st.integers())), data=st.data())
def test_state_comes_back_from_its_log(
    rows: list[Any], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "state.log"
    tried = sum_()
    state = ReduceState(tried, 10)
    log = StateLog(path, tried)
    assert log.load() == ([], None, set())
    for start, key, value in rows:
        state.add(start, key, value)
        choice = data.draw(st.integers(0, 5))
        if choice == 0:
            log.append(state.take_changed(), [], state.closed_ms)
        elif choice == 1:
            log.append(state.take_changed(), [], None)
            log.rewrite(state.all_entries(), state.closed_ms)
    log.append(state.take_changed(), [], state.closed_ms)
    if data.draw(st.booleans()):
        closed = state.close(20)
        log.append([], [start for start, _ in closed], state.closed_ms)
    size = log.size
    log.close()
    with path.open("ab") as file:
        file.write(data.draw(st.binary(max_size=20)))  # what a death in the middle of a write leaves
    again = StateLog(path, tried)
    saved = again.load()
    again.close()
    assert path.stat().st_size == size
    restored = ReduceState(tried, 10)
    restored.restore(*saved)
    assert {(e.start, identity(e.key)): e.acc for e in restored.all_entries()} == {
        (e.start, identity(e.key)): e.acc for e in state.all_entries()
    }


def test_accumulators_of_any_kind_are_kept(tmp_path: Path) -> None:
    own = monoid(frozenset, lambda a, b: a | b)
    log = StateLog(tmp_path / "log", own)
    log.load()
    log.append([Entry(None, ("k", 1), frozenset({1j})), Entry(None, 2**70, frozenset())], [], None)
    log.close()
    again = StateLog(tmp_path / "log", own)
    assert sorted(again.load().entries, key=str) == [
        Entry(None, ("k", 1), frozenset({1j})), Entry(None, 2**70, frozenset()),
    ]  # fmt: skip
    again.close()


def test_keys_of_closed_windows_are_forgotten() -> None:
    state = ReduceState(sum_(), 10)
    for start in range(0, 1000, 10):
        state.add(start, ("k", start), 1)
        state.add(start, ("all",), 1)
        state.close(start)
    assert len(state) == 2
    assert len(state._keys) == 2
    assert {entry.key for entry in state.all_entries()} == {("k", 990), ("all",)}


def test_closed_windows_take_nothing_more() -> None:
    state = ReduceState(sum_(), 10, 5)
    assert state.add(0, "a", 1)
    assert state.close(14) == []
    assert state.add(0, "a", 1)
    assert state.close(15) == [(0, [Entry(0, "a", 2)])]
    assert not state.add(0, "a", 1)
    assert state.add(1, "a", 1)
    assert state.close(12) == []
    assert [start for start, _ in state.close(FOREVER)] == [1]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["time", "idle", "final"]), st.integers(0, 100))))
def test_a_watermark_is_the_least_of_the_channels_that_move(events: list[Any]) -> None:
    watermark = Watermark(range(3))
    times: dict[int, int] = {}
    idle: set[int] = set()
    final: set[int] = set()
    before: int | None = None
    for channel, what, time_ms in events:
        if what == "time":
            watermark.seen(channel, time_ms)
            times[channel] = max(time_ms, times.get(channel, 0))
            idle.discard(channel)
        else:
            watermark.mark(channel, Mark.IDLE if what == "idle" else Mark.FINAL)
            (idle if what == "idle" else final).add(channel)
        now = watermark.advance()
        live = set(range(3)) - final
        told = live - idle
        if not live:
            assert now == FOREVER
        elif told and told <= times.keys():
            assert now == max(before or 0, min(times[c] for c in told))
        else:
            assert now == before
        watermark.check()
        before = now


def test_windows_are_values() -> None:
    assert tumbling(60) == Window(60_000, 60_000)

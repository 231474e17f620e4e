"""Late data online: files of the same hours are not late, and times far in the future are rejected."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heronry.api.errors import TopologyError
from heronry.connect.polling import PollingSource, Range, Reader
from heronry.connect.settings import Option
from heronry.streamlet import Builder, count, files, session, sliding, sum_, to_files, tumbling
from heronry.streamlet.online.settings import FUTURE
from heronry.streamlet.results import read
from heronry.streamlet.servers import COMPONENTS, ServerSource
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable, letters_in, run_online

HOUR = 3600


def ended(builder: Builder, folder: Path, seed: int = 1) -> list[dict[str, Any]]:
    """Run the program to its end and return the letters."""
    run_online(builder, folder, seed)
    return letters_in(folder)


def counting(folder: Path, own_time: bool = False, **config: Any) -> Builder:
    """Return a program that counts by hour and writes late records separately."""
    builder = Builder("late", {"user.streamlet.folder": f"{folder}/own", **config})
    source = builder.source(files(folder / "in", "json"), event_time=None if own_time else "at", name="lines")
    keyed = source.map(lambda record: record, name="same", parallelism=2).key_by("k")
    windows = keyed.window(tumbling(HOUR), event_time="at" if own_time else None)
    counts = windows.count_by_key(name="counts", parallelism=2)
    counts.sink(to_files(folder / "out"), name="out")
    counts.late().sink(to_files(folder / "late"), name="late")
    return builder


def write(folder: Path, name: str, times: list[float]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"k": "a", "at": at, "pad": "x" * 200}) + "\n" for at in times))


@pytest.mark.parametrize("own_time", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_files_of_the_same_hours_are_not_late_for_each_other(tmp_path: Path, seed: int, own_time: bool) -> None:
    for name in ("a.json", "b.json", "c.json"):
        write(tmp_path / "in", name, [float(second) for second in range(0, 6 * HOUR, 10)])
    assert ended(counting(tmp_path, own_time), tmp_path, seed) == []
    assert read(tmp_path / "late") == []
    assert sorted((row.start, row.value) for row in read(tmp_path / "out")) == [
        (hour * HOUR * 1000, 3 * 360) for hour in range(6)
    ]


@pytest.mark.parametrize("own_time", [False, True])
def test_time_in_the_wrong_unit_becomes_a_letter_and_closes_no_window(tmp_path: Path, own_time: bool) -> None:
    now = time.time() // HOUR * HOUR - 8 * HOUR
    times = [now + second for second in range(0, 6 * HOUR, 10)]
    write(tmp_path / "in", "a.json", [*times[:5], now * 1000, *times[5:]])
    (aside,) = ended(counting(tmp_path, own_time), tmp_path)
    assert aside["record"]["at"] == now * 1000
    assert "too far in the future" in aside["error"]
    assert read(tmp_path / "late") == []
    assert sum(row.value for row in read(tmp_path / "out")) == len(times)


def growing(folder: Path, idle_seconds: float, source: Any = None, own_time: bool = False) -> Builder:
    """Counts by hour of a source that grows, read by one task. By default it is files."""
    config = {"user.streamlet.folder": f"{folder}/own", "user.streamlet.idle.secs": idle_seconds}
    builder = Builder("growing", config)
    found = source or files(folder / "in", "json", grows=True)
    source = builder.source(found, event_time=None if own_time else "at", name="lines", parallelism=1)
    same = source.map(lambda record: record, name="same", parallelism=2)
    keyed = same.filter(lambda record: True, name="all", parallelism=3).key_by("k")  # marks pass two chains
    windows = keyed.window(tumbling(HOUR), event_time="at" if own_time else None)
    counts = windows.count_by_key(name="counts", parallelism=2)
    counts.sink(to_files(folder / "out"), name="out")
    counts.late().sink(to_files(folder / "late"), name="late")
    return builder


def append(folder: Path, name: str, first: int, end: int) -> None:
    """Append a record for each ten seconds from hour ``first`` to hour ``end``."""
    (folder / "in").mkdir(exist_ok=True)
    with (folder / "in" / name).open("a") as file:
        file.writelines(f'{{"k": "a", "at": {second}}}\n' for second in range(first * HOUR, end * HOUR, 10))


@pytest.mark.parametrize("own_time", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_file_that_is_behind_holds_the_windows_open(tmp_path: Path, killed: bool, own_time: bool) -> None:
    builder = growing(tmp_path, idle_seconds=10_000, own_time=own_time)
    append(tmp_path, "ahead.json", 0, 1)
    append(tmp_path, "behind.json", 0, 1)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.run_on(4)
        append(tmp_path, "ahead.json", 1, 8)
        world.run_on(4)
        if killed:
            world.kill(world.plan.tasks_of("lines")[0])
        append(tmp_path, "ahead.json", 8, 9)
        world.run_on(4)
        append(tmp_path, "behind.json", 1, 4)
        world.run_on(8)
        world.stop()
    assert read(tmp_path / "late") == []
    assert {row.start: row.value for row in read(tmp_path / "out")} == {n * HOUR * 1000: 2 * 360 for n in range(3)}


@pytest.mark.parametrize("own_time", [False, True])
def test_a_deleted_file_does_not_hold_the_windows_open(tmp_path: Path, own_time: bool) -> None:
    builder = growing(tmp_path, idle_seconds=10_000, own_time=own_time)
    append(tmp_path, "kept.json", 0, 1)
    append(tmp_path, "deleted.json", 0, 1)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.run_on(4)
        (tmp_path / "in" / "deleted.json").unlink()
        append(tmp_path, "kept.json", 1, 4)
        world.run_on(12)
        world.stop()
    counts = {row.start: row.value for row in read(tmp_path / "out")}
    assert counts == {0: 2 * 360, HOUR * 1000: 360, 2 * HOUR * 1000: 360}


@pytest.mark.parametrize("own_time", [False, True])
def test_a_file_that_no_longer_grows_is_left_out_when_it_is_idle(tmp_path: Path, own_time: bool) -> None:
    builder = growing(tmp_path, idle_seconds=1, own_time=own_time)
    append(tmp_path, "old.json", 0, 1)
    append(tmp_path, "new.json", 0, 1)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.run_on(6)
        for hour in range(1, 6):
            append(tmp_path, "new.json", hour, hour + 1)
            world.run_on(1)
        world.run_on(8)
        world.stop()
    assert read(tmp_path / "late") == []
    assert {row.start // 1000 // HOUR: row.value for row in read(tmp_path / "out")} == {
        0: 720,
        **dict.fromkeys(range(1, 5), 360),
    }


PARTITIONS: dict[str, list[tuple[str, int]]] = {}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_files_that_grow_at_different_speeds_are_not_late_for_each_other(tmp_path: Path, seed: int) -> None:
    builder = growing(tmp_path, idle_seconds=10_000, own_time=True)
    names = ["a.json", "b.json", "c.json"]
    for name in names:
        append(tmp_path, name, 0, 1)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, seed)
        world.run_on(2)
        for hour in range(1, 7):
            append(tmp_path, "a.json", 3 * hour - 2, 3 * hour + 1)
            append(tmp_path, "b.json", 2 * hour - 1, 2 * hour + 1)
            append(tmp_path, "c.json", hour, hour + 1)
            world.run_on(1)
            if hour == 4:
                world.rescale({"all": 1, "same": 3, "counts": 1})
        for name in names:
            append(tmp_path, name, 30, 31)
        world.run_on(8)
        world.stop()
    assert read(tmp_path / "late") == []
    assert sum(row.value for row in read(tmp_path / "out")) == 360 * (19 + 13 + 7)


def test_a_source_without_records_holds_no_window_of_another_source(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    config = {"user.streamlet.folder": f"{tmp_path}/own", "user.streamlet.idle.secs": 1}
    builder = Builder("two", config)
    first = builder.source(files(tmp_path / "in", "json", grows=True), name="lines")
    second = builder.source(files(tmp_path / "empty", "json", grows=True), name="none", parallelism=2)
    windows = first.union(second).key_by("k").window(tumbling(HOUR), event_time="at")
    windows.count_by_key(name="counts").sink(to_files(tmp_path / "out"), name="out")
    append(tmp_path, "a.json", 0, 1)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.run_on(3)
        append(tmp_path, "a.json", 1, 3)
        world.run_on(8)
        world.stop()
    assert {row.start // 1000 // HOUR: row.value for row in read(tmp_path / "out")} == {0: 360, 1: 360}


@pytest.mark.parametrize("own_time", [False, True])
def test_a_source_whose_files_are_all_read_still_holds_the_windows_of_another_source(
    tmp_path: Path, own_time: bool
) -> None:
    (tmp_path / "packed").mkdir()

    def pack(name: str, first: int, end: int) -> None:  # compressed files do not grow
        lines = "".join(f'{{"k": "a", "at": {second}}}\n' for second in range(first * HOUR, end * HOUR, 10))
        (tmp_path / "packed" / name).write_bytes(gzip.compress(lines.encode()))

    config = {"user.streamlet.folder": f"{tmp_path}/own", "user.streamlet.idle.secs": 10_000}
    builder = Builder("two", config)
    declared = None if own_time else "at"
    first = builder.source(files(tmp_path / "in", "json", grows=True), event_time=declared, name="lines")
    second = builder.source(files(tmp_path / "packed", "json", grows=True), event_time=declared, name="packed")
    windows = first.union(second).key_by("k").window(tumbling(HOUR), event_time="at" if own_time else None)
    counts = windows.count_by_key(name="counts")
    counts.sink(to_files(tmp_path / "out"), name="out")
    counts.late().sink(to_files(tmp_path / "late"), name="late")
    append(tmp_path, "a.json", 0, 1)
    pack("0.json.gz", 0, 1)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.run_on(3)
        append(tmp_path, "a.json", 1, 9)
        world.run_on(3)
        pack("1.json.gz", 1, 4)
        world.run_on(8)
        world.stop()
    assert read(tmp_path / "late") == []
    assert {row.start // 1000 // HOUR: row.value for row in read(tmp_path / "out")} == dict.fromkeys(range(3), 720)


def test_a_finite_source_beside_one_that_grows_is_not_late(tmp_path: Path) -> None:
    builder = Builder("two", {"user.streamlet.folder": f"{tmp_path}/own", "user.streamlet.idle.secs": 10_000})
    grows = builder.source(files(tmp_path / "in", "json", grows=True), name="lines")
    finite = builder.source([{"k": "a", "at": second} for second in range(0, 3 * HOUR, 10)], name="list")
    windows = grows.union(finite).key_by("k").window(tumbling(HOUR), event_time="at")
    counts = windows.count_by_key(name="counts")
    counts.sink(to_files(tmp_path / "out"), name="out")
    counts.late().sink(to_files(tmp_path / "late"), name="late")
    append(tmp_path, "a.json", 0, 5)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.run_on(8)
        world.stop()
    assert read(tmp_path / "late") == []
    counted = {row.start // 1000 // HOUR: row.value for row in read(tmp_path / "out")}
    assert counted == {0: 720, 1: 720, 2: 720, 3: 360}


class PartitionReader(Reader):
    """Reader of ``PARTITIONS``, a hundred rows at a time."""

    def splits(self) -> list[str]:
        return sorted(PARTITIONS)

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Any], Any] | None:
        first = begin or 0
        rows = PARTITIONS[split][first : first + 100]
        return (rows, first + len(rows)) if rows else None

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        raise NotImplementedError

    def close(self) -> None: ...


class PartitionSource(PollingSource):
    """Source of ``PARTITIONS``."""

    pause = Option("user.partitions.pause.secs", "the pause", "a number", lambda value: True, 0.1)
    options = (pause,)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        return PartitionReader()


@pytest.mark.parametrize("own_time", [False, True])
def test_a_partition_that_is_behind_holds_the_windows_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_time: bool
) -> None:
    monkeypatch.setitem(COMPONENTS, "partitions", f"{__name__}:PartitionSource")
    rows = [("a", second) for second in range(0, 9 * HOUR, 10)]
    monkeypatch.setitem(PARTITIONS, "ahead", rows)
    monkeypatch.setitem(PARTITIONS, "behind", rows[:360])
    monkeypatch.setitem(PARTITIONS, "empty", [])
    builder = growing(tmp_path, 3, ServerSource("partitions", ("k", "at"), ()), own_time)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        for hour in range(1, 4):
            world.run_on(2)
            PARTITIONS["behind"] = rows[: 360 * (hour + 1)]
        world.run_on(2)
        assert {row.start // 1000 // HOUR: row.value for row in read(tmp_path / "out")}.items() <= {
            0: 720,
            1: 720,
            2: 720,
        }.items()
        world.run_on(8)  # "behind" becomes idle
        world.stop()
    assert read(tmp_path / "late") == []
    assert sum(row.value for row in read(tmp_path / "out")) == 4 * 720 + 4 * 360


LATE_TIMES = [3, 3, 5, 13, 4065, 4075, 4085, 4092]  # in a block after 0 to 4095: windows until 4090 are closed


@pytest.mark.parametrize(
    ("window", "reduced", "dropped", "kept"),
    [
        (tumbling(10), count(), 7, {0: 3, 10: 1, 4060: 1, 4070: 1, 4080: 1}),
        (tumbling(10), sum_(), 7, {0: 3, 10: 1, 4060: 1, 4070: 1, 4080: 1}),
        # 4075 is late for two of its windows, 4085 for one, 4092 for none; each record counts once.
        (sliding(30, 10), count(), 7, {-20: 3, -10: 4, 0: 4, 10: 1, 4040: 1, 4050: 2, 4060: 3}),
        (sliding(30, 10), sum_(), 7, {-20: 3, -10: 4, 0: 4, 10: 1, 4040: 1, 4050: 2, 4060: 3}),
        (session(5), count(), 7, {3: 3, 13: 1, 4065: 1, 4075: 1, 4085: 1}),
        (session(5), sum_(), 7, {3: 3, 13: 1, 4065: 1, 4075: 1, 4085: 1}),
    ],
    ids=lambda given: repr(given)[:40],
)
def test_each_late_record_is_counted_once(
    tmp_path: Path, window: Any, reduced: Any, dropped: int, kept: dict[int, int]
) -> None:
    records = [{"t": t, "k": "on time", "n": 1} for t in range(4096)]
    records += [{"t": t, "k": "late", "n": 1} for t in LATE_TIMES]
    records += [{"t": t, "k": "on time", "n": 1} for t in range(4096, 6000)]
    builder = Builder("late", {"user.streamlet.folder": f"{tmp_path}/own"})
    windows = builder.source(records).key_by("k").window(window, event_time="t")
    late: list[Any] = []
    windows.reduce_by_key(reduced, "n", name="counts").late().tap(late.append, name="late")
    (reducer,) = run_online(builder, tmp_path).objects("counts")
    assert {row.start // 1000: row.value for row in late} == kept
    assert reducer.late_count.get_value() == dropped


def test_late_records_of_a_process_are_counted_one_by_one(tmp_path: Path) -> None:
    records = [{"t": t, "k": t % 2} for t in [*range(3000), 5, 5, 7, 2999.5, *range(3000, 5000)]]
    builder = Builder("late", {"user.streamlet.folder": f"{tmp_path}/own"})
    late: list[Any] = []
    handled = builder.source(records).key_by("k").process(lambda context, record: None, event_time="t", name="handled")
    handled.late().tap(late.append, name="late")
    (reducer,) = run_online(builder, tmp_path).objects("handled")
    assert sorted(record["t"] for record in late) == [5, 5, 7]
    assert reducer.late_count.get_value() == 3


def test_future_limit_is_configurable_and_validated(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.json", [time.time() + 3 * 86400])
    assert ended(counting(tmp_path, **{FUTURE: 4 * 86400}), tmp_path) == []
    assert len(read(tmp_path / "out")) == 1
    builder = counting(tmp_path, **{FUTURE: "soon"})
    with importable(builder), pytest.raises(TopologyError, match=FUTURE):
        definition_of(builder)

"""Late data online: files of the same hours are not late, and times far in the future are rejected."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from heronry.api.errors import TopologyError
from heronry.streamlet import Builder, files, to_files, tumbling
from heronry.streamlet.online.settings import FUTURE
from heronry.streamlet.results import read
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable

HOUR = 3600


def ended(builder: Builder, folder: Path, seed: int = 1) -> list[dict[str, Any]]:
    """Run the program to its end and return the letters."""
    with importable(builder):
        world = OnlineEngine(definition_of(builder), folder, seed)
        world.until_final()
        world.stop()
    return [json.loads(line) for file in folder.glob("own/failed/*.jsonl") for line in file.read_text().splitlines()]


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


def test_future_limit_is_configurable_and_validated(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.json", [time.time() + 3 * 86400])
    assert ended(counting(tmp_path, **{FUTURE: 4 * 86400}), tmp_path) == []
    assert len(read(tmp_path / "out")) == 1
    builder = counting(tmp_path, **{FUTURE: "soon"})
    with importable(builder), pytest.raises(TopologyError, match=FUTURE):
        definition_of(builder)

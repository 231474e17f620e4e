"""Streamlet programs through the front door: real processes, real files; the truth is the plain-Python reference."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from front_door import ROOT, TEXT, FrontDoor, eventually, unique

from heronry.streamlet import files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.results import finished, latest, read

pytestmark = pytest.mark.integration

EXAMPLES = ROOT / "examples"


def test_word_count_equals_a_plain_count(door: FrontDoor, tmp_path: Path) -> None:
    name, out = unique("words"), tmp_path / "out"
    relative = TEXT.relative_to(ROOT)  # a path as the user's shell sees it
    door.submit(name, EXAMPLES / "streamlet_word_count.py", "words", "--", str(relative), str(out))
    eventually(lambda: finished(out), "the counts are final")
    truth = Counter(re.findall(r"[a-z']+", TEXT.read_text().lower()))
    assert dict(latest(read(out))) == truth
    (place,) = (door.home / "topologies" / "local").glob(f"*/default/{name}")
    (offsets,) = eventually(lambda: list((place / "streamlet" / "offsets").glob("*.json")), "offsets are written")
    assert json.loads(offsets.read_text()) == {"": [TEXT.stat().st_size, TEXT.read_bytes().count(b"\n")]}
    door.kill(name)


def test_windows_late_data_and_the_archive(door: FrontDoor, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    name, views = unique("traffic"), 30_000
    door.submit(name, EXAMPLES / "streamlet_windows.py", "traffic", "--", str(tmp_path), str(views))
    for sink in ("minutes", "visitors", "late"):
        eventually(lambda sink=sink: finished(tmp_path / sink), f"{sink} is final")  # type: ignore[misc]  # bound now
    minutes, late = read(tmp_path / "minutes"), read(tmp_path / "late")
    archived = [record for record, _ in read_all(files(tmp_path / "archive", "archive"))]
    door.kill(name)
    assert len(archived) == views
    truth = Counter((view["site"], view["time"] // 60_000 * 60_000) for view in archived)
    counted: Counter[Any] = Counter()
    for row in (*minutes, *late):
        counted[row.key, row.start] += row.value
    assert counted == truth
    assert len({(row.key, row.start) for row in minutes}) == len(minutes), "a window has one result"
    assert counted.total() == views
    visitors = {(row.key, row.start): row.value for row in read(tmp_path / "visitors")}
    seen: dict[Any, set[str]] = {}
    for view in archived:
        seen.setdefault((view["site"], view["time"] // 60_000 * 60_000), set()).add(view["visitor"])
    assert visitors.keys() == {(row.key, row.start) for row in minutes}
    assert all(abs(visitors[place] - len(seen[place])) <= max(3, 0.1 * len(seen[place])) for place in visitors)


def test_nothing_is_lost_when_every_instance_is_killed_once(door: FrontDoor, tmp_path: Path) -> None:
    name, folder, out = unique("growing"), tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    door.submit(name, Path(__file__).with_name("growing_program.py"), "growing", "--", str(folder), str(out))
    written = 0

    def write_more() -> None:
        nonlocal written
        for part in range(4):
            with (folder / f"part-{part}").open("a") as file:
                file.writelines(f"{number}\n" for number in range(written, written + 5_000))
            written += 5_000

    def counted() -> dict[int, int]:
        return dict(latest(read(out)))

    def all_counted() -> bool:
        found = counted()
        return all(found.get(key, 0) >= written // 1000 for key in range(1000))

    write_more()
    eventually(all_counted, "everything is counted")
    assert counted() == dict.fromkeys(range(1000), written // 1000), "without faults counts are exact"
    for component in ("lines", "digits", "counts"):
        victim = next(p for p in door.status(name)["processes"] if p["component"] == component)
        write_more()
        os.kill(victim["pid"], signal.SIGKILL)
        write_more()
        eventually(lambda: all_counted(), f"everything is counted after the death of {component}")
    found = counted()
    door.kill(name)
    assert found.keys() == set(range(1000)), "no key is invented"


def test_no_result_is_lost_when_what_is_behind_a_reducer_is_killed(door: FrontDoor, tmp_path: Path) -> None:
    """Windows close all the time; the chain and the reducer behind them, and they themselves, are killed meanwhile."""
    name, out, numbers = unique("results"), tmp_path / "out", 60_000
    file = Path(__file__).with_name("results_program.py")
    door.submit(name, file, "results", "--", str(numbers), str(out))

    def pid_of(component: str) -> int:
        process = next(p for p in door.status(name)["processes"] if p["component"] == component)
        return int(process["pid"])

    def is_back(component: str, before: int) -> bool:
        process = next(p for p in door.status(name)["processes"] if p["component"] == component)
        return process["state"] == "running" and process["pid"] not in (None, before)

    for component in ("carry", "all", "carry", "counts"):
        victim = pid_of(component)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda c=component, v=victim: is_back(c, v), f"{component} is back")  # type: ignore[misc]  # bound now
    late = tmp_path / "out-late"
    eventually(lambda: finished(out) and finished(late), "everything has come to its end")
    rows: dict[int, list[tuple[int, int]]] = {row.key: row.value for row in latest(read(out))}
    came_late = read(late)  # what was processed again after its window had closed
    door.kill(name)
    truth = Counter((n % 5, n // 200 * 2000) for n in range(numbers))
    found: dict[tuple[int, int], int] = {}
    for key, results in rows.items():
        for start, value in results:
            found[key, start] = max(found.get((key, start), 0), value)
    for row in came_late:
        found[row.key, row.start] = found.get((row.key, row.start), 0) + row.value
    assert found.keys() == truth.keys(), "no window is lost, and none is invented"
    assert all(found[place] >= truth[place] for place in truth)


def test_a_program_that_cannot_run_is_refused_and_a_dry_run_shows_the_stages(door: FrontDoor, tmp_path: Path) -> None:
    shown = door.heron("submit", "local", str(EXAMPLES / "streamlet_word_count.py"), "words", "--dry-run").stdout
    assert "split, 1 task: split (flat_map), counts (map side) <- lines" in shown
    assert "counts, 2 tasks: counts (reduce), output (sink) <- split" in shown
    wrong = tmp_path / "wrong_program.py"
    wrong.write_text(
        "from heronry.streamlet import Builder, sequence\n"
        "wrong = Builder('wrong')\n"
        "wrong.source(sequence(5), name='numbers').map(abs, name='nowhere')\n"
    )
    refused = door.heron("submit", "local", str(wrong), "wrong", code=7)
    assert "step 'nowhere': nothing reads it" in refused.stderr

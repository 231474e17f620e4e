"""Streamlet programs as submitted topologies, with real files: results equal the plain-Python reference."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import runpy
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heronry.pipeline.views import FOREVER, open_view, settled_ms
from heronry.streamlet import files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.reference import run
from heronry.streamlet.results import finished, latest, read
from tests.support.heron_command import ROOT, TEXT, HeronCommand, unique
from tests.support.waiting import wait_until

EXAMPLES = ROOT / "examples"


@pytest.mark.core
def test_word_count_equals_a_plain_count(heron: HeronCommand, tmp_path: Path) -> None:
    name, out = unique("words"), tmp_path / "out"
    relative = TEXT.relative_to(ROOT)  # a path as in the user's shell
    heron.submit(name, EXAMPLES / "streamlet_word_count.py", "words", "--", str(relative), str(out))
    wait_until(lambda: finished(out), "the counts are final")
    truth = Counter(re.findall(r"[a-z']+", TEXT.read_text().lower()))
    assert dict(latest(read(out))) == truth
    heron.reaches(name, "finished")
    heron.kill(name)


def test_windows_and_late_data_equal_the_reference(heron: HeronCommand, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    name, views = unique("traffic"), 30_000
    heron.submit(name, EXAMPLES / "streamlet_windows.py", "traffic", "--", str(tmp_path), str(views))
    for sink in ("minutes", "visitors", "late"):
        wait_until(lambda sink=sink: finished(tmp_path / sink), f"{sink} is final")  # type: ignore[misc]  # bound now
    minutes, late = read(tmp_path / "minutes"), read(tmp_path / "late")
    archived = [record for record, _ in read_all(files(tmp_path / "archive", "archive"))]
    heron.kill(name)
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


def test_sessions_and_joins_equal_the_reference(
    heron: HeronCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {"visits": "streamlet_sessions.py", "ads": "streamlet_joins.py"}
    names = {program: unique(program) for program in programs}
    for program, file in programs.items():
        heron.submit(names[program], EXAMPLES / file, program, "--", str(tmp_path / program), "6000")
    for program, file in programs.items():
        monkeypatch.setattr("sys.argv", [file, str(tmp_path / program), "6000"])
        expected = run(runpy.run_path(str(EXAMPLES / file))[program].build())
        for sink, out in (("visits_out", "visits"), ("clicked", "clicked"), ("late", "late")):
            if sink in expected:
                folder = tmp_path / program / out
                wait_until(lambda folder=folder: finished(folder), f"{folder} is final")  # type: ignore[misc]
                assert sorted(map(repr, read(folder))) == sorted(map(repr, expected[sink])), sink
        heron.kill(names[program])


def test_each_line_counts_once_across_instance_deaths_and_updates(heron: HeronCommand, tmp_path: Path) -> None:
    name, folder, out = unique("growing"), tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    heron.submit(name, Path(__file__).with_name("growing_program.py"), "growing", "--", str(folder), str(out))
    written = 0

    def write_more() -> None:
        nonlocal written
        for part in range(4):
            with (folder / f"part-{part}").open("a") as file:
                file.writelines(f"{number}\n" for number in range(written, written + 5_000))
            written += 5_000

    def is_exact() -> bool:
        found = dict(latest(read(out)))
        assert all(n <= written // 1000 for n in found.values()), "something counts twice"
        return found == dict.fromkeys(range(1000), written // 1000)

    write_more()
    wait_until(is_exact, "everything is counted")
    for component in ("lines", "digits", "counts"):
        victim = next(p for p in heron.status(name)["processes"] if p["component"] == component)
        write_more()
        os.kill(victim["pid"], signal.SIGKILL)
        write_more()
        wait_until(is_exact, f"everything is counted after the death of {component}")
    write_more()
    changed = ("--component-parallelism", "counts:2", "--component-parallelism", "lines:3")
    heron.run("update", "local", name, *changed, "--component-parallelism", "digits:1")
    write_more()
    wait_until(is_exact, "everything is counted by other tasks")
    heron.kill(name)


def test_windows_and_views_are_exact_after_any_process_is_killed(heron: HeronCommand, tmp_path: Path) -> None:
    """Windows close continually while processes are killed at any moment; results equal those of an undisturbed run."""
    name, out, numbers = unique("results"), tmp_path / "out", 60_000
    seed = random.SystemRandom().randrange(1 << 30)
    logging.getLogger(__name__).warning("seed %d", seed)
    draw = random.Random(seed)
    heron.submit(name, Path(__file__).with_name("results_program.py"), "results", "--", str(numbers), str(out))
    for strike in range(8):
        victims = [p for p in heron.status(name)["processes"] if p["pid"] is not None]
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(victims)["pid"], signal.SIGKILL)
        seen = len(list(out.glob("windows/[!.]*")))
        if strike % 2:  # otherwise while they are still restoring
            wait_until(lambda: finished(out / "windows") or len(list(out.glob("windows/[!.]*"))) > seen, "it goes on")  # noqa: B023  # called at once
    wait_until(lambda: all(finished(out / part) for part in ("windows", "late", "all")), "everything is at its end")
    truth = Counter((n % 5, n // 200 * 2000) for n in range(numbers))
    wait_until(lambda: settled_ms(out / "view") == FOREVER, "the view is at its end")
    buckets = {(a.key, a.start): a.value for a in open_view(out / "view").buckets()}
    windows, late, gathered = read(out / "windows"), read(out / "late"), read(out / "all")
    heron.kill(name)
    assert buckets == Counter((n % 7, n // 2000 * 20_000) for n in range(numbers))
    assert len({(row.key, row.start) for row in windows}) == len(windows), "a window has one result"
    found = Counter({(row.key, row.start): row.value for row in windows})
    assert sorted((key, start) for key, start in found) == sorted(
        (row.key, start) for row in gathered for start, _ in row.value
    ), "what was gathered elsewhere is the same, each once"
    assert Counter({(row.key, start): n for row in gathered for start, n in row.value}) == found
    for row in late:
        found[row.key, row.start] += row.value
    assert found == truth


def test_dry_run_shows_the_stages_and_missing_input(heron: HeronCommand, tmp_path: Path) -> None:
    shown = heron.run("submit", "local", str(EXAMPLES / "streamlet_word_count.py"), "words", "--dry-run").stdout
    assert "split, 1 task: split (flat_map), counts (map side) <- lines" in shown
    assert "counts, 2 tasks: counts (reduce), output (sink) <- split" in shown
    nowhere = ("words", "--dry-run", "--", str(tmp_path / "nowhere"))
    told = heron.run("submit", "local", str(EXAMPLES / "streamlet_word_count.py"), *nowhere).stderr
    assert f"step 'lines': there is nothing to read at {tmp_path / 'nowhere'} on this machine" in told

"""Each example with a small finite input: its output equals a plain computation."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.support.heron_command import ROOT, TEXT, HeronCommand, unique
from tests.support.waiting import wait_until, wait_until_equal

EXAMPLES = ROOT / "examples"


def lines_of(folder: Path, pattern: str) -> dict[str, list[str]]:
    """Return lines by file name, in order of the file's task."""
    return {file.name: file.read_text().splitlines() for file in sorted(folder.glob(pattern))}


def test_word_count_counts_every_word_of_the_novel(heron: HeronCommand, tmp_path: Path) -> None:
    name = unique("WordCount")
    truth = Counter(re.findall(r"[a-z']+", TEXT.read_text().lower()))
    relative = TEXT.relative_to(ROOT)  # a path as in the user's shell
    heron.submit(name, EXAMPLES / "word_count.py", "WordCount", "--", str(relative), str(tmp_path), "1")

    def counted() -> Counter[str]:
        found: Counter[str] = Counter()
        for file in tmp_path.glob("counts-*.json"):
            found.update(json.loads(file.read_text()))
        return found

    wait_until(lambda: counted() == truth, "all counts equal")
    parts = [set(json.loads(file.read_text())) for file in tmp_path.glob("counts-*.json")]
    assert len(parts) == 2
    assert not parts[0] & parts[1], "a word belongs to one task"
    lines = len(TEXT.read_text().splitlines())
    wait_until_equal(lambda: heron.totals(name)["lines"].get("__ack-count/default"), lines, "acked lines")
    heron.run("deactivate", "local", name)
    wait_until(lambda: [int(f.read_text()) for f in tmp_path.glob("offset-*")] == [lines], "the offset is remembered")
    heron.kill(name)


def test_rtac_reports_the_active_users_of_every_bucket(heron: HeronCommand, tmp_path: Path) -> None:
    name, events = unique("Rtac"), 12_000
    heron.submit(name, EXAMPLES / "rtac.py", "Rtac", "--", str(tmp_path), str(events))
    (task,) = (p["task"] for p in heron.status(name)["processes"] if p["component"] == "events")
    users: dict[str, set[int]] = defaultdict(set)
    for number in range(events):
        users[str(number // 5_000)].add(random.Random(task * 1_000_003 + number).randrange(10_000))
    truth = {bucket: len(seen) for bucket, seen in users.items()}
    file = tmp_path / "active-users.json"
    wait_until_equal(lambda: json.loads(file.read_text()) if file.exists() else None, truth, "active users")
    heron.kill(name)


def test_streams_route_every_reading_to_its_file(heron: HeronCommand, tmp_path: Path) -> None:
    name, readings = unique("Sensors"), 1_000
    heron.submit(name, EXAMPLES / "streams.py", "Sensors", "--", str(tmp_path), str(readings))
    good = [number for number in range(readings) if number % 10 != 9]

    def archived() -> list[str]:
        return [line for lines in lines_of(tmp_path, "archive-*.txt").values() for line in lines]

    def binned() -> list[str]:
        return [line for lines in lines_of(tmp_path, "bin-*.txt").values() for line in lines]

    wait_until_equal(lambda: sorted(archived()), sorted(f"{n % 16} {n}" for n in good), "archived readings")
    wait_until_equal(
        lambda: sorted(binned()), sorted(f"{n % 16} unreadable {n}" for n in range(9, readings, 10)), "the bin"
    )
    tasks = sorted(p["task"] for p in heron.status(name)["processes"] if p["component"] == "archive")
    for place, task in enumerate(tasks):  # direct grouping: the sensor's number selects the task
        file = f"archive-{task}.txt"
        sensors = {int(line.split()[0]) % 3 for line in lines_of(tmp_path, file)[file]}
        assert sensors == {place}
    heron.kill(name)


def test_join_emits_each_pair_once(heron: HeronCommand, tmp_path: Path) -> None:
    name, orders = unique("Orders"), 1_000
    heron.submit(name, EXAMPLES / "join.py", "Orders", "--", str(tmp_path), str(orders))

    def pairs() -> list[str]:
        return [line for lines in lines_of(tmp_path, "pairs-*.txt").values() for line in lines]

    wait_until_equal(lambda: sorted(pairs()), sorted(f"{n}\torder {n}\tpayment {n}" for n in range(orders)), "pairs")
    acked = {"orders": orders, "payments": orders}
    wait_until_equal(
        lambda: {c: heron.totals(name).get(c, {}).get("__ack-count/default") for c in acked}, acked, "both sides acked"
    )
    heron.kill(name)


def test_hot_keys_are_counted_by_two_tasks_and_merged(heron: HeronCommand, tmp_path: Path) -> None:
    name, events = unique("HotKeys"), 20_000
    heron.submit(name, EXAMPLES / "hot_keys.py", "HotKeys", "--", str(tmp_path), str(events))
    pages = ("/" if n % 2 else f"/page/{random.Random(n).randrange(1000)}" for n in range(events))
    truth = Counter(pages)
    file = tmp_path / "pages.json"
    wait_until_equal(lambda: json.loads(file.read_text()) if file.exists() else None, dict(truth), "pages")

    def shares_now() -> list[int]:
        return sorted(int(file.read_text() or 0) for file in tmp_path.glob("share-*.txt"))

    wait_until_equal(lambda: sum(shares_now()), events, "events in the shares")
    shares = shares_now()
    assert len(shares) == 4
    assert shares[-1] < 0.4 * events, "half of all are of one page, and two tasks have it"
    heron.kill(name)


def test_random_words_are_all_counted_when_the_spout_pauses(heron: HeronCommand) -> None:
    name = unique("RandomWordCount")
    heron.submit(name, EXAMPLES / "random_words.py", "RandomWordCount")

    def flow() -> tuple[float, float]:
        found = heron.totals(name)
        emitted = found.get("words", {}).get("__emit-count/default", 0)
        return emitted, found.get("counts", {}).get("__execute-count/words/default", 0)

    wait_until(lambda: flow()[1] > 0, "words flow")
    heron.run("deactivate", "local", name)
    heron.reaches(name, "paused")
    seen: list[Any] = []

    def settled() -> bool:
        seen.append(flow())
        return len(seen) > 1 and seen[-1] == seen[-2] and seen[-1][0] == seen[-1][1]

    wait_until(settled, "executed equals emitted")
    assert seen[-1][0] > 1_000
    heron.kill(name)

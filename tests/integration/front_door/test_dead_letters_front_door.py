"""Dead letters in real processes: bad records cause no restore, and all other results stay the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.front_door import letters_topology as user
from tests.support.heron_command import heron_command, unique
from tests.support.waiting import wait_until_equal


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return the visible lines; sums only grow, so the order of files does not matter."""
    files = (path for path in folder.glob("*.jsonl") if not path.name.startswith("."))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_bad_records_become_dead_letters_without_a_restore(tmp_path: Path) -> None:
    sums, bad = user.truth()
    with heron_command(tmp_path) as heron:
        name = unique("Letters")
        heron.submit(name, user.__file__, "Letters", "--", str(tmp_path))
        rows = sum(map(len, sums.values()))
        wait_until_equal(lambda: len(lines_of(tmp_path / "sums")), rows, "each good record is summed once")
        wait_until_equal(lambda: len(lines_of(tmp_path / "letters")), len(bad), "each bad one is a letter")
        found: dict[str, list[int]] = {}
        for row in lines_of(tmp_path / "sums"):
            found.setdefault(row["key"], []).append(row["sum"])
        assert {key: sorted(each) for key, each in found.items()} == sums
        assert sorted(map(user.letter_of, lines_of(tmp_path / "letters"))) == bad
        shown = heron.status(name)
        assert (shown["state"], shown["tasks_state"]["generation"], shown["tasks_state"]["restores"]) == (
            "running", 1, 0,
        )  # fmt: skip
        wait_until_equal(lambda: heron.totals(name)["total"].get("__dead-letter-count"), len(bad), "counted")
        heron.kill(name)

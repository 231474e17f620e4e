"""``heron update`` without state: tuples in flight are processed before tasks end, move or restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.front_door import drained_topology as user
from tests.support.heron_command import heron_command, unique
from tests.support.waiting import wait_until, wait_until_equal


def _written(folder: Path, book: str) -> list[str]:
    return [line for file in folder.glob(f"{book}-*") for line in file.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["Acked", "Counted"])
def test_update_loses_and_fails_no_tuple(tmp_path: Path, kind: str) -> None:
    with heron_command(tmp_path) as heron:
        name = unique(kind)
        heron.submit(name, user.__file__, kind, "--", str(tmp_path))
        for options in (
            ("--component-parallelism", "receives:1", "--container-number", "3"),
            ("--component-parallelism", "passes:1", "--container-number", "1"),
            ("--runtime-config", "receives:user.limit:7"),
        ):
            there = len(_written(tmp_path, "received"))
            wait_until(lambda there=there: len(_written(tmp_path, "received")) > there + 100, "numbers flow")  # type: ignore[misc]
            done = heron.json("update", "local", name, *options)
            assert done["undrained"] == ""
            assert any("spouts are paused until tuples in flight are processed" in note for note in done["notes"])
        (number,) = {p["container"] for p in heron.status(name)["processes"] if p["component"] == "receives"}
        assert heron.json("move", "local", name, str(number))["undrained"] == ""
        there = len(_written(tmp_path, "received"))
        wait_until(lambda: len(_written(tmp_path, "received")) > there + 100, "numbers flow from another container")
        (tmp_path / "enough").touch()
        wait_until_equal(
            lambda: set(_written(tmp_path, "emitted")) - set(_written(tmp_path, "received")), set(), "all have come"
        )
        received = _written(tmp_path, "received")
        assert len(received) == len(set(received)), "each once"
        assert _written(tmp_path, "failed") == []
        heron.kill(name)


def test_update_proceeds_and_reports_tasks_that_do_not_drain_in_time(tmp_path: Path) -> None:
    with heron_command(tmp_path) as heron:
        name = unique("Kept")
        heron.submit(name, user.__file__, "Kept", "--", str(tmp_path))
        wait_until(lambda: _written(tmp_path, "emitted"), "numbers flow")
        done = heron.run("update", "local", name, "--component-parallelism", "keeps:1", "--container-number", "1")
        assert "were not drained: after 1 s (topology.update.drain.secs) numbers task 1" in done.stdout
        assert "numbers task 1" in heron.status(name)["update"]
        assert "update: tuples in flight were not drained" in heron.run("status", "local", name).stdout
        wait_until_equal(lambda: heron.status(name)["state"], "running", "it goes on")
        heron.kill(name)

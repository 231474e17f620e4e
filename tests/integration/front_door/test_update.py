"""``heron update`` of running topologies: the new or the old plan runs, and every tuple counts.

Without state, tuples in flight are processed before tasks end, move or restart.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.front_door import drained_topology as drained
from tests.integration.front_door import update_topology as user
from tests.integration.front_door.kept_counts import KeptCounts
from tests.support.heron_command import Done, HeronCommand, heron_command, unique
from tests.support.waiting import wait_until, wait_until_equal


@dataclass
class Run(KeptCounts):
    """Running topology."""

    heron: HeronCommand
    name: str
    folder: Path

    def update(self, *parallelism: str, more: tuple[str, ...] = (), code: int = 0) -> Done:
        options = [part for text in parallelism for part in ("--component-parallelism", text)]
        return self.heron.run("update", "local", self.name, *options, *more, code=code)

    def would_be(self, parallelism: str) -> int:
        """Return how many tasks such an update would start and end, according to the stored plan."""
        options = ("--component-parallelism", parallelism, "--dry-run", "-o", "json")
        done = self.heron.finish(self.heron.start("update", "local", self.name, *options), None)
        if "the update changes nothing" in done.stderr:
            return 0
        planned = json.loads(done.stdout)
        return len(planned["new_tasks"]) + len(planned["removed_tasks"])

    def status(self) -> dict[str, Any]:
        return self.heron.status(self.name)

    def tasks(self) -> Counter[str]:
        """Return the number of running tasks by component."""
        found = (p["component"] for p in self.status()["processes"] if p["component"] and p["state"] == "running")
        return Counter(found)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Yield the topology with state."""
    folder = tmp_path_factory.mktemp("kept")
    with heron_command(folder) as heron:
        run = Run(heron, unique("Kept"), folder)
        heron.submit(run.name, user.__file__, "Kept", "--", str(folder))
        yield run
        heron.kill(run.name)


@pytest.mark.core
def test_update_with_acks_adds_removes_and_moves_tasks_without_losing_tuples(tmp_path: Path) -> None:
    with heron_command(tmp_path) as heron:
        run = Run(heron, unique("WithAcks"), tmp_path)
        heron.submit(run.name, user.__file__, "WithAcks", "--", str(tmp_path))
        planned = heron.json("update", "local", run.name, "--component-parallelism", "last:4", "--dry-run")
        assert planned["parallelism"] == {"last": [2, 4]}
        assert [task["component"] for task in planned["new_tasks"]] == ["last", "last"]
        assert run.tasks() == {"acked": 1, "seen": 2, "last": 2}, "a dry run does nothing"
        done = run.update("last:4", "seen:3")
        assert "no task moves" in done.stdout
        assert run.tasks() == {"acked": 1, "seen": 3, "last": 4}
        done = run.update("last:1", more=("--container-number", "3"))
        assert "`moved`" in done.stdout
        wait_until_equal(run.tasks, {"acked": 1, "seen": 3, "last": 1}, "what the new plan has runs, and nothing else")
        run.update("last:2", more=("--container-number", "1"))
        wait_until_equal(
            lambda: {p["container"] for p in run.status()["processes"]}, {None, 0, 1}, "old containers are gone"
        )
        wait_until_equal(lambda: run.status()["state"], "running", "it runs")
        file = tmp_path / "acked"
        wait_until(lambda: file.exists() and int(file.read_text()) == user.MANY, "every number is acked")
        heron.kill(run.name)


def _limits(run: Run, component: str) -> list[str]:
    """Return the limit with which each task of the component last started."""
    folder = next((run.heron.home / "topologies" / "local").glob(f"*/default/{run.name}/log-files"))
    names = sorted(p["name"] for p in run.status()["processes"] if p["component"] == component)
    logs = [(folder / f"{name}.log").read_text() for name in names]
    return [text.rpartition("limit=")[2].split("\n")[0] for text in logs if "limit=" in text]


def test_update_with_acks_changes_settings_and_moves_a_container(tmp_path: Path) -> None:
    """The affected processes restart, which does not count as a fault; all others continue."""
    with heron_command(tmp_path) as heron:
        run = Run(heron, unique("WithAcks"), tmp_path)
        heron.submit(run.name, user.__file__, "WithAcks", "--", str(tmp_path))
        before = {p["name"]: p for p in run.status()["processes"]}
        done = run.update(more=("--runtime-config", "last:user.limit:7"))
        assert "last: user.limit: 1 -> 7" in done.stdout
        assert "the processes of last restart" in done.stdout
        for p in run.status()["processes"]:
            same = p["pid"] == before[p["name"]]["pid"]
            assert same == (p["component"] != "last"), p["name"]
            assert p["restarts"] == before[p["name"]]["restarts"], "it is no fault"
        assert set(_limits(run, "last")) == {"7"}
        (number,) = {p["container"] for p in run.status()["processes"] if p["component"] == "last"}
        planned = run.heron.json("move", "local", run.name, str(number), "--dry-run")
        assert (planned["new_containers"], planned["removed_containers"]) == ([number + 1], [number])
        assert "no container 99" in run.heron.run("move", "local", run.name, "99", code=2).stderr
        refused = run.heron.run("move", "local", run.name, str(number), "elsewhere", code=2)
        assert "cannot place containers on a host" in refused.stderr
        run.heron.run("move", "local", run.name, str(number))
        wait_until_equal(
            lambda: {p["container"] for p in run.status()["processes"]}, {None, 0, number + 1}, "it has moved"
        )
        heron.kill(run.name)


@pytest.mark.core
def test_update_moves_state_with_its_keys(kept: Run) -> None:
    wait_until(lambda: kept.every_count_is_there_once() > 100, "counts are written")
    before = kept.status()["tasks_state"]
    done = kept.update("count:3", more=("--container-number", "2"))
    assert "all tasks stop at a checkpoint and continue from it" in done.stdout
    now = kept.status()["tasks_state"]
    assert now["generation"] == before["generation"] + 1
    assert now["restore_from"] > before["restore_from"]
    assert now["cause"] == "the packing plan has changed"
    assert kept.tasks()["count"] == 3
    there = kept.every_count_is_there_once()
    kept.update("count:1", more=("--container-number", "1"))
    assert kept.tasks()["count"] == 1
    wait_until(lambda: kept.every_count_is_there_once() > there + 100, "more counts are written")


def test_update_moves_unkeyed_state_of_removed_tasks_to_the_first_task(kept: Run) -> None:
    kept.update("count:3")
    wait_until(lambda: kept.every_count_is_there_once() > 200, "counts are written")
    kept.update("count:1")
    kept.heron.run("checkpoint", "create", "local", kept.name, "--wait")
    kept.heron.run("deactivate", "local", kept.name)
    kept.heron.run("checkpoint", "create", "local", kept.name, "--wait")
    (count,) = (p["name"] for p in kept.status()["processes"] if p["component"] == "count")
    log = next((kept.heron.home / "topologies" / "local").glob(f"*/default/{kept.name}/log-files/{count}.log"))

    def counted_and_written() -> tuple[int, int]:
        alls = [int(line.rpartition("all=")[2]) for line in log.read_text().splitlines() if "all=" in line]
        return alls[-1], len(kept.written())

    wait_until(
        lambda: (both := counted_and_written())[0] == both[1],
        "each tuple to be counted by one task, and no task's count to be forgotten",
    )
    kept.heron.run("activate", "local", kept.name)


def test_update_changes_settings_at_a_checkpoint(kept: Run) -> None:
    there, before = kept.every_count_is_there_once(), kept.status()
    key = "topology.stateful.checkpoint.interval.secs"
    done = kept.update(more=("--runtime-config", "count:user.limit:much", "--runtime-config", f"{key}:0.5"))
    assert "count: user.limit: None -> 'much'" in done.stdout
    assert f"{key}: 1.0 -> 0.5" in done.stdout
    now = kept.status()
    assert now["tasks_state"]["cause"] == "its settings have changed"
    assert now["tasks_state"]["generation"] == before["tasks_state"]["generation"] + 1
    pids = [{p["name"]: (p["pid"], p["restarts"]) for p in status["processes"]} for status in (before, now)]
    assert pids[0] == pids[1], "the processes are the same"
    assert set(_limits(kept, "count")) == {"'much'"}
    wait_until(lambda: kept.every_count_is_there_once() > there + 50, "it goes on")


def test_update_moves_a_container_with_its_state(kept: Run) -> None:
    there, old = kept.every_count_is_there_once(), {p["container"] for p in kept.status()["processes"]} - {None, 0}
    kept.heron.run("move", "local", kept.name, str(max(old)))
    wait_until_equal(
        lambda: {p["container"] for p in kept.status()["processes"]} - {None, 0},
        (old - {max(old)}) | {max(old) + 1}, "its tasks are in a new one",
    )  # fmt: skip
    wait_until(lambda: kept.every_count_is_there_once() > there + 50, "it goes on")


def test_update_rejects_fewer_tasks_if_their_state_would_be_lost(kept: Run) -> None:
    last = kept.status()["tasks_state"]["last"]["number"]
    wait_until(lambda: kept.status()["tasks_state"]["last"]["number"] > last, "a checkpoint has the state of hoards")
    before = kept.tasks()
    done = kept.update("hoards:1", code=1)
    assert "define merge_state(states) or union_state(states), or use keyed state" in done.stderr
    assert "it runs by its old plan again" in done.stderr
    assert kept.tasks() == before
    wait_until_equal(lambda: kept.status()["state"], "running", "it runs on")


def test_update_rolls_back_a_plan_that_cannot_run(kept: Run) -> None:
    (kept.folder / "refuses").touch()
    before = kept.tasks()
    done = kept.update("count:4", code=1)
    (kept.folder / "refuses").unlink()
    assert "the service takes three clients at most" in done.stderr
    assert "old plan again" in done.stderr
    assert kept.tasks() == before
    there = kept.every_count_is_there_once()
    wait_until(lambda: kept.every_count_is_there_once() > there, "it goes on")


def test_ctrl_c_rolls_back_an_update_and_a_killed_command_leaves_one_plan(kept: Run) -> None:
    waits = kept.folder / "waits"
    waits.touch()
    options = ("update", "local", kept.name, "--component-parallelism", "count:2", "--container-number", "2")
    before = kept.status()["tasks_state"]["restore_from"]
    process = kept.heron.start(*options)
    wait_until(lambda: kept.status()["tasks_state"]["phase"] == "restoring", "the new plan is tried")
    process.send_signal(signal.SIGINT)
    done = kept.heron.finish(process, 130)
    assert "was interrupted: it runs by its old plan again" in done.stderr
    wait_until_equal(lambda: kept.tasks()["count"], 1, "the old plan runs")
    process = kept.heron.start(*options)
    wait_until(lambda: kept.would_be("count:2") == 0, "the new plan is written")
    process.kill()
    process.communicate()
    waits.unlink()
    wait_until_equal(lambda: kept.tasks()["count"], 2, "the plan that was written is gone on to")
    wait_until_equal(lambda: kept.status()["state"], "running", "it runs")
    assert kept.would_be("count:2") == 0
    assert kept.status()["tasks_state"]["restore_from"] > before
    there = kept.every_count_is_there_once()
    wait_until(lambda: kept.every_count_is_there_once() > there, "it goes on")


def _written(folder: Path, book: str) -> list[str]:
    return [line for file in folder.glob(f"{book}-*") for line in file.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["Acked", "Counted"])
def test_update_loses_and_fails_no_tuple(tmp_path: Path, kind: str) -> None:
    with heron_command(tmp_path) as heron:
        name = unique(kind)
        heron.submit(name, drained.__file__, kind, "--", str(tmp_path))
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
        heron.submit(name, drained.__file__, "Kept", "--", str(tmp_path))
        wait_until(lambda: _written(tmp_path, "emitted"), "numbers flow")
        done = heron.run("update", "local", name, "--component-parallelism", "keeps:1", "--container-number", "1")
        assert "were not drained: after 1 s (topology.update.drain.secs) numbers task 1" in done.stdout
        assert "numbers task 1" in heron.status(name)["update"]
        assert "update: tuples in flight were not drained" in heron.run("status", "local", name).stdout
        wait_until_equal(lambda: heron.status(name)["state"], "running", "it goes on")
        heron.kill(name)

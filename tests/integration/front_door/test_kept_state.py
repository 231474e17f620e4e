"""A topology with state in real processes, as users see it: status, checkpoints, restores and failures."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heron_runtime.checkpoint_files import CheckpointFolder
from tests.integration.front_door import kept_topology as user
from tests.support.heron_command import HeronCommand, heron_command, unique
from tests.support.waiting import wait_until


@dataclass
class Run:
    """Running topology."""

    heron: HeronCommand
    name: str
    fails: Path

    def command(self, *command: str, more: tuple[str, ...] = (), code: int = 0) -> Any:
        return self.heron.run(*command, "local", self.name, *more, code=code)

    def status(self) -> dict[str, Any]:
        return dict(self.heron.json("status", "local", self.name))

    def list(self) -> list[dict[str, Any]]:
        return list(self.heron.json("checkpoint", "list", "local", self.name))

    @property
    def folder(self) -> CheckpointFolder:
        (home,) = (self.heron.home / "topologies" / "local").glob(f"*/default/{self.name}")
        return CheckpointFolder(home / "checkpoints")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Yield the topology, shared by all tests of this file; it takes checkpoints on request only."""
    folder = tmp_path_factory.mktemp("kept")
    with heron_command(folder) as heron:
        found = Run(heron, unique("Kept"), folder / "fails")
        heron.submit(found.name, user.__file__, "Kept", "--", str(found.fails))
        yield found
        heron.kill(found.name)


@pytest.mark.core
def test_checkpoint_is_taken_listed_and_shown(run: Run) -> None:
    shown = run.status()
    assert shown["state"] == "running", "--wait has waited for the first generation"
    assert (shown["tasks_state"]["generation"], shown["tasks_state"]["phase"]) == (1, "running")
    before = len(run.list())
    said = run.command("checkpoint", "create", more=("--wait",)).stderr
    last = run.status()["tasks_state"]["last"]
    assert f"checkpoint {last['number']} of {run.name} is complete" in said
    assert last["bytes"] > 0
    assert last["duration_ms"] >= last["bubble_ms"] >= 0
    rows = run.list()
    assert len(rows) == before + 1
    assert (rows[-1]["checkpoint"], rows[-1]["complete"], rows[-1]["tasks"]) == (last["number"], True, 3)
    text = run.command("status").stdout
    assert "state: generation 1 runs" in text
    assert f"last complete checkpoint: {last['number']}, " in text


@pytest.mark.core
def test_restore_returns_to_the_last_checkpoint(run: Run) -> None:
    before = run.status()["tasks_state"]
    done = run.command("restore")
    shown = run.status()
    assert shown["state"] == "running"
    now = shown["tasks_state"]
    assert now["generation"] == before["generation"] + 1
    assert now["restore_from"] == before["last"]["number"]
    assert now["restores"] == before["restores"] + 1
    assert now["cause"] == "restore requested"
    assert f"runs again from checkpoint {now['restore_from']}, in generation {now['generation']}" in done.stderr


def test_restore_to_an_older_checkpoint_discards_later_ones(run: Run) -> None:
    for _ in range(2):
        run.command("checkpoint", "create", more=("--wait",))
    older, last = [row["checkpoint"] for row in run.list() if row["complete"]][-2:]
    done = run.command("restore", more=(str(older),), code=1)
    assert f"output written after checkpoint {older}, up to {last}, would be written again" in done.stderr
    assert "checkpoint 99999 does not exist" in run.command("restore", more=("99999",), code=1).stderr
    done = run.command("restore", more=(str(older), "--repeat-output"))
    assert f"runs again from checkpoint {older}" in done.stderr
    assert run.status()["tasks_state"]["last"]["number"] == older
    assert [row["checkpoint"] for row in run.list() if row["complete"]][-1] == older
    run.command("checkpoint", "create", more=("--wait",))
    assert [row["checkpoint"] for row in run.list() if row["complete"]][-2:] == [older, last + 1]


def test_restore_to_an_older_checkpoint_when_the_last_manifest_is_damaged(run: Run) -> None:
    for _ in range(2):
        run.command("checkpoint", "create", more=("--wait",))
    older, last = [row["checkpoint"] for row in run.list() if row["complete"]][-2:]
    file = run.folder.folder / "manifests" / f"{last}.json"
    file.write_bytes(file.read_bytes()[:-9])
    os.kill(run.heron.pids(run.name)["topology_master-0"], signal.SIGKILL)  # it has the manifest in memory
    fault = wait_until(lambda: run.status()["tasks_state"]["storage_fault"], "the next one looks")
    assert f"checkpoint {last}: its manifest below" in fault
    done = run.command("restore", code=1)
    assert fault in done.stderr
    assert "restore an older one" in done.stderr
    said = run.command("restore", more=(str(last), "--repeat-output"), code=1).stderr
    assert said.rstrip().endswith(f", {older}"), "which are whole, and kept"
    done = run.command("restore", more=(str(older), "--repeat-output"))
    assert f"runs again from checkpoint {older}" in done.stderr
    assert run.status()["tasks_state"]["storage_fault"] is None
    run.command("checkpoint", "create", more=("--wait",))
    assert run.list()[-1]["checkpoint"] == last + 1


def test_failed_topology_names_the_cause_and_a_restore_recovers_it(run: Run) -> None:
    run.command("checkpoint", "create", more=("--wait",))
    run.fails.touch()
    shown = wait_until(lambda: (s := run.status())["state"] == "failing" and s, "it fails")
    kept = shown["tasks_state"]
    assert (kept["phase"], kept["restore_from"]) == ("failed", kept["last"]["number"])
    assert "the service behind it is away" in kept["cause"]
    assert "the service behind it is away" in shown["cause"]
    assert "`heron restore`" in shown["cause"]
    (row,) = run.heron.json("list", "local")
    assert row["state"] == "failing"
    done = run.command("checkpoint", "create", more=("--wait",), code=1)
    assert "the topology has failed" in done.stderr
    run.fails.unlink()
    run.command("restore")
    shown = run.status()
    assert (shown["state"], shown["tasks_state"]["phase"]) == ("running", "running")
    assert shown["tasks_state"]["restore_from"] == kept["last"]["number"]
    run.command("checkpoint", "create", more=("--wait",))
    assert run.list()[-1]["checkpoint"] > kept["last"]["number"]

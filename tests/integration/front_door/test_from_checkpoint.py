"""Topologies that start from another one's named checkpoint, with changed code or parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.front_door import update_topology as user
from tests.integration.front_door.kept_counts import KeptCounts
from tests.support.heron_command import Done, HeronCommand, heron_command, unique
from tests.support.waiting import wait_until


@dataclass
class Past(KeptCounts):
    """Killed topology, and the folder of its named checkpoint, which covers all its input."""

    heron: HeronCommand
    name: str
    folder: Path
    kept: Path

    def submit(self, name: str, topology: str, *more: str, code: int = 0) -> Done:
        command = ("submit", "local", user.__file__, topology, "--name", name, *more, "--", str(self.folder))
        done = self.heron.run(*command, code=code)
        if code == 0:
            self.heron.submitted.setdefault(name, [])
            self.heron.remember(name)
        return done


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    """Yield the topology ``Kept``, killed after a named checkpoint."""
    folder = tmp_path_factory.mktemp("past")
    with heron_command(folder) as heron:
        name = unique("Kept")
        heron.submit(name, user.__file__, "Kept", "--", str(folder))
        wait_until((folder / "out").exists, "the sink is there")
        found = Past(heron, name, folder, Path())
        wait_until(lambda: found.every_count_is_there_once() > 100, "counts are written")
        heron.run("deactivate", "local", name)
        heron.run("checkpoint", "create", "local", name, "--wait")  # tuples in flight are processed and committed
        said = heron.run("checkpoint", "create", "local", name, "--name", "before").stderr
        assert "is kept as before in " in said
        rows = heron.json("checkpoint", "list", "local", name)
        assert [row["name"] for row in rows if row["name"]] == ["before"]
        assert len(rows) > 1
        found.kept = Path(rows[-1]["folder"])
        heron.kill(name)
        yield found


def test_named_checkpoint_outlives_its_topology_and_is_complete(past: Past) -> None:
    (row,) = past.heron.json("checkpoint", "list", "local", past.name)
    assert (row["name"], row["tasks"], row["complete"]) == ("before", 7, True)
    found: dict[str, Any] = past.heron.json("checkpoint", "inspect", "local", past.name, "before", "--verify")
    assert found["damaged_files"] == []
    part, *others = (past.kept / "parts").iterdir()
    assert found["files"] == 1 + len(others)
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    said = past.heron.run("checkpoint", "inspect", "local", past.name, "before", "--verify", code=1).stderr
    assert f"{part.name} of checkpoint " in said
    part.write_bytes(whole)


@pytest.mark.core
def test_changed_code_and_parallelism_continue_from_a_checkpoint(past: Past) -> None:
    before = past.every_count_is_there_once()
    name = unique("Later")
    past.submit(name, "Later", "--from-checkpoint", f"local/{past.kept.parts[-4]}/default/{past.name}@before",
                "--allow-dropped-state")  # fmt: skip
    wait_until(lambda: past.every_count_is_there_once() > before + 100, "it goes on, and no count comes twice or never")
    status = past.heron.status(name)["tasks_state"]
    assert status["generation"] > 1
    log_files = next((past.heron.home / "topologies" / "local").glob(f"*/default/{name}")) / "log-files"
    logs = [path.read_text() for path in log_files.glob("container_*_count_*.log")]
    begun = [int(text.rpartition("begins with ")[2].split()[0]) for text in logs]
    assert len(begun) == 3
    assert sum(begun) == 20, "every key is with one task"
    last = past.heron.json("checkpoint", "list", "local", name)[-1]["checkpoint"]
    second = unique("Later")
    past.heron.run("deactivate", "local", name)
    past.heron.run("checkpoint", "create", "local", name, "--wait")
    there = past.every_count_is_there_once()
    past.submit(second, "Later", "--from-checkpoint", f"local/{past.kept.parts[-4]}/default/{name}")
    assert past.heron.status(second)["tasks_state"]["restore_from"] > last
    past.heron.kill(name)
    wait_until(lambda: past.every_count_is_there_once() > there + 100, "so does one that begins with the last one")
    past.heron.kill(second)


def test_named_checkpoint_is_deleted(past: Past) -> None:
    past.heron.run("checkpoint", "delete", "local", past.name, "before")
    assert not past.kept.exists()
    past.heron.run("checkpoint", "list", "local", past.name, code=3)

"""Topologies that start from another one's named checkpoint, with changed code or parallelism."""

from __future__ import annotations

import json
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
        assert "already" in heron.run("checkpoint", "create", "local", name, "--name", "before", code=4).stderr
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
    assert found["files"] == len(list((past.kept / "parts").iterdir()))
    assert "has no checkpoint 'befor'; did you mean 'before'?" in past.heron.run(
        "checkpoint", "inspect", "local", past.name, "befor", code=3
    ).stderr  # fmt: skip


def test_state_without_a_matching_component_is_rejected(past: Past) -> None:
    name, reference = unique("Other"), f"file://{past.kept}"
    said = past.submit(name, "OtherKeys", "--from-checkpoint", reference, code=7).stderr
    assert "count: it was a bolt with keys of 1 field and is a bolt with keys of 2 fields" in said
    assert "hoards: unknown component" in said
    assert "out: " not in said, "what is committed needs no place"
    past.submit(name, "OtherKeys", "--from-checkpoint", reference, "--allow-dropped-state")
    past.heron.kill(name)


@pytest.mark.parametrize(
    ("reference", "code", "said"),
    [
        ("file:///nowhere", 3, "no checkpoint in /nowhere"),
        ("words", 2, "names no checkpoint"),
        ("prod/ads/x/words", 2, "is of cluster 'prod'"),
        ("local/ads/x/words", 3, "words"),
        ("local/ads/x/words@name", 3, "words has no checkpoint 'name'"),
    ],
)
def test_missing_checkpoint_is_rejected(past: Past, reference: str, code: int, said: str) -> None:
    assert said in past.submit(unique("Later"), "Later", "--from-checkpoint", reference, code=code).stderr


def test_stateless_topology_and_damaged_part_are_rejected(past: Past) -> None:
    reference = f"file://{past.kept}"
    said = past.submit(unique("WithAcks"), "WithAcks", "--from-checkpoint", reference, code=7).stderr
    assert "keeps no state" in said
    manifest = json.loads(next((past.kept / "manifests").iterdir()).read_bytes().partition(b"\n")[2])
    part = next(p for p in manifest["layers"]["count"])
    name = f"{part['generation']}-{part['checkpoint']}-{part['task']}-{part['incarnation']:x}.part"
    file = past.kept / "parts" / name
    whole = file.read_bytes()
    try:
        for data in (whole[:-1] + bytes([whole[-1] ^ 1]), None):
            file.unlink()
            if data is not None:
                file.write_bytes(data)
            more = ("--from-checkpoint", reference, "--allow-dropped-state")
            done = past.submit(unique("Later"), "Later", *more, code=1)
            assert f"{name} of checkpoint {part['checkpoint']} (count, task {part['task']})" in done.stderr
    finally:
        file.write_bytes(whole)
    assert not past.heron.json("list", "local"), "nothing of them runs"


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
    past.heron.run("checkpoint", "delete", "local", past.name, "before", code=3)
    past.heron.run("checkpoint", "list", "local", past.name, code=3)

"""Checkpoints in a storage: completeness, contents and damaged files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heron_control.inspection.checkpoint_copies import damaged_parts
from heron_control.inspection.checkpoints import complete_ones, details, read_manifest, record_in, rows, storage_of
from heron_control.inspection.remote_checkpoints import RemoteCheckpoints, reachable_storage
from heron_control.schedulers.topology_folder import write_secrets
from heron_instance.core.state.snapshot import KeyGroupRows, TaskSnapshot
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.failures import Failure, NotFound, Unavailable, UsageError
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import (
    CheckpointRecord,
    CommitToken,
    Manifest,
    StatePart,
    full_groups,
    groups_of,
    initial_manifest,
    next_manifest,
)
from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.plan import PlanVersion
from heron_runtime.model.records import TopologyRecord
from heron_runtime.state import paths
from heron_runtime.state.memory import MemoryStore
from heron_runtime.state.store import Create, StoreError
from tests.support.stub_processes import definition, execution, packing
from topology_master.core.planner import initial_table

TABLE = tuple(initial_table([2, 3]))


def take(folder: CheckpointFolder, base: Manifest, number: int) -> Manifest:
    """Write a checkpoint of tasks 2 and 3 of ``count`` with real files."""
    parts = []
    for task in (2, 3):
        groups = groups_of(TABLE, task)
        token = (CommitToken(number, f"file-{number}-{task}"),)
        draft = StatePart("count", task, 7, 1, number, base.turn + 1, 0, "", groups, token)
        kept = groups & full_groups(base.turn + 1)
        full = [KeyGroupRows(g, True, [(f"k{g}", number)]) for g in range(KEY_GROUPS) if kept >> g & 1]
        part, pieces = TaskSnapshot(draft, [("own", task)], full, ValuesCodec("auto")).encode()
        folder.write_part(part.name, pieces)
        parts.append(part)
    made = next_manifest(base, parts, PlanVersion(1, 2), {"count": TABLE}, "digest")
    folder.write_manifest(made)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path)


def test_newest_checkpoint_of_each_turn_is_complete() -> None:
    assert complete_ones({}, 0) == set()
    assert complete_ones({4: 1, 5: 2, 7: 2, 8: 3, 9: 4}, 8) == {4, 7, 8}


def test_rows_list_each_manifest_including_damaged_ones(folder: CheckpointFolder, tmp_path: Path) -> None:
    assert rows(folder, 0) == []
    first = take(folder, initial_manifest("id"), 1)
    second = take(folder, first, 3)
    take(folder, second, 4)
    (tmp_path / "manifests" / "2.json").write_text("nonsense")
    found = rows(folder, 3)
    assert [(row["checkpoint"], row["complete"], row["turn"]) for row in found] == [
        (1, True, 0), (2, False, None), (3, True, 1), (4, False, 2),
    ]  # fmt: skip
    assert found[0]["bytes"] == sum(part.size for part in first.parts)
    assert "its manifest is incomplete" in found[1]["damaged"]
    assert found[2]["written_at"].endswith("+00:00")
    with pytest.raises(Failure, match=r"checkpoint 2 below .* is incomplete"):
        read_manifest(folder, 2)
    with pytest.raises(NotFound, match="no checkpoint 9") as missing:
        read_manifest(folder, 9)
    assert missing.value.cure == "The newest are 1, 2, 3, 4."


def test_details_list_parts_tokens_and_key_groups(folder: CheckpointFolder) -> None:
    base = take(folder, initial_manifest("id"), 1)
    take(folder, base, 2)
    found = details(folder, 2, 2)
    assert (found["complete"], found["generation"], found["plan"], found["code_digest"]) == (True, 1, "1.2", "digest")
    assert [(p["component"], p["task"], p["key_groups"]) for p in found["parts"]] == [
        ("count", 2, 512),
        ("count", 3, 512),
    ]
    assert found["parts"][0]["tokens"] == [{"checkpoint": 2, "name": "file-2-2"}]
    assert found["key_groups"] == {"count": {"2": 512, "3": 512}}
    assert (found["layers"]["count"]["files"], found["layers"]["count"]["oldest"], found["files"]) == (4, 1, 4)


def test_every_damaged_file_is_named(folder: CheckpointFolder, tmp_path: Path) -> None:
    manifest = take(folder, take(folder, initial_manifest("id"), 1), 2)
    assert damaged_parts(folder, manifest) == []
    older, gone, longer, head = sorted(manifest.files)
    for name, damage in (
        (older, lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        (longer, lambda data: data + b"x"),
        (head, lambda data: data[:20] + b"?" + data[21:]),
    ):  # fmt: skip
        file: Any = tmp_path / "parts" / name
        file.write_bytes(damage(file.read_bytes()))
    (tmp_path / "parts" / gone).unlink()
    found = damaged_parts(folder, manifest)
    faults = ("is damaged in its block", "cannot be read", "is too long", "is damaged in its head")
    for name, fault, said in zip((older, gone, longer, head), faults, found, strict=True):
        assert said.startswith(f"{name} of checkpoint ")
        assert fault in said
        assert "(count, task " in said


def test_topology_without_checkpoints_is_rejected() -> None:
    def record(**config: Any) -> TopologyRecord:
        made = replace(definition(), config={key.replace("__", "."): value for key, value in config.items()})
        return TopologyRecord(made, packing(), None, execution("/home/x"), None, None, ())

    with pytest.raises(UsageError, match="is not EFFECTIVELY_ONCE"):
        storage_of(record())
    mode = {"topology__reliability__mode": "EFFECTIVELY_ONCE"}
    assert storage_of(record(**mode)).folder == Path("/home/x/checkpoints")
    with pytest.raises(UsageError, match="s3://b"):
        storage_of(record(**mode, topology__stateful__checkpoint__storage="s3://b"))


@pytest.mark.parametrize("storage", [None, "file:///shared"])
def test_checkpoints_in_a_volume_are_read_through_containers(tmp_path: Path, storage: str | None) -> None:
    config = {"topology.reliability.mode": "EFFECTIVELY_ONCE"} | (
        {} if storage is None else {"topology.stateful.checkpoint.storage": storage}
    )
    made = replace(definition(), config=config)
    record = TopologyRecord(made, packing(), None, execution(str(tmp_path)), None, None, ())
    launch = Launch("c", "me", "default", made.name, made.id, "memory://", str(tmp_path), str(tmp_path))
    launch.save(tmp_path / "launch.json")
    write_secrets(tmp_path)
    here = reachable_storage(record)
    assert not isinstance(here, RemoteCheckpoints)
    assert here.folder == (tmp_path / "checkpoints" if storage is None else Path("/shared"))
    replace(launch, home="/heronry/topology").save(tmp_path / "launch.json")
    if storage is not None:
        with pytest.raises(
            Failure, match=r"are in /shared of its containers, which give access to their own folder only"
        ):
            reachable_storage(record)
        return
    there = reachable_storage(record)
    assert isinstance(there, RemoteCheckpoints)
    assert there.folder == Path("/heronry/topology/checkpoints")
    with pytest.raises(Unavailable, match="no container is available"):
        there.manifests()


def test_damaged_checkpoint_record_is_a_store_error() -> None:
    store = MemoryStore()
    store.open()
    assert record_in(store, "words") == CheckpointRecord()
    store.commit([Create(paths.checkpoints("words"), b"\xc1 damaged")])
    with pytest.raises(StoreError, match="cannot be read"):
        record_in(store, "words")
    store.close()

"""Checkpoint folder: manifests and parts round-trip, and damaged files are rejected by name."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heron_runtime.checkpoint_files import CheckpointFolder, checkpoint_folder
from heron_runtime.model.checkpoints import ALL_GROUPS, CommitToken, Manifest, StatePart, initial_manifest
from heron_runtime.model.plan import PlanVersion
from heron_runtime.wire.checkpoint_formats import MANIFEST_FORMAT, decode_manifest, encode_manifest
from heron_runtime.wire.errors import MalformedMessage

PART = StatePart("count", 3, 1 << 60, 2, 7, 4, 100, "sum", ALL_GROUPS, (CommitToken(6, "a"), CommitToken(7, "b")))
MANIFEST = Manifest(
    "id", 7, 2, 4, PlanVersion(1, 9), (PART,), {"count": (replace(PART, checkpoint=5, groups=3), PART)}, {"count": (3,)}
)


def test_manifest_round_trips(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    assert folder.manifests() == []
    for manifest in (MANIFEST, replace(initial_manifest("id"), checkpoint=12)):
        folder.write_manifest(manifest)
        assert folder.read_manifest(manifest.checkpoint) == manifest
    assert folder.manifests() == [7, 12]
    folder.remove_manifest(7)
    folder.remove_manifest(7)
    assert folder.manifests() == [12]


@pytest.mark.parametrize("damage", [b"", b"{}", encode_manifest(MANIFEST).replace(b"count", b"kount"), b"\xff\xfe\n{}"])
def test_damaged_manifest_is_rejected(damage: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_manifest(damage)


def test_parts_are_read_by_offset(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write_part(PART.name, [b"abc", b"", b"defg"])
    assert folder.parts() == [PART.name]
    with folder.open_part(PART.name) as read:
        assert (read(0, 3), read(2, 3), read(5, 9), read(9, 1)) == (b"abc", b"cde", b"fg", b"")
    folder.remove_parts([PART.name, "was never there"])
    assert folder.parts() == []
    with pytest.raises(FileNotFoundError), folder.open_part(PART.name):
        pass


def test_checkpoint_folder_comes_from_the_url_or_the_home() -> None:
    assert checkpoint_folder(None, "/home/t").folder == Path("/home/t/checkpoints")
    assert checkpoint_folder("file:///mnt/with%20space", "/home/t").folder == Path("/mnt/with space")
    for url in ("s3://bucket/x", "file://host/x", "/x", "file:x"):
        with pytest.raises(ValueError, match="file:///path"):
            checkpoint_folder(url, "/home/t")


def _manifest_with(change: Callable[[dict[str, Any]], None]) -> bytes:
    """Encode MANIFEST after a change of its JSON, with a matching checksum."""
    body = json.loads(encode_manifest(MANIFEST).partition(b"\n")[2])
    change(body)
    data = json.dumps(body).encode()
    return f"{MANIFEST_FORMAT} {hashlib.blake2b(data, digest_size=16).hexdigest()}\n".encode() + data


@pytest.mark.parametrize("key", ["generation", "checkpoint", "task", "incarnation", "size", "turn", "groups"])
@pytest.mark.parametrize("value", ["../../x", None, -2, 1.5, [1], "7"])
def test_manifest_with_a_field_of_another_type_is_rejected(key: str, value: object) -> None:
    if key == "groups" and value == "7":
        value = "f" * 257
    for where in (lambda m: m["parts"][0], lambda m: m["layers"]["count"][0]):
        with pytest.raises(MalformedMessage):
            decode_manifest(_manifest_with(lambda manifest, where=where: where(manifest).update({key: value})))


@pytest.mark.parametrize(
    "change",
    [{"checkpoint": "../7"}, {"parts": {}}, {"tables": {"count": ["3"]}}, {"adopted": "x"}, {"plan": 1}, {"more": 1},
     {"tables": {"count": [0] * 1025}}],
)  # fmt: skip
def test_manifest_of_another_shape_is_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        decode_manifest(_manifest_with(lambda manifest: manifest.update(change)))


@pytest.mark.parametrize("body", [b"[]", b"1", b"{", b"[" * 100_000, b"\xff", b"{}"])
def test_invalid_manifest_body_with_a_valid_checksum_is_rejected(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_manifest(f"{MANIFEST_FORMAT} {hashlib.blake2b(body, digest_size=16).hexdigest()}\n".encode() + body)


def test_manifest_under_another_number_is_rejected(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write_manifest(MANIFEST)
    (tmp_path / "manifests" / "7.json").rename(tmp_path / "manifests" / "8.json")
    with pytest.raises(MalformedMessage, match="checkpoint 7"):
        folder.read_manifest(8)


def test_links_and_pipes_in_place_of_files_are_rejected(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    folder.write_part(PART.name, [b"abc"])
    folder.write_manifest(MANIFEST)
    for place, read in (
        (tmp_path / "checkpoints/parts" / PART.name, lambda: folder.open_part(PART.name).__enter__()),
        (tmp_path / "checkpoints/manifests/7.json", lambda: folder.read_manifest(7)),
    ):
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OSError, match="symbolic links"):
            read()
        place.unlink()
        os.mkfifo(place)
        with pytest.raises(OSError, match="not a regular file"):
            read()

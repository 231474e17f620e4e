"""The folder of checkpoints: what is written is read again, and what is damaged is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heron_runtime.checkpoint_files import CheckpointFolder, checkpoint_folder
from heron_runtime.model.checkpoints import ALL_GROUPS, Manifest, Part, Token, initial_manifest
from heron_runtime.model.plan import PlanVersion
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.manifests import decode_manifest, encode_manifest

PART = Part("count", 3, 1 << 60, 2, 7, 4, 100, "sum", ALL_GROUPS, (Token(6, "a"), Token(7, "b")))
MANIFEST = Manifest(
    "id", 7, 2, 4, PlanVersion(1, 9), (PART,), {"count": (replace(PART, checkpoint=5, groups=3), PART)}, {"count": (3,)}
)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
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
def test_a_damaged_manifest_is_refused(damage: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_manifest(damage)


def test_parts_are_read_by_place(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write_part(PART.name, [b"abc", b"", b"defg"])
    assert folder.parts() == [PART.name]
    with folder.open_part(PART.name) as read:
        assert (read(0, 3), read(2, 3), read(5, 9), read(9, 1)) == (b"abc", b"cde", b"fg", b"")
    folder.remove_parts([PART.name, "was never there"])
    assert folder.parts() == []
    with pytest.raises(FileNotFoundError), folder.open_part(PART.name):
        pass


def test_where_it_is() -> None:
    assert checkpoint_folder(None, "/home/t").folder == Path("/home/t/checkpoints")
    assert checkpoint_folder("file:///mnt/with%20space", "/home/t").folder == Path("/mnt/with space")
    for url in ("s3://bucket/x", "file://host/x", "/x", "file:x"):
        with pytest.raises(ValueError, match="file:///path"):
            checkpoint_folder(url, "/home/t")

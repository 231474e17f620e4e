"""Quota of named checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_control.inspection.whole_files import needed, size_of
from heron_control.submission.naming import CheckpointQuotaSpent, NamedCheckpoints
from heron_runtime.checkpoint_files import CheckpointFolder
from tests.unit.submission.test_from_checkpoint import checkpoint


def test_the_named_checkpoints_of_a_role_have_a_quota(tmp_path: Path) -> None:
    source = CheckpointFolder(tmp_path / "source")
    manifest = checkpoint(source)
    size = size_of(needed(manifest))
    assert size > 0
    NamedCheckpoints(tmp_path, "local").save(source, manifest, "ads", "default", "words", "first")
    (first,) = tmp_path.glob("checkpoints/local/ads/default/words/first")
    used = sum(path.stat().st_size for path in first.rglob("*") if path.is_file())
    named = NamedCheckpoints(tmp_path, "local", used + size)
    named.save(source, manifest, "ads", "prod", "words", "second")
    with pytest.raises(CheckpointQuotaSpent, match="role ads may have") as refused:
        named.save(source, manifest, "ads", "default", "other", "third")
    assert "heron checkpoint delete" in refused.value.cure
    assert not list(tmp_path.glob("checkpoints/local/ads/default/other/*"))
    named.save(source, manifest, "search", "default", "words", "third")  # another role
    named.delete("ads", "default", "words", "first")
    named.save(source, manifest, "ads", "default", "other", "third")

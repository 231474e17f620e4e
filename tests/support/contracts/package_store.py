"""Contract of package stores: each function below is one test of every store."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from heron_apiserver.package_store import PackageStore, PackageStoreError
from heron_apiserver.package_transfer import INCOMING


@dataclass
class PackageStoreUnderTest:
    """Store, its view from another process of the same home, and the folder of its files."""

    store: PackageStore
    again: Callable[[], PackageStore]
    folder: Path
    work: Path

    def file(self, content: bytes) -> tuple[str, Path]:
        """Return a file to keep, and its digest."""
        path = self.work / secrets.token_hex(8)
        path.write_bytes(content)
        return hashlib.sha256(content).hexdigest(), path


def what_is_kept_is_there_for_whoever_comes_next(kept: PackageStoreUnderTest) -> None:
    """Check that keeping twice stores once, removing twice removes once, and the files are in their folder."""
    content = secrets.token_bytes((3 << 20) + 17)
    for _ in range(2):
        digest, file = kept.file(content)
        kept.store.keep(digest, file)
        assert not file.exists(), "it was taken"
    assert [path.name for path in kept.folder.iterdir()] == [f"{digest}.tar.gz"]
    other = kept.again()
    assert other.has(digest)
    assert other.digests() == [digest]
    path = other.path(digest)
    assert path is not None
    assert path.read_bytes() == content
    for _ in range(2):
        other.remove(digest)
    assert not other.has(digest)
    assert other.path(digest) is None
    assert list(kept.folder.iterdir()) == []


def nothing_but_a_digest_is_a_path(kept: PackageStoreUnderTest) -> None:
    """Check that only digests are accepted and listed."""
    digest, file = kept.file(b"outside")
    (kept.folder.parent / f"{digest}.tar.gz").write_bytes(b"outside")
    for name in ("", "..", f"../{digest}", digest[:-1], digest.upper() + "\n", f"{digest}/..", "\0" * 64):
        assert not kept.store.has(name)
        for act in (lambda name=name: kept.store.keep(name, file), lambda name=name: kept.store.remove(name)):
            with pytest.raises(ValueError, match="not a SHA-256"):
                act()
    assert not kept.store.has(digest)
    assert (kept.folder.parent / f"{digest}.tar.gz").read_bytes() == b"outside"


def damage_is_said_and_mended_by_sending_again(kept: PackageStoreUnderTest) -> None:
    """Check that wrong length and wrong content are detected, and repaired by another upload."""
    digest, file = kept.file(b"code" * 1000)
    kept.store.keep(digest, file)
    for damaged in (b"code", b"edoc" * 1000):
        (kept.folder / f"{digest}.tar.gz").write_bytes(damaged)
        with pytest.raises(PackageStoreError, match=f"{digest} in .* is damaged: its SHA-256 is") as caught:
            kept.again().path(digest)
        assert "Submit the topology's code again" in caught.value.cure
        kept.again().keep(*kept.file(b"code" * 1000))
        path = kept.again().path(digest)
        assert path is not None
        assert path.read_bytes() == b"code" * 1000


def two_at_once_are_one(kept: PackageStoreUnderTest) -> None:
    """Check that concurrent uploads store once; interrupted ones are removed at the next start."""
    content = secrets.token_bytes(1 << 20)
    sent = [kept.file(content) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda one: kept.store.keep(*one), sent))
    (kept.folder / f"{INCOMING}0123").write_bytes(b"the rest of one")
    assert kept.again().digests() == [sent[0][0]]
    assert [path.name for path in kept.folder.iterdir()] == [f"{sent[0][0]}.tar.gz"]


CONTRACT = [
    what_is_kept_is_there_for_whoever_comes_next,
    nothing_but_a_digest_is_a_path,
    damage_is_said_and_mended_by_sending_again,
    two_at_once_are_one,
]

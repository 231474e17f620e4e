"""Package stores: contract for folders and file://, displayed locations, and error messages."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_apiserver import package_store
from heron_apiserver.package_store import (
    NOT_KEPT,
    FolderPackageStore,
    PackageLocation,
    PackageStore,
    PackageStoreError,
    RemotePackageStore,
    load_package_location,
    open_package_store,
    parse_package_location,
)  # fmt: skip
from heron_apiserver.packages import PackageRepository
from heron_runtime.failures import NotAllowed, UsageError
from tests.support.contracts.package_store import CONTRACT, PackageStoreUnderTest


@pytest.mark.parametrize("kind", ["folder", "file://"])
@pytest.mark.parametrize("law", CONTRACT, ids=lambda law: law.__name__)
def test_package_store_contract(tmp_path: Path, kind: str, law: Callable[[PackageStoreUnderTest], None]) -> None:
    (tmp_path / "work").mkdir()
    place = parse_package_location(f"{tmp_path}/kept" if kind == "folder" else f"file://{tmp_path}/kept")

    def make(home: str) -> PackageStore:
        store = open_package_store(place, tmp_path / home, lambda _: "space")
        assert store is not None
        return store

    store = make("home")
    assert isinstance(store, FolderPackageStore if kind == "folder" else RemotePackageStore)
    (tmp_path / "kept" / "space").mkdir(exist_ok=True, parents=True)
    law(PackageStoreUnderTest(store, lambda: make("other"), tmp_path / "kept" / "space", tmp_path / "work"))


def test_package_from_another_disk_is_kept(tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs two disks")
    file = shm / f"heronry-{tmp_path.name}-{tmp_path.parent.name}"
    kept = PackageStoreUnderTest(FolderPackageStore(tmp_path), lambda: FolderPackageStore(tmp_path), tmp_path, tmp_path)
    digest, made = kept.file(b"code")
    file.write_bytes(made.read_bytes())
    made.unlink()
    kept.store.keep(digest, file)
    assert not file.exists()
    assert [p.name for p in tmp_path.iterdir()] == [f"{digest}.tar.gz"]


WORD = st.text(min_size=4, max_size=20).map(lambda text: quote(text, safe="!$&'()*+,;=")).filter(lambda t: len(t) > 6)


@given(user=WORD, password=WORD, key=WORD)
def test_secrets_are_redacted(user: str, password: str, key: str) -> None:
    """Applies to displayed locations and to foreign text."""
    place = parse_package_location(
        f"sftp://{user}:{password}@host:22/code?key={key}", {"client": {"aws_secret": [key]}}
    )
    assert place.display_name == "sftp://host:22/code"
    said = place.redact(f"no login as {user}:{password} at {place.url} with {key}") + repr(place) + str(place)
    for secret in (f"{user}:{password}", password, key, place.url):
        assert secret not in said.replace("no login as", "")


@given(st.text())
def test_any_text_is_a_location_or_a_usage_error(text: str) -> None:
    try:
        place = parse_package_location(text)
    except UsageError:
        return
    assert (not text) or place.folder.startswith("/") or place.url == text
    assert place.scheme not in NOT_KEPT


@pytest.mark.parametrize(
    "text",
    ["memory://x", "http://h/x", "code", "./code", "s3://", "simplecache::s3://b/x", "s3://b/../x", "S3://b/x", "sftp://[h/x"],
)  # fmt: skip
def test_invalid_location_is_rejected_with_a_remedy(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_package_location(text)
    assert caught.value.cure


def test_missing_library_is_named_with_its_install_command() -> None:
    for url, line in (("s3://u:hidden@b/x", "s3fs"), ("abfs://b/x", "adlfs")):
        with pytest.raises(PackageStoreError) as caught:
            load_package_location(url)
        assert caught.value.cure == f"Type: pip install 'heronry[uploaders]' {line}"
        assert "hidden" not in str(caught.value)
    with pytest.raises(PackageStoreError, match="does not support nonsense://"):
        load_package_location("nonsense://b/x")


def test_options_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "options.json"
    file.write_text(json.dumps({"auto_mkdir": True}))
    assert load_package_location(f"file://{tmp_path}/kept", str(file)).options == {"auto_mkdir": True}
    for content in ("hidden", "[1]"):
        file.write_text(content)
        with pytest.raises(UsageError, match="is not a JSON object") as caught:
            load_package_location(f"file://{tmp_path}/kept", str(file))
        assert "hidden" not in str(caught.value)
    with pytest.raises(UsageError):
        load_package_location("/folder", str(file))
    with pytest.raises(UsageError):
        load_package_location("s3://b/x", str(tmp_path / "none"))


def test_hanging_store_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        package_store, "python_command", lambda *_: [sys.executable, "-c", "import time; time.sleep(99)"]
    )
    place = parse_package_location(f"sftp://me:hidden-word@host{tmp_path}")
    store = RemotePackageStore(place, "space", tmp_path / "copies", look_seconds=0.2, transfer_seconds=0.2)
    file = tmp_path / "file"
    file.write_bytes(b"code")
    for act in (lambda: store.has("a" * 64), lambda: store.path("a" * 64), lambda: store.keep("a" * 64, file)):
        with pytest.raises(PackageStoreError, match="does not answer within") as caught:
            act()
        assert "hidden" not in str(caught.value)
        assert caught.value.cure
    assert file.exists(), "whoever brought it discards it"
    assert list((tmp_path / "copies").iterdir()) == []
    monkeypatch.setattr(package_store, "python_command", lambda *_: [sys.executable, "-c", "exit('of hidden-word')"])
    patient = RemotePackageStore(place, "space", tmp_path / "copies")
    with pytest.raises(PackageStoreError, match=r"failed: of \*\*\*"):
        patient.digests()


def test_unwritable_location_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAllowed, match="file"):
        open_package_store(PackageLocation(folder=str(tmp_path / "file")), tmp_path, lambda _: "space")


class SlowRemoval:
    """Folder store whose ``remove`` waits until released."""

    def __init__(self, folder: Path) -> None:
        self._store = FolderPackageStore(folder)
        self.removing, self.may = threading.Event(), threading.Event()
        for name in ("keep", "has", "path", "digests"):
            setattr(self, name, getattr(self._store, name))

    def remove(self, digest: str) -> None:
        """Remove after the release."""
        self.removing.set()
        assert self.may.wait(60)
        self._store.remove(digest)


def test_hold_during_a_removal_waits_and_stores_the_package_again(tmp_path: Path) -> None:
    """The caller ends up with the package that it was promised."""
    store = SlowRemoval(tmp_path / "kept")
    packages = PackageRepository(tmp_path, store=store)  # type: ignore[arg-type]  # its other methods are set in __init__
    kept = PackageStoreUnderTest(store, lambda: store, tmp_path, tmp_path)  # type: ignore[arg-type]  # the same
    digest, file = kept.file(b"code")
    store._store.keep(digest, file)
    going = threading.Thread(target=packages.remove_unless_held, args=(digest,))
    going.start()
    assert store.removing.wait(60)
    assert not packages.remove_unless_held(digest), "it goes already"
    found: list[bool] = []

    def hold() -> None:
        with packages.hold(digest):
            store._store.keep(*kept.file(b"code"))
            found.append(not packages.remove_unless_held(digest) and packages.has(digest))

    holding = threading.Thread(target=hold)
    holding.start()
    holding.join(0.2)
    assert not found, "it waits"
    store.may.set()
    for thread in (going, holding):
        thread.join(60)
    assert found == [True]
    assert packages.has(digest)

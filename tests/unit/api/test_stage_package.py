"""Staging of user packages: copied and unpacked files, and rejection of harmful ones."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.packaging.definition import define_topology
from heron_control.packaging.package import import_paths, open_staged_package, stage_package
from heron_control.packaging.writer import ArchiveLimits
from heronry.api.errors import PackageError

TOPOLOGY = """
from heronry import Spout, Topology
class Words(Spout):
    outputs = ["word"]
    def next_tuple(self): pass
class WordCount(Topology):
    words = Words.spec()
"""


def tree(root: Path) -> dict[str, str]:
    return {p.relative_to(root).as_posix(): p.read_text() for p in sorted(root.rglob("*")) if p.is_file()}


def make_zip(path: Path, entries: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in entries.items():
            archive.writestr(name, text)
    return path


def make_tar(path: Path, entries: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


MAKERS = [(make_zip, "p.zip"), (make_tar, "p.tar.gz"), (make_tar, "p.tgz")]
both = pytest.mark.parametrize(("make", "name"), MAKERS)
Make = Callable[[Path, dict[str, str]], Path]


def refused(source: Path, tmp_path: Path, limits: ArchiveLimits | None = None) -> str:
    """Return the error text, after checking that no file remains inside or outside."""
    before = sorted(p for p in tmp_path.rglob("*"))
    with pytest.raises(PackageError) as caught:
        stage_package(source, tmp_path / "out", limits)
    assert sorted(p for p in tmp_path.rglob("*")) == before
    return str(caught.value)


def test_single_file_is_staged(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(TOPOLOGY)
    (tmp_path / "out").mkdir()
    package = stage_package(tmp_path / "flow.py", tmp_path / "out")
    assert (package.root / "flow.py").read_text() == TOPOLOGY
    assert (package.entry, package.requirements) == (tmp_path / "flow.py", None)
    assert open_staged_package(package.root).entry == package.root / "flow.py"
    assert import_paths(package.root) == [str(tmp_path / "out")]
    assert define_topology(package.entry).components[0].python_class == "flow:Words"


def test_plain_folder_is_staged_without_excluded_files(tmp_path: Path) -> None:
    source = tmp_path / "project"
    for name in (
        "flow.py",
        "lib/a.py",
        "requirements.txt",
        ".git/config",
        "lib/__pycache__/a.pyc",
        "venv/pyvenv.cfg",
        "x.pyc",
    ):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    package = stage_package(source, tmp_path / "deep" / "out")
    assert sorted(tree(package.root)) == ["flow.py", "lib/a.py", "requirements.txt", "run.sh"]
    assert (package.entry, package.requirements) == (package.root, package.root / "requirements.txt")
    assert os.access(package.root / "run.sh", os.X_OK)
    assert not os.access(package.root / "flow.py", os.X_OK)


def test_package_folder_keeps_its_name(tmp_path: Path) -> None:
    source = tmp_path / "wordcount"
    source.mkdir()
    (source / "__init__.py").write_text(TOPOLOGY)
    (source / "requirements.txt").write_text("six\n")
    package = stage_package(source, tmp_path / "out")
    assert sorted(tree(package.root)) == ["wordcount/__init__.py", "wordcount/requirements.txt"]
    assert package.entry == package.root / "wordcount"
    assert package.requirements == package.entry / "requirements.txt"
    assert open_staged_package(package.root) == package
    assert define_topology(package.entry).components[0].python_class == "wordcount:Words"


@both
def test_archive_is_staged(tmp_path: Path, make: Make, name: str) -> None:
    entries = {"flow.py": TOPOLOGY, "lib/a.py": "a", "./lib/b.py": "b"}
    package = stage_package(make(tmp_path / name, entries), tmp_path / "out")
    assert tree(package.root) == {"flow.py": TOPOLOGY, "lib/a.py": "a", "lib/b.py": "b"}
    assert define_topology(package.entry, "flow").name == "WordCount"


@both
def test_single_top_folder_is_removed_unless_it_is_a_package(tmp_path: Path, make: Make, name: str) -> None:
    wrapped = stage_package(make(tmp_path / name, {"proj-1.0/flow.py": "x"}), tmp_path / "out1")
    assert tree(wrapped.root) == {"flow.py": "x"}
    package = stage_package(make(tmp_path / name, {"proj/__init__.py": "", "proj/flow.py": "x"}), tmp_path / "out2")
    assert package.entry == package.root / "proj"


@both
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("../evil.py", "leads out of the package by '..'"),
        ("a/../../evil.py", "leads out of the package by '..'"),
        ("/etc/evil.py", "is not a relative path"),
        ("C:/evil.py", "is not a relative path"),
        ("a\\..\\evil.py", "is not a relative path"),
        ("a\nb.py", "control characters"),
        ("a/" * 50 + "b.py", "nested deeper than 40"),
        ("a" * 2000, "too long a name"),
    ],
)
def test_path_that_leaves_the_package_is_rejected(
    tmp_path: Path, make: Make, name: str, entry: str, words: str
) -> None:
    assert words in refused(make(tmp_path / name, {"ok.py": "", entry: "x"}), tmp_path)


@both
@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"Flow.py": "", "flow.py": ""}, "only in case"),
        ({"Lib/a.py": "", "lib/b.py": ""}, "only in case"),
        ({"é.py": "", "e\u0301.py": ""}, "only in case or accents"),
        ({"a": "", "a/b": ""}, "both a file and a folder"),
        ({"a/b": "", "a": ""}, "both a file and a folder"),
        ({"a/b": "", "a/./b": ""}, "twice"),
    ],
)
def test_conflicting_names_are_rejected(
    tmp_path: Path, make: Make, name: str, entries: dict[str, str], words: str
) -> None:
    assert words in refused(make(tmp_path / name, entries), tmp_path)


@both
def test_archive_bombs_are_rejected(tmp_path: Path, make: Make, name: str) -> None:
    large = make(tmp_path / name, {"a": "0" * 3_000_000, "b": "0" * 3_000_000})
    assert large.stat().st_size < 100_000
    assert "has more than 2000000 bytes" in refused(large, tmp_path, ArchiveLimits(file_bytes=2_000_000))
    assert "unpacks to more than 5000000 bytes" in refused(large, tmp_path, ArchiveLimits(total_bytes=5_000_000))
    many = make(tmp_path / name, {f"f{n}": "" for n in range(50)})
    assert "more than 20 files" in refused(many, tmp_path, ArchiveLimits(files=20))
    nested = make(tmp_path / name, {f"d{n}/x": "" for n in range(15)})
    assert "more than 28 files and folders" in refused(nested, tmp_path, ArchiveLimits(files=14))


def test_zip_with_a_false_size_is_rejected(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "p.zip", {"a": "0" * 3_000_000})
    raw = bytearray(path.read_bytes())
    real = (3_000_000).to_bytes(4, "little")
    while real in raw:
        at = raw.index(real)
        raw[at : at + 4] = (10).to_bytes(4, "little")
    path.write_bytes(raw)
    assert "p.zip" in refused(path, tmp_path, ArchiveLimits(file_bytes=2_000_000))


def test_endless_tar_header_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "p.tar.gz"
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    header.size = 1 << 33
    with gzip.open(path, "wb") as out:
        out.write(header.tobuf(tarfile.GNU_FORMAT))
        out.write(b"0" * 100_000)
    assert "header of" in refused(path, tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_rejected(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("evil")
        entry.type = kind
        entry.linkname = "/etc/passwd"
        archive.addfile(entry)
    assert "is a link or a device" in refused(tmp_path / "p.tar.gz", tmp_path)


def test_file_through_a_link_is_rejected(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("out")
        link.type = tarfile.SYMTYPE
        link.linkname = str(tmp_path)
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("out/evil.py"), io.BytesIO())
    refused(tmp_path / "p.tar.gz", tmp_path)


def test_links_and_encrypted_entries_in_a_zip_are_rejected(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        entry = zipfile.ZipInfo("evil")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    assert "is a link or a device" in refused(tmp_path / "p.zip", tmp_path)
    path = make_zip(tmp_path / "q.zip", {"a.py": "x"})
    raw = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(signature) + offset] |= 1
    path.write_bytes(raw)
    assert "is encrypted" in refused(path, tmp_path)


@both
def test_damaged_archive_is_rejected(tmp_path: Path, make: Make, name: str) -> None:
    path = make(tmp_path / name, {"a.py": "x" * 10_000})
    path.write_bytes(path.read_bytes()[:40])
    assert "damaged" in refused(path, tmp_path)
    path.write_bytes(b"nonsense")
    assert "damaged" in refused(path, tmp_path)


@given(data=st.data())
def test_flipped_byte_never_writes_outside(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("flip")
    make, name = data.draw(st.sampled_from(MAKERS))
    path = make(place / name, {"flow.py": "x" * 50, "lib/a.py": "y"})
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    try:
        stage_package(path, place / "out")
    except PackageError:
        assert [p.name for p in place.iterdir()] == [name]
    else:
        assert sorted(p.name for p in place.iterdir()) == sorted([name, "out"])


def test_links_in_a_folder_are_rejected(tmp_path: Path) -> None:
    source = tmp_path / "project"
    source.mkdir()
    (source / "passwd").symlink_to("/etc/passwd")
    assert "is a symbolic link, which is not shipped" in refused(source, tmp_path)
    (source / "passwd").unlink()
    os.mkfifo(source / "pipe")
    assert "neither a file nor a folder" in refused(source, tmp_path)


def test_empty_or_unsupported_source_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds no files" in refused(tmp_path / "empty", tmp_path)
    (tmp_path / "notes.txt").write_text("")
    assert "give a .py file, a folder, a .zip or a .tar.gz" in refused(tmp_path / "notes.txt", tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        stage_package(tmp_path / "nothing.zip", tmp_path / "out")


def test_non_empty_destination_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text("")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    assert "is not empty" in refused(tmp_path / "flow.py", tmp_path)

"""A package as one file: the same bytes for the same content, and nothing unsafe comes out of a foreign one."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_control.packaging.archive import ArchiveLimits
from heron_control.packaging.shipping import check_package, digest_of, is_digest, pack_package, unpack_package
from heronry.api.errors import PackageError

NAMES = st.lists(st.text("abcd", min_size=1, max_size=3), min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(NAMES, st.binary(max_size=200), min_size=1, max_size=6).filter(
    lambda tree: not any(a != b and b.startswith(a + "/") for a in tree for b in tree)
)


def write(root: Path, tree: dict[str, bytes]) -> None:
    for name, content in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def read(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@given(TREES)
@settings(max_examples=40)
def test_what_is_sent_arrives_and_has_one_digest(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("ship")
    write(folder / "one", tree)
    write(folder / "two", dict(reversed(tree.items())))
    os.utime(folder / "two" / next(iter(tree)), (1, 1))
    digest = pack_package(folder / "one", folder / "one.tar.gz")
    assert pack_package(folder / "two", folder / "two.tar.gz") == digest == digest_of(folder / "one.tar.gz")
    assert is_digest(digest)
    check_package(folder / "one.tar.gz")
    unpack_package(folder / "one.tar.gz", folder / "back")
    assert read(folder / "back") == tree


def test_requirements_are_sent_as_files_and_compiled_code_is_not(tmp_path: Path) -> None:
    write(tmp_path / "cache", {"lib/__init__.py": b"x = 1\n", "lib/__pycache__/__init__.pyc": b"compiled"})
    write(tmp_path / "package", {"words.py": b"import lib\n"})
    (tmp_path / "package" / "requirements").symlink_to(tmp_path / "cache")
    (tmp_path / "package" / "words.py").chmod(0o755)
    pack_package(tmp_path / "package", tmp_path / "sent.tar.gz")
    unpack_package(tmp_path / "sent.tar.gz", tmp_path / "back")
    assert read(tmp_path / "back") == {"words.py": b"import lib\n", "requirements/lib/__init__.py": b"x = 1\n"}
    assert not (tmp_path / "back" / "requirements").is_symlink()
    assert (tmp_path / "back" / "words.py").stat().st_mode & 0o100


def tar(path: Path, *entries: tarfile.TarInfo, content: bytes = b"") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for entry in entries:
            entry.size = len(content) if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(content))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def bomb(path: Path) -> Path:
    with gzip.open(path, "wb", compresslevel=9) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        big = tarfile.TarInfo("zeros")
        big.size = 64 << 20
        archive.addfile(big, io.BytesIO(bytes(64 << 20)))
    return path


HOSTILE: dict[str, Callable[[Path], Path]] = {
    "leaves by dots": lambda p: tar(p, entry("../../evil.py")),
    "leaves by root": lambda p: tar(p, entry("/etc/evil")),
    "symbolic link": lambda p: tar(p, entry("link", tarfile.SYMTYPE, "/etc/passwd")),
    "hard link": lambda p: tar(p, entry("link", tarfile.LNKTYPE, "/etc/passwd")),
    "device": lambda p: tar(p, entry("null", tarfile.CHRTYPE)),
    "link, then a file through it": lambda p: tar(p, entry("a", tarfile.SYMTYPE, "/tmp"), entry("a/evil.py")),
    "two names of one file": lambda p: tar(p, entry("a.py"), entry("A.py")),
    "bomb": bomb,
    "no archive": lambda p: (p.write_bytes(b"PK\x03\x04 not a tar") and p) or p,
    "cut off": lambda p: (p.write_bytes(gzip.compress(bytes(4096))[:40]) and p) or p,
    "empty": lambda p: tar(p),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_archives_are_refused_and_write_nothing(tmp_path: Path, what: str) -> None:
    archive = HOSTILE[what](tmp_path / "sent.tar.gz")
    limits = ArchiveLimits(files=100, total_bytes=1 << 20, file_bytes=1 << 20)
    with pytest.raises(PackageError):
        check_package(archive, limits)
    with pytest.raises(PackageError):
        unpack_package(archive, tmp_path / "in" / "back", limits)
    assert list((tmp_path / "in").iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "sent.tar.gz"]

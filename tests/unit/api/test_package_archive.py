"""Package archives: reproducible bytes, and safe unpacking of foreign archives."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.packaging import check
from heron_control.packaging.check import check_package_apart
from heron_control.packaging.shipping import LIMITS, check_package, digest_of, is_digest, pack_package, unpack_package
from heron_control.packaging.writer import ArchiveLimits
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
def test_archive_round_trips_with_one_digest(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]) -> None:
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


def raw(path: Path, *blocks: tuple[bytes, int, bytes], content: bytes = b"x = 1") -> Path:
    """Write an archive of these headers (type, stated size, content) and one plain file."""
    with gzip.open(path, "wb", compresslevel=9) as stream:
        for kind, size, data in (*blocks, (tarfile.REGTYPE, len(content), content)):
            header = entry("m.py", kind)
            header.size = size
            stream.write(header.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512))
        stream.write(b"" if content[-1:] == b"\n" else bytes(1024))
    return path


def pax(*texts: str) -> tuple[bytes, int, bytes]:
    """Return a pax header with these short records."""
    records = "".join(f"{len(text) + 4} {text}\n" for text in texts).encode()
    return tarfile.XHDTYPE, len(records), records


LONG = (tarfile.GNUTYPE_LONGNAME, 5, b"n.py\0")
HOSTILE: dict[str, Callable[[Path], Path]] = {
    "leaves by dots": lambda p: tar(p, entry("../../evil.py")),
    "leaves by root": lambda p: tar(p, entry("/etc/evil")),
    "symbolic link": lambda p: tar(p, entry("link", tarfile.SYMTYPE, "/etc/passwd")),
    "hard link": lambda p: tar(p, entry("link", tarfile.LNKTYPE, "/etc/passwd")),
    "device": lambda p: tar(p, entry("null", tarfile.CHRTYPE)),
    "link, then a file through it": lambda p: tar(p, entry("a", tarfile.SYMTYPE, "/tmp"), entry("a/evil.py")),
    "two names of one file": lambda p: tar(p, entry("a.py"), entry("A.py")),
    "bomb": bomb,
    "150 chained headers of 7 MiB": lambda p: raw(p, *[(tarfile.GNUTYPE_LONGNAME, 7 << 20, bytes(7 << 20))] * 150),
    "a chain of short headers": lambda p: raw(p, *[LONG] * 2000),
    "a chain of pax headers": lambda p: raw(p, *[pax("comment=b")] * 9),
    "headers for all entries": lambda p: raw(p, *[(tarfile.XGLTYPE, 40_000, bytes(40_000)), LONG] * 2),
    "a negative size": lambda p: raw(p, (tarfile.REGTYPE, -512, b"")),
    "a negative size of a folder": lambda p: raw(p, (tarfile.DIRTYPE, -512, b"")),
    "a negative size by a pax record": lambda p: raw(p, pax("size=-1024")),
    "a long part of a name": lambda p: tar(p, entry("a/" + "b" * 256 + "/c.py")),
    "a long part in UTF-8": lambda p: tar(p, entry("é" * 128)),
    "no archive": lambda p: (p.write_bytes(b"PK\x03\x04 not a tar") and p) or p,
    "cut off": lambda p: (p.write_bytes(gzip.compress(bytes(4096))[:40]) and p) or p,
    "empty": lambda p: tar(p),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_archive_is_rejected_and_writes_nothing(tmp_path: Path, what: str) -> None:
    archive = HOSTILE[what](tmp_path / "sent.tar.gz")
    limits = ArchiveLimits(files=100, total_bytes=1 << 20, file_bytes=1 << 20)
    with pytest.raises(PackageError):
        check_package(archive, limits)
    with pytest.raises(PackageError):
        unpack_package(archive, tmp_path / "in" / "back", limits)
    assert list((tmp_path / "in").iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "sent.tar.gz"]


def test_longest_valid_name_is_accepted(tmp_path: Path) -> None:
    archive = tar(tmp_path / "sent.tar.gz", entry("b" * 255 + "/" + "é" * 127))
    check_package(archive)
    unpack_package(archive, tmp_path / "back")
    assert [p.name for p in (tmp_path / "back").iterdir()] == ["b" * 255]


def test_separate_check_process_gives_the_same_result(tmp_path: Path) -> None:
    check_package_apart(tar(tmp_path / "good.tar.gz", entry("m.py")), LIMITS)
    with pytest.raises(PackageError, match="link or a device"):
        check_package_apart(HOSTILE["device"](tmp_path / "bad.tar.gz"), LIMITS)
    with pytest.raises(PackageError, match="more than 8 headers"):
        check_package_apart(HOSTILE["a chain of short headers"](tmp_path / "chain.tar.gz"), LIMITS)
    with pytest.raises(OSError, match="No such file"):
        check_package_apart(tmp_path / "nothing.tar.gz", LIMITS)


@pytest.mark.parametrize(
    ("bound", "code", "words"),
    [
        ("AS", "[bytes(1 << 20) for _ in iter(int, 1)]", "more memory"),
        ("CPU", "all(x for x in iter(lambda: True, False))", "more than 1 s"),
    ],
)
def test_separate_check_process_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, code: str, words: str
) -> None:
    """If the archive reader runs away, the checking process ends and the package is blamed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'heron_control.packaging.check' in sys.orig_argv:\n"
        "    import heron_control.packaging.archive as a\n    a.bounded_header = lambda _: " + code + "\n"
        "    import resource as r; before = r.setrlimit\n"
        "    r.setrlimit = lambda which, _: before(which, {r.RLIMIT_AS: (1 << 28,) * 2, r.RLIMIT_CPU: (1, 1)}[which])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(check, "CPU_SECONDS", 1)
    with pytest.raises(PackageError, match=words):
        check_package_apart(tar(tmp_path / "good.tar.gz", entry("m.py")), LIMITS)

"""Logs extracted from an untrusted tar: only plain files of the folder, bounded in size."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_control.schedulers.docker_logs import save


def tar_of(*entries: tuple[str, bytes, bytes]) -> bytes:
    """Build a tar of (name, type, content or link target)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind == tarfile.REGTYPE:
                entry.size = len(content)
            else:
                entry.linkname = content.decode()
            archive.addfile(entry, io.BytesIO(content) if kind == tarfile.REGTYPE else None)
    return made.getvalue()


def in_pieces(content: bytes, size: int) -> Iterator[bytes]:
    """Split the content as an engine does, including empty pieces."""
    for start in range(0, len(content), size):
        yield content[start : start + size]
        yield b""


FILES = {"heron_container-1.log": b"began\n" * 3000, "container_1_words_1.log.1": b"older\n", "empty.log": b""}


@pytest.mark.parametrize("size", [1000, 8192, 1 << 20])
def test_every_log_is_saved_byte_for_byte(tmp_path: Path, size: int) -> None:
    entries = [(f"log-files/{name}", tarfile.REGTYPE, content) for name, content in FILES.items()]
    archive = tar_of(("log-files", tarfile.DIRTYPE, b""), *entries)
    target = tmp_path / "kept" / "log-files"
    assert save(in_pieces(archive, size), target) == len(FILES)
    assert {p.name: p.read_bytes() for p in target.iterdir()} == FILES
    assert {p.stat().st_mode & 0o777 for p in target.iterdir()} == {0o600}
    assert save(in_pieces(archive, size), target) == len(FILES), "a kill that is repeated"
    assert {p.name: p.read_bytes() for p in target.iterdir()} == FILES


def test_only_plain_files_of_the_folder_are_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    target = tmp_path / "kept"
    target.mkdir()
    (target / "linked.log").symlink_to(outside)  # does not occur; a link would be replaced, not followed
    refused = [
        ("log-files/../outside", tarfile.REGTYPE, b"evil"),
        ("log-files//etc/passwd", tarfile.REGTYPE, b"evil"),
        ("/outside", tarfile.REGTYPE, b"evil"),
        ("log-files/deep/a.log", tarfile.REGTYPE, b"evil"),
        ("log-files/.hidden", tarfile.REGTYPE, b"evil"),
        ("log-files/new\nline.log", tarfile.REGTYPE, b"evil"),
        ("log-files/soft.log", tarfile.SYMTYPE, b"../outside"),
        ("log-files/hard.log", tarfile.LNKTYPE, b"log-files/a.log"),
        ("log-files/pipe.log", tarfile.FIFOTYPE, b""),
        ("log-files/disk.log", tarfile.BLKTYPE, b""),
    ]
    good = [("log-files/linked.log", tarfile.REGTYPE, b"a log"), ("log-files/a.log", tarfile.REGTYPE, b"another")]
    assert save(in_pieces(tar_of(*refused, *good), 4096), target) == 2
    assert {p.name: p.read_bytes() for p in target.iterdir()} == {"linked.log": b"a log", "a.log": b"another"}
    assert not (target / "linked.log").is_symlink()
    assert outside.read_bytes() == b"mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "outside"]
    assert sum("is not a log file" in message for message in caplog.messages) == len(refused)


def test_total_size_is_bounded_and_cuts_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entries = [(f"log-files/{n}.log", tarfile.REGTYPE, bytes([n]) * 4000) for n in range(4)]
    assert save(in_pieces(tar_of(*entries), 4096), tmp_path, max_bytes=10_000) == 3
    assert [(tmp_path / f"{n}.log").stat().st_size for n in range(3)] == [4000, 4000, 2000]
    assert "2.log is cut after 2000 bytes" in caplog.text
    assert "3.log is not kept" in caplog.text


def test_missing_folder_is_accepted(tmp_path: Path) -> None:
    assert save(iter(()), tmp_path / "kept") == 0
    assert not (tmp_path / "kept").exists()

"""Log access confined to the log folder: a corpus of known path escapes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_container.shell.service import MAX_READ_BYTES, InvalidLogPath, LogFileNotFound, list_files, read_file

SECRET = b"a secret that must not be served"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "log-files"
    (root / "old").mkdir(parents=True)
    (root / "a.log").write_bytes(b"0123456789")
    (root / "old" / "b.log").write_bytes(b"older")
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "log-files-of-another").mkdir()
    (tmp_path / "log-files-of-another" / "secret").write_bytes(SECRET)
    (root / "link.log").symlink_to(tmp_path / "secret")
    (root / "relative.log").symlink_to("../secret")
    (root / "inside.log").symlink_to("a.log")
    (root / "up").symlink_to(tmp_path)
    (root / "chain").symlink_to("up")
    os.link(tmp_path / "secret", root / "hard.log")
    os.mkfifo(root / "fifo.log")
    (root / "proc").symlink_to("/proc/self/root")
    return root


CORPUS = [
    "../secret", "..", "../", "./../secret", "old/../../secret", "old/../a.log", "//etc/passwd", "/etc/passwd",
    "/proc/self/environ", "link.log", "relative.log", "inside.log", "up/secret", "chain/secret", "hard.log", "fifo.log",
    "proc/etc/passwd", "%2e%2e/secret", "..%2fsecret", "%252e%252e%252fsecret", "..%c0%afsecret", "..\\secret",
    "..\u2215secret", "\uff0e\uff0e/secret", "a.log\0", "a.log\0.txt", "\0", "../log-files-of-another/secret",
    "....//secret", "..;/secret", "old", "", ".", "a.log/", "a.log/../../secret", "old/", "~/secret", "$HOME",
    "file:///etc/passwd", "a" * 300, "x/" * 600, "\ud800", "-", "a.log\n", " a.log",
]  # fmt: skip


@pytest.mark.parametrize("path", CORPUS)
def test_file_outside_is_never_read(root: Path, path: str) -> None:
    if path == "a.log/":
        assert read_file(root, path, 0, 100).data == b"0123456789"  # a harmless spelling of a log file
        return
    with pytest.raises((InvalidLogPath, LogFileNotFound)):
        read_file(root, path, 0, 100)


@pytest.mark.parametrize("path", [p for p in CORPUS if p not in ("", ".", "old", "old/")])
def test_folder_outside_is_never_listed(root: Path, path: str) -> None:
    with pytest.raises((InvalidLogPath, LogFileNotFound)):
        list_files(root, path)


@given(st.lists(st.sampled_from(["..", ".", "", "old", "a.log", "up", "link.log", "/", "\\", "%2e%2e"]), max_size=8))
def test_path_combination_never_leaves_the_folder(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    root = tmp_path_factory.getbasetemp() / "shared" / "log-files"
    if not root.exists():
        (root / "old").mkdir(parents=True)
        (root / "a.log").write_bytes(b"fine")
        (root.parent / "secret").write_bytes(SECRET)
        (root / "up").symlink_to("..")
        (root / "link.log").symlink_to("../secret")
    try:
        assert read_file(root, "/".join(parts), 0, 1000).data == b"fine"
    except (InvalidLogPath, LogFileNotFound):
        pass


def test_listing_shows_log_files_and_folders_only(root: Path) -> None:
    (root / os.fsdecode(b"bad\xff.log")).write_bytes(b"")
    assert [(f.path, f.size_bytes, f.folder) for f in list_files(root, "")] == [("a.log", 10, False), ("old", 0, True)]
    assert [f.path for f in list_files(root, "old")] == ["old/b.log"]
    assert list_files(root, "./old//")[0].path == "old/b.log"


@pytest.mark.parametrize(
    ("offset", "length", "begin", "data"),
    [(0, 4, 0, b"0123"), (8, 100, 8, b"89"), (10, 5, 10, b""), (99, 5, 10, b""), (-3, 2, 7, b"78"), (-99, 3, 0, b"012"),
     (0, 0, 0, b"")],
)  # fmt: skip
def test_part_of_a_file_is_read(root: Path, offset: int, length: int, begin: int, data: bytes) -> None:
    part = read_file(root, "a.log", offset, length)
    assert (part.offset, part.data, part.size_bytes) == (begin, data, 10)


def test_reads_are_bounded(root: Path) -> None:
    (root / "big.log").write_bytes(b"x" * (MAX_READ_BYTES + 5))
    assert len(read_file(root, "big.log", 0, 2**62).data) == MAX_READ_BYTES
    with pytest.raises(InvalidLogPath):
        read_file(root, "big.log", 0, -1)


def test_missing_log_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LogFileNotFound):
        list_files(tmp_path / "none", "")

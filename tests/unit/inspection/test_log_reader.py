"""Tail of a log, and appended lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.inspection import log_reader
from heron_control.inspection.log_reader import CHUNK_BYTES, Follower, read_local, tail
from heron_runtime.wire.container import FileData


def reader_of(data: bytes) -> log_reader.Reader:
    def read(path: str, offset: int, length: int) -> FileData:
        start = min(max(len(data) + offset, 0) if offset < 0 else offset, len(data))
        return FileData(start, data[start : start + length], len(data))

    return read


@given(data=st.text("ab\n", max_size=200).map(str.encode), lines=st.integers(0, 12), chunk=st.integers(1, 9))
def test_tail_returns_the_last_lines(data: bytes, lines: int, chunk: int) -> None:
    before = log_reader.CHUNK_BYTES
    log_reader.CHUNK_BYTES = chunk
    try:
        found, end = tail(reader_of(data), "x", lines)
    finally:
        log_reader.CHUNK_BYTES = before
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert end == len(data)
    assert found.split(b"\n") == ([*expected[-lines:], b""] if data.endswith(b"\n") else expected[-lines:]) or (
        found == b"" and (not lines or not data)
    )


def test_large_file_is_read_from_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"".join(b"line %d\n" % n for n in range(50_000)))
    data, end = tail(read_local(tmp_path), "a.log", 20_000)
    assert data.splitlines()[0] == b"line 30000"
    assert data.splitlines()[-1] == b"line 49999"
    assert end == (tmp_path / "a.log").stat().st_size


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "link", "folder", "none", "a/../../secret", "a\0b", "loop"]
)
def test_path_cannot_leave_the_log_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    logs = tmp_path / "logs"
    (logs / "folder").mkdir(parents=True)
    (logs / "link").symlink_to(tmp_path / "secret")
    (logs / "loop").symlink_to("loop")
    with pytest.raises(FileNotFoundError):
        read_local(logs)(path, 0, 100)


def test_follower_returns_complete_lines_once(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"old\n")
    follower = Follower(read_local(tmp_path), "a.log", 4)
    assert follower.lines() == []
    with file.open("ab") as log:
        log.write(b"one\ntw")
        log.flush()
        assert follower.lines() == [b"one"]
        log.write(b"o\n")
        log.flush()
        assert follower.lines() == [b"two"]
    assert follower.lines() == []


def test_follower_survives_rotation_and_waits_for_a_missing_file(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    follower = Follower(read_local(tmp_path), "a.log", 0)
    assert follower.lines() == []
    file.write_bytes(b"a long first line\n")
    assert follower.lines() == [b"a long first line"]
    file.rename(tmp_path / "a.log.1")
    file.write_bytes(b"new\n")
    assert follower.lines() == [b"new"]


def test_line_without_end_is_returned_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"x" * (3 * CHUNK_BYTES))
    follower = Follower(read_local(tmp_path), "a.log", 0)
    shown = b"".join(b"".join(follower.lines()) for _ in range(5))
    assert set(shown) == {ord("x")}
    assert len(shown) >= 2 * CHUNK_BYTES

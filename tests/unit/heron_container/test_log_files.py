"""Logs of child processes: complete lines, rotation, and dropped lines that are counted and never block."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_container.shell.logs import CHUNK_BYTES, LAST_LINES, LINE_BYTES, LastLines, LogPipe, LogWriter
from heron_control.schedulers.log_files import RotatingFile
from tests.support.waiting import wait_until


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    made = LogWriter(tmp_path, 1000, 2, queue_bytes=10_000)
    yield made
    made.close()


def test_files_rotate_and_a_limited_number_is_kept(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", 100, 3)
    for number in range(50):
        assert file.write(b"%03d %s\n" % (number, b"x" * 45))
    file.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2", "a.log.3"]
    assert all(p.stat().st_size <= 100 for p in tmp_path.iterdir())
    assert (tmp_path / "a.log").read_bytes().endswith(b"049 " + b"x" * 45 + b"\n")
    assert (tmp_path / "a.log.3").read_bytes().startswith(b"042")
    again = RotatingFile(tmp_path / "a.log", 100, 3)  # a restart continues the file
    again.write(b"y" * 60)
    again.close()
    assert (tmp_path / "a.log").read_bytes() == b"y" * 60


async def test_output_of_a_child_arrives_in_its_file(tmp_path: Path, writer: LogWriter) -> None:
    lines = LastLines()
    pipe = LogPipe("child", lines, writer)
    os.write(pipe.write_end, b"one\ntwo\nhalf")
    pipe.drain_and_close()
    assert lines.lines() == ("one", "two", "half")
    assert lines.last() == "half"
    file = tmp_path / "child.log"
    wait_until(lambda: file.exists() and file.read_bytes() == b"one\ntwo\nhalf", "the lines to be in the file")


async def test_end_of_file_closes_the_pipe(writer: LogWriter) -> None:
    before = len(os.listdir("/proc/self/fd"))
    pipe = LogPipe("child", LastLines(), writer)
    pipe.close_write_end()
    for _ in range(100):
        await asyncio.sleep(0.01)
        if len(os.listdir("/proc/self/fd")) == before:
            break
    assert len(os.listdir("/proc/self/fd")) == before
    pipe.drain_and_close()


def test_lines_dropped_on_a_full_disk_are_counted_and_logged(tmp_path: Path, writer: LogWriter) -> None:
    folder = tmp_path / "child.log"
    folder.mkdir()  # blocks writes, like a full disk
    writer.put("child", b"lost 1\nlost 2\n")
    wait_until(lambda: writer.dropped_lines == 2, "two lines to be dropped")
    folder.rmdir()
    writer.put("child", b"kept\n")
    wait_until(lambda: folder.exists() and b"kept" in folder.read_bytes(), "a later line to be in the file")
    assert folder.read_bytes() == b"heron_container: 2 log lines were dropped here (disk full or slow)\nkept\n"
    assert writer.dropped_lines == 2


def test_partial_write_does_not_block(tmp_path: Path) -> None:
    """Uses a real limit on file sizes: the kernel rejects everything beyond it."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, old[1]))
        file = RotatingFile(tmp_path / "a.log", 10_000, 1)
        results = [file.write(b"x" * 99 + b"\n") for _ in range(8)]
        file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert results == [True] * 5 + [False] * 3


def test_queued_output_is_bounded(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 1 << 20, 1, queue_bytes=10 * (100 + CHUNK_BYTES))
    with writer._changed:  # the thread cannot take anything, like a disk that hangs
        for _ in range(100):
            writer.put("child", b"x" * 99 + b"\n")
        assert writer._queued <= 10 * (100 + CHUNK_BYTES)
    writer.close()
    assert writer.dropped_lines == 90
    assert (tmp_path / "child.log").stat().st_size >= 1000


@given(st.lists(st.binary(max_size=200) | st.just(b"\n" * 120) | st.just(b"z" * 5000), max_size=20))
def test_last_lines_are_kept_for_any_chunks(chunks: list[bytes]) -> None:
    lines = LastLines()
    for chunk in chunks:
        lines.add(chunk)
    found = lines.lines()
    assert len(found) <= LAST_LINES + 1
    whole = b"".join(chunks).split(b"\n")
    expected = whole if whole[-1] else whole[:-1]
    short = [line for line in expected[-LAST_LINES:] if len(line) <= LINE_BYTES]
    if len(short) == len(expected[-LAST_LINES:]):
        assert list(found)[-len(short) :] == [line.decode(errors="replace") for line in short] or not short
    assert all(len(line.encode()) <= 3 * LINE_BYTES for line in found)


def test_process_rotates_its_own_output_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "own.log"
    read, write = os.pipe()
    child = os.posix_spawn(
        "/proc/self/exe", ["python", "-c", OWN, str(path)], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)]
    )
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(read)
    assert (tmp_path / "own.log.1").read_text() == "first " * 30 + "\n"
    assert path.read_text() == "second\n"


OWN = """
import os, sys
from pathlib import Path
from heron_control.schedulers.log_files import OwnLog
log = OwnLog(Path(sys.argv[1]), 100, 2)
log.take()
log.rotate_if_large()
os.write(2, b"first " * 30 + b"\\n")
log.rotate_if_large()
os.write(1, b"second\\n")
"""

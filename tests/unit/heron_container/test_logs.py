"""Logs of child processes: whole lines, rotation, counted losses, and access confined to the log folder."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_container.shell.logs import CHUNK_BYTES, LAST_LINES, LINE_BYTES, LastLines, LogPipe, LogWriter
from heron_container.shell.service import MAX_READ_BYTES, InvalidLogPath, LogFileNotFound, list_files, read_file
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


WRITERS = {
    "log": "file = RotatingFile(path, 10**6, 2)\ndef put(data):\n    return file.write(data)",
    "metrics": (
        "def put(data):\n    try:\n        append(path, data, 10**6)\n    except OSError:\n        return False\n"
        "    return True"
    ),
}
# The kernel accepts 100 bytes of a file and no more, like a full disk: a short write, then an error.
PROGRAM = """
import resource, sys
from pathlib import Path
from heron_control.schedulers.log_files import RotatingFile
from metrics_manager.sinks.jsonlines import append
path = Path(sys.argv[1])
{writer}
free, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))
taken = [put(b'{{"n": %d, "text": "%s"}}\\n' % (n, b"x" * 40)) for n in range(4)]
resource.setrlimit(resource.RLIMIT_FSIZE, (free, most))
print(taken, put(b'{{"n": 4}}\\n'))
"""


@pytest.mark.parametrize("writer", WRITERS)
def test_line_is_written_whole_or_not_at_all(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    program = PROGRAM.format(writer=WRITERS[writer])
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[True, False, False, False] True"
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [0, 4]


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

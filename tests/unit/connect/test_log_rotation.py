"""Log files rotated while being read: each line is read once, by any task, also across restarts."""

from __future__ import annotations

import gzip
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heron_instance.core.state.task_state import SplitPositions
from heronry.connect import files
from heronry.connect.files import FileLines
from heronry.testing import Recorder
from tests.support.connectors import TaskPlace


class Readers:
    """All tasks of a source. ``restart`` starts them again from the state of a checkpoint."""

    def __init__(self, folder: Path, tasks: int, restarts: bool) -> None:
        self.folder, self.tasks, self.restarts = folder, tuple(range(1, tasks + 1)), restarts
        self.came: Counter[str] = Counter()
        self.positions: list[tuple[str, Any]] = []
        self.start()

    def start(self) -> None:
        self.spouts = []
        for task in self.tasks:
            spout = FileLines()
            recorder = Recorder.attach(spout)
            spout.keyed = SplitPositions(task, self.tasks, spout.splits)
            spout.keyed.load(self.positions)
            spout.initialize(
                {"user.files.folder": str(self.folder)}, TaskPlace(tasks=self.tasks, task=task, source=("x",))
            )
            self.spouts.append((spout, recorder))

    def read(self) -> None:
        """Read until nothing arrives, then optionally restart from a checkpoint."""
        for _ in range(4):
            for spout, _ in self.spouts:
                for _ in range(8):
                    spout.next_tuple()
        for _, recorder in self.spouts:
            self.came.update(line for (line,) in recorder.values())
            recorder.emitted.clear()
        if self.restarts:
            for spout, _ in self.spouts:
                spout.pre_save("1")
            self.positions = [entry for spout, _ in self.spouts for entry in spout.keyed.taken()]
            self.start()


class Log:
    """``app.log`` with distinct lines."""

    def __init__(self, folder: Path) -> None:
        self.path, self.written = folder / "app.log", list[str]()
        folder.mkdir()

    def write(self, count: int) -> None:
        with self.path.open("a") as file:
            for _ in range(count):
                self.written.append(f"line {len(self.written)}")
                file.write(self.written[-1] + "\n")

    def shift(self) -> None:
        for number in (3, 2, 1):
            for ending in ("", ".gz"):
                old = self.path.with_name(f"app.log.{number}{ending}")
                if old.exists():
                    old.rename(self.path.with_name(f"app.log.{number + 1}{ending}"))


def rename(log: Log) -> None:
    log.shift()
    log.path.rename(log.path.with_name("app.log.1"))


def copy_and_truncate(log: Log) -> None:
    log.shift()
    shutil.copyfile(log.path, log.path.with_name("app.log.1"))
    os.truncate(log.path, 0)


def compress_the_last(log: Log) -> None:
    last = log.path.with_name("app.log.1")
    if last.exists():
        data = last.read_bytes()
        log.shift()
        log.path.with_name("app.log.2.gz").write_bytes(gzip.compress(data))
        log.path.with_name("app.log.2").unlink()
    log.path.rename(log.path.with_name("app.log.1"))


@pytest.fixture(autouse=True)
def look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LIST_EACH_SECONDS", 0)
    monkeypatch.setattr(files, "LIST_SHARE", 0)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("rotate", [rename, copy_and_truncate, compress_the_last])
def test_each_line_is_read_once_across_rotations(
    rotate: Callable[[Log], None], tasks: int, restarts: bool, tmp_path: Path
) -> None:
    log = Log(tmp_path / "in")
    log.write(5)
    readers = Readers(tmp_path / "in", tasks, restarts)
    for size in (40, 3, 300, 1, 90):
        readers.read()
        log.write(2)  # not read before the rotation
        rotate(log)
        readers.read()
        log.write(size)
    readers.read()
    readers.read()
    assert readers.came == Counter(log.written)


def test_rewritten_longer_file_is_read_from_its_start(tmp_path: Path) -> None:
    log = Log(tmp_path / "in")
    log.write(3)
    readers = Readers(tmp_path / "in", 1, restarts=False)
    readers.read()
    log.path.write_text("".join(f"other {n}\n" for n in range(50)))
    readers.read()
    assert sorted(readers.came) == sorted([*log.written, *(f"other {n}" for n in range(50))])
    assert set(readers.came.values()) == {1}


def test_files_with_equal_starts_are_distinct(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.log").write_text("header\none\n")
    readers = Readers(folder, 1, restarts=False)
    readers.read()
    (folder / "b.log").write_text("header\none\ntwo\n")
    readers.read()
    readers.read()
    assert readers.came == Counter({"header": 2, "one": 2, "two": 1})


def test_positions_by_name_of_an_earlier_release_are_used(tmp_path: Path) -> None:
    log = Log(tmp_path / "in")
    log.write(4)
    readers = Readers(tmp_path / "in", 1, restarts=False)
    readers.positions = [("app.log", len("line 0\nline 1\n"))]
    readers.start()
    readers.read()
    assert sorted(readers.came) == ["line 2", "line 3"]

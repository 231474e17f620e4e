"""The file source of streamlets follows files that are rotated while it reads them: each line comes once."""

from __future__ import annotations

import gzip
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heron_instance.core.state.task_state import SplitPositions
from heronry.streamlet import Builder, files
from heronry.streamlet.decoding import Decoder
from heronry.streamlet.online.file_spout import FileSpout
from heronry.streamlet.online.split_times import SplitTimes
from heronry.streamlet.reading import FilePiece
from tests.unit.connect.test_log_rotation import Log, compress_the_last, copy_and_truncate, rename


class Spouts:
    """All tasks of one file source. ``checkpoint`` restarts them from what a checkpoint would hold."""

    def __init__(self, folder: Path, tasks: int = 1, form: str = "text") -> None:
        builder = Builder("rotation")
        builder.source(files(folder, form, grows=True), name="lines").log()  # type: ignore[arg-type]
        (self.step,) = builder.build().sources()
        self.decoder = Decoder(self.step.source)  # type: ignore[arg-type]
        self.tasks = tuple(range(1, tasks + 1))
        self.came: Counter[Any] = Counter()
        self.numbers: list[int] = []
        self.places: set[tuple[str, int]] = set()
        self.states: dict[int, dict[Any, Any]] = {task: {} for task in self.tasks}
        self.start([])

    def start(self, positions: list[tuple[str, Any]]) -> None:
        self.spouts = []
        for task in self.tasks:
            spout = FileSpout()
            spout.step, spout.state = self.step, self.states[task]
            spout.clock = itertools.count(1000, 1000).__next__  # type: ignore[method-assign,assignment]
            spout.split_times = SplitTimes(1.0)
            spout.keyed = SplitPositions(task, self.tasks, spout.splits)
            spout.keyed.load(positions)
            spout.open()
            self.spouts.append(spout)

    def read(self) -> None:
        """Read until nothing comes."""
        for _ in range(3):
            for spout in self.spouts:
                for _ in range(8):
                    block = spout.next_block()
                    if block is not None:
                        split, position, (name, first, _, header, data) = block
                        spout.keyed[split] = position
                        found = self.decoder.decode(name, FilePiece(first, header, data, 0, 0))
                        self.came.update(map(str, found.records))
                        self.numbers += found.numbers
                        self.places |= {(name, number) for number in found.numbers}

    def checkpoint(self) -> None:
        for spout in self.spouts:
            spout.pre_save("1")
        positions = [entry for spout in self.spouts for entry in spout.keyed.taken()]
        for spout in self.spouts:
            spout.close()
        self.start(positions)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("rotate", [rename, copy_and_truncate, compress_the_last])
def test_each_line_comes_once_over_rotations(
    rotate: Callable[[Log], None], tasks: int, restarts: bool, tmp_path: Path
) -> None:
    log = Log(tmp_path / "in")
    log.write(5)
    spouts = Spouts(tmp_path / "in", tasks)
    for size in (40, 3, 300, 1, 90):
        spouts.read()
        log.write(2)  # not read before it is rotated
        rotate(log)
        spouts.read()
        if restarts:
            spouts.checkpoint()
        log.write(size)
    spouts.read()
    assert spouts.came == Counter(log.written)
    assert len(spouts.places) == len(log.written), "no two records have one place"


def test_places_are_unique_when_all_rotations_fall_into_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    log = Log(tmp_path / "in")
    spouts = Spouts(tmp_path / "in")
    for _ in range(6):
        log.write(2)
        spouts.read()
        rename(log)
    assert spouts.came == Counter(log.written)
    assert len(spouts.places) == len(log.written)


def test_a_file_that_is_rewritten_longer_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = Log(tmp_path / "in")
    log.write(3)
    spouts = Spouts(tmp_path / "in")
    spouts.read()
    others = [f"other {n}" for n in range(50)]
    log.path.write_text("".join(f"{line}\n" for line in others))
    spouts.read()
    assert spouts.came == Counter([*log.written, *others])


def test_a_renamed_file_keeps_the_numbers_of_its_lines(tmp_path: Path) -> None:
    log = Log(tmp_path / "in")
    log.write(3)
    spouts = Spouts(tmp_path / "in")
    spouts.read()
    rename(log)
    with log.path.with_name("app.log.1").open("a") as file:
        file.write("last\n")
    spouts.read()
    assert spouts.numbers == [0, 1, 2, 3]


def test_a_compressed_file_that_was_not_read_before_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "old.gz").write_bytes(gzip.compress(b"a\nb\n"))
    spouts = Spouts(tmp_path / "in")
    spouts.read()
    os.rename(tmp_path / "in" / "old.gz", tmp_path / "in" / "older.gz")
    spouts.read()
    spouts.checkpoint()
    spouts.read()
    assert spouts.came == Counter("ab")


def test_positions_by_name_of_an_earlier_version_go_on(tmp_path: Path) -> None:
    log = Log(tmp_path / "in")
    log.write(4)
    spouts = Spouts(tmp_path / "in")
    spouts.start([("app.log", (len("line 0\nline 1\n"), 2, False, ""))])
    spouts.read()
    assert spouts.came == Counter(["line 2", "line 3"])
    rename(log)
    log.write(1)
    spouts.read()
    assert spouts.came == Counter(["line 2", "line 3", "line 4"])

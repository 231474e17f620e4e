"""Files that micro-batches append to a result: each record once, whichever step a driver dies at."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.planner import plan
from data_pipeline.core.portions import digest
from heronry.streamlet import Builder, files, sequence, to_files, to_table

pytest.importorskip("pyspark")

from data_pipeline.core.stream_sinks import appended, appended_files, describe_sinks
from data_pipeline.shell.appended_files import AppendedFiles
from data_pipeline.shell.output import OutputExists, place_of
from data_pipeline.shell.portions import FILES, Portions
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request, Streaming
from data_pipeline.shell.resolved_request import resolve_request


class Killed(Exception):
    """Death of the driver."""


class Driver:
    """Stub of Spark that reads one file for each micro-batch, and repeats the last one it has not recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.arrived = self.done = 0
        (folder / "in").mkdir()
        builder = Builder("lines")
        builder.source(files(folder / "in", "text"), name="lines").sink(to_files("/nowhere"), name="kept")
        self.loaded = Loaded(builder.build(), ())

    def run(self, *, replace: bool = False) -> None:
        request = Request(
            Path("p.py"), output_path=str(self.out), streaming=Streaming(str(self.folder / "checkpoint")),
            replace=replace,
        )  # fmt: skip
        resolved = resolve_request(request, self.loaded)
        result, found = AppendedFiles(None, resolved), plan(self.loaded.program)
        portions = Portions(None, request.checkpoint, found, appended(found), bool, pytest.fail, result)
        portions.settle()
        for number in range(self.done, self.arrived):

            def fill(place: str, _: Any, number: int = number) -> tuple[dict[str, Any], dict[str, Any]]:
                return {FILES: result.stage(lambda folder: self.write(folder, number))}, {}

            portions.write(number, digest([("lines", str(number))]), fill)
            self.done += 1
        result.describe({"outputs": result.steps, "checkpoint": request.checkpoint})

    def write(self, folder: str, number: int) -> None:
        work = place_of(folder)
        assert work is not None
        (work / "kept").mkdir(parents=True)
        for part in range(2):
            (work / "kept" / f"part-{part}-{secrets.token_hex(4)}.txt").write_text(f"{number} {part}\n")
        (work / "kept" / "part-9.txt").touch()  # a task without records
        (work / "kept" / "_SUCCESS").touch()

    def records(self) -> Counter[str]:
        return Counter(line for path in self.out.glob("kept/*") for line in path.read_text().splitlines())

    def expected(self) -> Counter[str]:
        return Counter(f"{number} {part}" for number in range(self.arrived) for part in range(2))


@pytest.mark.parametrize("after", [False, True])
def test_each_record_is_in_the_result_once_whichever_rename_a_driver_dies_at(
    tmp_path: Path, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 0

    def dying(call: Any) -> Any:
        def rename(*arguments: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not after:
                raise Killed
            call(*arguments)
            if left == 0:
                raise Killed

        return rename

    monkeypatch.setattr(os, "rename", dying(os.rename))
    monkeypatch.setattr(os, "replace", dying(os.replace))
    for step in range(1, 50):
        (tmp_path / str(step)).mkdir()
        driver = Driver(tmp_path / str(step))
        driver.arrived, left = 1, -1
        driver.run()
        driver.arrived, left = 3, step
        try:
            driver.run()
        except Killed:
            assert driver.records() <= driver.expected(), "nothing is seen twice"
            left = -1
            driver.run()
            assert driver.records() == driver.expected()
            assert {path.name for path in driver.folder.iterdir()} == {"in", "out", "checkpoint"}, "no leftover"
        else:
            return
    raise AssertionError("more steps than were tried")


def test_files_of_earlier_micro_batches_do_not_change(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.arrived = 2
    driver.run()
    before = {path.name: path.stat() for path in driver.out.glob("kept/*")}
    driver.arrived = 4
    driver.run()
    after = {path.name: path.stat() for path in driver.out.glob("kept/*")}
    assert before.items() <= after.items()
    assert {name.rpartition(".")[2] for name in after} == {"json"}
    assert not list((tmp_path / "checkpoint").rglob("part-*")), "the checkpoint keeps no copy"


def test_result_that_lacks_what_was_appended_is_refused(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.arrived = 2
    driver.run()
    driver.out.rename(tmp_path / "elsewhere")
    with pytest.raises(CannotPlan, match=r"lacks the files that earlier micro-batches .* bring its folder back"):
        driver.run()
    (tmp_path / "elsewhere").rename(driver.out)
    driver.run()
    assert driver.records() == driver.expected()


def test_stream_that_begins_again_does_not_append_to_its_former_result(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.arrived = 2
    driver.run()
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    driver.done = 0
    with pytest.raises(OutputExists):
        driver.run()
    driver.run(replace=True)
    assert driver.records() == driver.expected()


def test_only_programs_without_reducers_append_files() -> None:
    def planned(reducer: bool = False, other: bool = False, server: bool = False) -> Any:
        builder = Builder("p")
        lines = builder.source(files("/in", "text"), name="lines")
        lines.sink(to_files("/out"), name="kept")
        if reducer:
            lines.key_by().count_by_key().sink(to_files("/counts"), name="counts")
        if other:
            builder.source(sequence(5)).sink(to_files("/numbers"), name="numbers")
        if server:
            lines.map(lambda line: {"n": line}).sink(to_table("host=h", "t", ["n"]), name="table")
        return plan(builder.build())

    assert [output.step for output in appended_files(planned())] == ["kept"]
    assert [output.step for output in appended_files(planned(server=True))] == ["kept"]
    assert sorted(output.step for output in appended(planned(server=True))) == ["kept", "table"]
    assert not appended_files(planned(reducer=True))
    assert not appended_files(planned(other=True)), "which is written again with each result"
    assert any("kept: each micro-batch appends its files to OUTPUT" in line for line in describe_sinks(planned()))

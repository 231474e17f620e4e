"""Staged output: missing prepared output is distinguished from committed output."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronry.connect.marks import Marks, OutputIsGone
from heronry.streamlet import Builder, sequence, to_files
from heronry.streamlet.online.stage_bolt import StageBolt
from heronry.streamlet.online.staging import StagingFolder
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable

LIFE = 1_700_000_000_000
# Events for one task's output: a checkpoint with or without data, a commit that dies after the files or after
# the mark, a repeated commit, and a new process.
STEPS = st.lists(st.sampled_from(["write", "nothing", "half", "marked", "again", "restart"]), max_size=20)


def prepared(staging: StagingFolder, number: int, task: int = 7) -> str:
    staging.file(f"{task}-{number}.json").write_text("[]")
    token = f"1-{number}-{task}-ab"
    assert staging.prepare(token)
    return token


@given(STEPS, st.booleans())
def test_repeated_commit_finds_its_mark_and_missing_output_is_detected(steps: list[str], elsewhere: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        staging = StagingFolder(root, "out", 0, 1, LIFE)
        done: list[str] = []
        for number, step in enumerate(steps, 1):
            if step == "restart":
                staging = StagingFolder(root, "out", 0, 1, LIFE)
            elif step == "again" and done:
                staging.commit(done[-1], certain=True)
            elif step != "nothing":
                token = prepared(staging, number)
                if step == "half":  # the files are in place, the folder remains
                    (root / f".out-{token}" / f"7-{number}.json").rename(root / f"7-{number}.json")
                    staging = StagingFolder(root, "out", 0, 1, LIFE)
                staging.commit(token, certain=True)
                if step == "marked":  # the process dies before it reports the commit
                    staging = StagingFolder(root, "out", 0, 1, LIFE)
                done.append(token)
                staging.commit(token, certain=True)
        assert sorted(root.glob("*.json")) == sorted(root / f"7-{token.split('-')[1]}.json" for token in done)
        assert len(list(root.glob(".out-done-*"))) == min(1, len(done))
        assert staging.prepared() == []
        token = prepared(staging, len(steps) + 1)
        if elsewhere:
            staging = StagingFolder(root / "of another host", "out", 0, 1, LIFE)
        else:
            shutil.rmtree(root / f".out-{token}")
        with pytest.raises(OutputIsGone, match=rf"'out': what task 7 has written for checkpoint {len(steps) + 1}"):
            staging.commit(token, certain=True)


def test_marks_belong_to_one_task_and_one_life(tmp_path: Path) -> None:
    first = StagingFolder(tmp_path, "out", 0, 2, LIFE)
    first.commit(prepared(first, 9), certain=True)
    with pytest.raises(OutputIsGone):
        StagingFolder(tmp_path, "out", 1, 2, LIFE).commit("1-9-8-ab", certain=True)
    with pytest.raises(OutputIsGone):
        StagingFolder(tmp_path, "out-x", 0, 2, LIFE).commit("1-9-7-ab", certain=True)
    first.commit("1-8-7-ab", certain=True)
    second = StagingFolder(tmp_path, "out", 0, 2, LIFE + 1)  # another topology of the same name starts
    with pytest.raises(OutputIsGone):
        second.commit("1-8-7-ab", certain=True)
    assert list(tmp_path.glob(".out-done-*")) == []


def test_superseded_mark_is_removed_and_newer_ones_stay(tmp_path: Path) -> None:
    first = StagingFolder(tmp_path, "out", 0, 2, LIFE)
    first.commit(prepared(first, 8), certain=True)
    (older,) = tmp_path.glob(".out-done-*")
    kept = older.with_name("aside")
    older.rename(kept)
    first.commit(prepared(first, 9), certain=True)
    kept.rename(older)  # as left by a death between writing the new mark and removing the old one
    listed = Marks.middles

    def and_another_task_commits(self: Marks) -> Iterator[str]:
        yield from listed(self)
        if (tmp_path / "later").exists():
            (tmp_path / "later").rename(tmp_path / f".out-done-{LIFE}-1-10-7-ab")

    (tmp_path / "later").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Marks, "middles", and_another_task_commits)
        StagingFolder(tmp_path, "out", 1, 2, LIFE)
    left = sorted(path.name for path in tmp_path.glob(".out-done-*"))
    assert left == [f".out-done-{LIFE}-1-10-7-ab", f".out-done-{LIFE}-1-9-7-ab"]


def gone(went: bool) -> None:
    """Let all tasks die before they commit, with the prepared output of one on another host."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        builder = Builder("gone", {"user.streamlet.folder": f"{folder}/own"})
        numbers = builder.source(sequence(400, rate=40), parallelism=1)
        numbers.map(abs, parallelism=2).sink(to_files(folder / "out"), name="out")
        with importable(builder):
            world = OnlineEngine(definition_of(builder), folder, 3)
            with patch.context() as dying:
                dying.setattr(StageBolt, "commit", lambda *_: None)
                while world.last.checkpoint == 0:
                    world.run_on(0.1)
            last = world.plan.tasks_of("abs")[-1]
            (waits,) = (folder / "out").glob(f".out-1-{world.last.checkpoint}-{last}-*")
            shutil.rmtree(waits)
            named = ""
            try:
                if went:
                    world.rescale({"abs": 1})
                else:
                    world.kill(last)
            except OutputIsGone as error:
                named = error.message
            finally:
                world.end()
            assert f"'out': what task {last} has written for checkpoint 1 is not in" in named, "lost without a word"


def test_missing_output_is_named() -> None:
    gone(went=False)


def test_missing_output_of_a_removed_task_is_detected_by_its_successor() -> None:
    gone(went=True)

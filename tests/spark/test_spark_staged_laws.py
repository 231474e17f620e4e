"""Staged records appear in servers exactly once across attempts and driver deaths, in batches and micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_pipeline.core import staged
from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.staged import Journal, Report
from data_pipeline.shell.output import OutputFolder, Place, _Local
from data_pipeline.shell.staged import Staging, clear, settle
from heron_runtime.failures import Interrupted
from heronry.connect.settings import ConnectError
from tests.support.streamlets.staged_engine import (
    LIVES,
    PROGRAM,
    STEPS,
    MemorySink,
    StagedEngine,
    stage_one,
    staged_engine,
)
from tests.support.streamlets.stream_engine import StreamEngine

FATES = st.lists(st.sampled_from(["dies", "staged", "late"]), max_size=2)


@settings(report_multiple_bugs=False)
@given(st.lists(FATES, max_size=3), st.lists(st.integers(1, 60), max_size=4), st.booleans())
@example([["staged"], ["dies"]], [35, 9, 9], False)
@example([["staged"], []], [7], False)  # after some have staged
def test_records_are_seen_once_across_deaths(attempts: list[list[str]], deaths: list[int], early: bool) -> None:
    """The same command repeats until it does not die; then it is rejected."""
    with staged_engine(attempts, deaths) as world:
        until_it_is_done(world, early)
        assert world.server.seen == world.expected
        assert world.command() == "refused"
        if not world.woke:
            assert not any(world.server.staged.values()), "what does not count is still there"
        assert [path.name for path in Path(world.url).parent.iterdir()] == ["out"]


def until_it_is_done(world: StagedEngine, early: bool) -> None:
    """Repeat the command until it succeeds.

    ``early``: an abandoned attempt resumes before the next command, otherwise after the last.
    """
    while world.command() == "died":
        if early:
            world.wake()
    world.wake()


def test_next_command_finishes_the_work_of_a_driver_that_died_after_the_rename() -> None:
    """The driver dies at each of its steps."""
    for step in range(1, 80):
        with staged_engine([["staged"], []], [step]) as world:
            first = world.command()
            there = Path(world.url).exists()
            second = world.command()
            assert second == {True: "settled", False: "written"}[there] or first == "written" or done(world)
            assert world.server.seen == world.expected
            assert not any(world.server.staged.values()), "what does not count is still there"
            if first == "written":
                return
    raise AssertionError("more steps than were tried")


def done(world: StagedEngine) -> bool:
    """Return True if the command died after all visible work was done."""
    return Place(None, world.url).read(staged.SETTLED) is not None


# Broken rules.


def step_of_first_commit() -> int:
    for step in range(1, 80):
        with staged_engine([[], []], [step]) as world:
            world.command()
            if Path(world.url).exists():
                return step + 1
    raise AssertionError("no result")


def test_one_of_two_concurrent_drivers_commits() -> None:
    """The second has committed everything and made the server forget it while the first is at its first token."""
    with staged_engine([[], []], [step_of_first_commit()]) as world:
        assert world.command() == "died"
        place, right, others = Place(None, world.url), MemorySink.commit, []
        world.left = LIVES

        def commit(self: MemorySink, checkpoint: int, token: str) -> None:
            if not others:
                others.append(token)
                assert settle(place) == ["left", "right"]
            right(self, checkpoint, token)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemorySink, "commit", commit)
            assert settle(place) == ["left", "right"]
        assert world.server.seen == world.expected


def test_failure_after_the_rename_keeps_staged_records(monkeypatch: pytest.MonkeyPatch) -> None:
    with staged_engine([[], []], []) as world:
        right = _Local.publish

        def publish(self: Any, *, replace: bool) -> None:
            right(self, replace=replace)
            raise OSError("the disk is gone")

        with monkeypatch.context() as patch:
            patch.setattr(_Local, "publish", publish)
            with pytest.raises(OSError, match="the disk is gone"):
                world.command()
        assert [world.command(), world.command()] == ["settled", "refused"]
        assert world.server.seen == world.expected


@pytest.mark.parametrize(
    ("raised", "told", "said"),
    [
        (KeyboardInterrupt(), Interrupted, "interrupted: .*out has its name, and records in servers are still owed"),
        (ConnectError("it is away"), ConnectError, "step 'left': it is away. .*out has its name.* The same command"),
    ],
)
def test_interrupted_commits_are_owed(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, told: type[Exception], said: str
) -> None:
    with staged_engine([[], []], [step_of_first_commit()]) as world:
        assert world.command() == "died"
        world.left = LIVES

        def broken_off(*_: object) -> None:
            raise raised

        with monkeypatch.context() as patch:
            patch.setattr(MemorySink, "commit", broken_off)
            with pytest.raises(told, match=said):
                settle(Place(None, world.url))
        assert [world.command(), world.command()] == ["settled", "refused"]
        assert world.server.seen == world.expected


def test_failure_before_the_rename_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with staged_engine([["staged"], []], []) as world:
        with monkeypatch.context() as patch:
            patch.setattr(staged, "counted", None)
            with pytest.raises(TypeError):
                world.command()
        assert not any(world.server.staged.values())
        assert list(Path(world.url).parent.iterdir()) == []


def test_records_staged_by_cancelled_tasks_are_discarded() -> None:
    with staged_engine([[]], []) as world:
        looks: list[int] = []

        def at_work() -> bool:
            looks.append(len(looks))
            if len(looks) == 3:
                stage_one(world, staging.journal)
            return len(looks) < 3

        staging = Staging(PROGRAM, world.plan.outputs, at_work)
        with (
            pytest.raises(RuntimeError),
            OutputFolder(None, world.url) as folder,  # type: ignore[arg-type]
            staging.into(folder, pytest.fail),
        ):
            raise RuntimeError
        assert (looks, world.server.staged) == ([0, 1, 2], {})


def test_unavailable_server_discards_staged_records_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder with the journal stays until then."""
    said: list[str] = []
    with staged_engine([["staged"]], []) as world:

        def away(*_: object) -> None:
            raise ConnectError("it is away")

        journal = Staging(PROGRAM, world.plan.outputs, bool).journal
        with monkeypatch.context() as patch:
            patch.setattr(MemorySink, "forget", away)
            assert not clear(journal, said.append)
        assert clear(journal, said.append)
    assert said == [
        "what a run without a result has staged is thrown away by the next run, not now: step 'left': it is away"
    ]


def test_partition_with_two_attempts_is_rejected() -> None:
    journal = Journal("p", "ab", {"s": {}})
    reports = [Report(0, "0-11-0-ab", 1), Report(1, "0-2-0-ab", 1)]
    assert staged.counted(journal, {"s": reports}).tokens == {"s": ("0-2-0-ab", "0-11-0-ab")}
    with pytest.raises(ValueError, match="two attempts of one partition"):
        staged.counted(journal, {"s": [*reports, Report(0, "0-3-0-ab", 1)]})


def test_later_journal_version_is_rejected() -> None:
    with pytest.raises(ValueError, match="its format is 2"):
        Journal.from_json({**Journal("p", "ab", {}).to_json(), "format": 2})


@settings(report_multiple_bugs=False)
@given(
    st.lists(FATES, min_size=1, max_size=3), st.lists(st.integers(1, 90), max_size=5),
    st.lists(st.integers(0, 5), min_size=1, max_size=5), st.booleans(),
)  # fmt: skip
@example([["staged"], []], [40, 9, 30], [3, 2, 4, 1], False)
def test_records_are_appended_once_across_deaths(
    attempts: list[list[str]], deaths: list[int], lots: list[int], early: bool
) -> None:
    """Files arrive, and the same command repeats until it does not die; finally it runs once more without new input."""
    with staged_engine(attempts, deaths, StreamEngine) as world:
        for lot in [*lots, 0]:
            world.arrive(lot)
            while world.command() == "died":
                world.arrive(1)
                if early:
                    world.wake()
        world.wake()
        is_as_by_a_batch(world)


def is_as_by_a_batch(world: StreamEngine) -> None:
    """Check that everything equals a batch over all input so far."""
    assert world.server.seen == world.expected
    assert world.server.rows == world.totals()
    if not world.woke:
        assert not any(world.server.staged.values()), "what does not count is still there"
    folder = Path(world.url).parent
    assert {path.name for path in folder.iterdir()} <= {"checkpoint", "out"}
    assert not list(folder.rglob(".*.tmp"))


def test_next_driver_continues_after_a_death_at_any_step() -> None:
    """The driver dies at each step of its second command, which has a micro-batch, joins portions, and publishes."""
    for step in range(1, 300):
        with staged_engine([["staged"], []], [], StreamEngine) as world:
            for _ in range(2):
                world.arrive(3)
                assert world.command() == "written"
            world.arrive(4)
            world.deaths.append(step)
            first = world.command()
            world.arrive(2)
            assert world.command() == "written"
            is_as_by_a_batch(world)
            if first == "written":
                return
    raise AssertionError("more steps than were tried")


def test_changed_input_of_a_committed_micro_batch_is_rejected() -> None:
    """This happens, for example, if Spark's own part of the checkpoint is lost."""
    with staged_engine([[], []], [], StreamEngine) as world:
        for _ in range(4):
            world.arrive(2)
            world.command()
        seen = {step: dict(world.server.seen[step]) for step in STEPS}
        refused: Callable[..., Any] = pytest.fail
        for number in (3, 1):
            with pytest.raises(CannotPlan, match=f"micro-batch {number} has appended its records"):
                world.portions().write(number, "something else", refused)
        assert world.server.seen == seen


def test_all_micro_batches_of_a_stream_use_one_writer_name() -> None:
    """Otherwise the per-writer state of a table would grow with each micro-batch."""
    with staged_engine([[]], [], StreamEngine) as world:
        for _ in range(4):
            world.arrive(2)
            world.command()
        assert len([writer for writer in world.server.marks if writer.startswith("p.left@")]) == 1
        names = Place(None, str(next(Path(world.checkpoint).glob("portions-*")))).names()
        assert sorted(names) == ["0-2", "3-3"]


def test_journal_names_its_micro_batch() -> None:
    journal = Journal("p", "ab", {}, "cd", 7)
    assert Journal.from_json(journal.to_json()) == journal
    assert staged.seat_of(journal, "s").writer == "p.s@cd"
    assert staged.seat_of(Journal("p", "ab", {}), "s").writer == ""

"""Micro-batches append each record to a server once and replace results with a batch's, wherever drivers die."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_pipeline.core import staged
from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.staged import Journal
from data_pipeline.shell.output import Place
from tests.spark.test_spark_staged_laws import FATES
from tests.support.streamlets.staged_engine import STEPS, staged_engine
from tests.support.streamlets.stream_engine import StreamEngine


def test_records_are_appended_once_across_deaths() -> None:
    """Files arrive, and the same command repeats until it does not die; finally it runs once more without new input."""

    @settings(report_multiple_bugs=False)
    @given(
        st.lists(FATES, min_size=1, max_size=3), st.lists(st.integers(1, 90), max_size=5),
        st.lists(st.integers(0, 5), min_size=1, max_size=5), st.booleans(),
    )  # fmt: skip
    @example([["staged"], []], [40, 9, 30], [3, 2, 4, 1], False)
    def holds(attempts: list[list[str]], deaths: list[int], lots: list[int], early: bool) -> None:
        with staged_engine(attempts, deaths, StreamEngine) as world:
            for lot in [*lots, 0]:
                world.arrive(lot)
                while world.command() == "died":
                    world.arrive(1)
                    if early:
                        world.wake()
            world.wake()
            is_as_by_a_batch(world)

    holds()


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
            with pytest.raises(CannotPlan, match=f"micro-batch {number} has given its records to servers"):
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

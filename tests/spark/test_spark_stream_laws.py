"""What micro-batches append to servers is there once, and what their results replace is what a batch would have
written, wherever drivers die. Each mistake that would break this is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from laws import each_law, each_mutation
from staged_world import STEPS, world_of
from stream_world import StreamWorld
from test_spark_staged_laws import FATES, tasks_commit_by_themselves, what_a_dead_run_staged_stays

from data_pipeline.core import staged
from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.portions import Portion
from data_pipeline.core.staged import Journal
from data_pipeline.shell import portions as shell
from data_pipeline.shell import tasks
from data_pipeline.shell.output import Place


def law_records_are_appended_once_whoever_dies() -> None:
    """Lots arrive, and the same command runs until it does not die; at the end once more, with nothing new."""

    @settings(report_multiple_bugs=False)
    @given(
        st.lists(FATES, min_size=1, max_size=3), st.lists(st.integers(1, 90), max_size=5),
        st.lists(st.integers(0, 5), min_size=1, max_size=5), st.booleans(),
    )  # fmt: skip
    @example([["staged"], []], [40, 9, 30], [3, 2, 4, 1], False)
    def holds(attempts: list[list[str]], deaths: list[int], lots: list[int], early: bool) -> None:
        with world_of(attempts, deaths, StreamWorld) as world:
            for lot in [*lots, 0]:
                world.arrive(lot)
                while world.command() == "died":
                    world.arrive(1)
                    if early:
                        world.wake()
            world.wake()
            is_as_by_a_batch(world)

    holds()


def is_as_by_a_batch(world: StreamWorld) -> None:
    """Over all that has arrived."""
    assert world.server.seen == world.expected
    assert world.server.rows == world.totals()
    if not world.woke:
        assert not any(world.server.staged.values()), "what does not count is still there"
    folder = Path(world.url).parent
    assert {path.name for path in folder.iterdir()} <= {"checkpoint", "out"}
    assert not list(folder.rglob(".*.tmp"))


def law_a_driver_that_dies_at_any_step_leaves_what_the_next_goes_on_from() -> None:
    """At each of the steps of its second command, one by one: it has a micro-batch, joins portions, and publishes."""
    for step in range(1, 300):
        with world_of([["staged"], []], [], StreamWorld) as world:
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


# Mistakes.


def a_micro_batch_is_written_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shell, "holds", lambda *_: False)


def what_is_owed_is_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shell.Portions, "settle", lambda _: [])


def numbers_begin_anew_with_each_driver(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tasks, "token_of", lambda journal, attempt: f"0-{attempt}-0-{journal.run}")


def tokens_are_those_of_the_number_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tasks, "token_of", lambda journal, _: f"0-{journal.number}-0-{journal.run}")


def what_was_joined_has_forgotten_what_it_read(patch: pytest.MonkeyPatch) -> None:
    right = shell.Portions._write
    patch.setattr(
        shell.Portions, "_write",
        lambda self, portion, fill, stream, read: right(self, portion, fill, stream, "" if joined(portion) else read),
    )  # fmt: skip


def joined(portion: Portion) -> bool:
    return portion.first != portion.last


def the_result_is_not_settled(patch: pytest.MonkeyPatch) -> None:
    """Before the next one takes its place."""
    patch.setattr("stream_world.settle_for", lambda *_: "")


ONCE, ANY = (
    law_records_are_appended_once_whoever_dies,
    law_a_driver_that_dies_at_any_step_leaves_what_the_next_goes_on_from,
)
test_law = each_law(globals())
test_mutation = each_mutation(
    [
        (a_micro_batch_is_written_again, ANY),
        (what_is_owed_is_left, ANY),
        (numbers_begin_anew_with_each_driver, ANY),
        (tokens_are_those_of_the_number_alone, ANY),
        (what_was_joined_has_forgotten_what_it_read, ANY),
        (the_result_is_not_settled, ANY),
        (tasks_commit_by_themselves, ONCE),
        (what_a_dead_run_staged_stays, ANY),
    ]
)


def test_other_input_under_a_number_that_counts_is_refused() -> None:
    """Spark's own part of the checkpoint was lost, say."""
    with world_of([[], []], [], StreamWorld) as world:
        for _ in range(4):
            world.arrive(2)
            world.command()
        seen = {step: dict(world.server.seen[step]) for step in STEPS}
        refused: Callable[..., Any] = pytest.fail
        for number in (3, 1):
            with pytest.raises(CannotPlan, match=f"micro-batch {number} has given its records to servers"):
                world.portions().write(number, "something else", refused)
        assert world.server.seen == seen


def test_all_micro_batches_of_a_stream_sign_with_one_name() -> None:
    """Or what a table keeps of each writer would grow with them."""
    with world_of([[]], [], StreamWorld) as world:
        for _ in range(4):
            world.arrive(2)
            world.command()
        assert len([writer for writer in world.server.marks if writer.startswith("p.left@")]) == 1
        names = Place(None, str(next(Path(world.checkpoint).glob("portions-*")))).names()
        assert sorted(names) == ["0-2", "3-3"]


def test_a_journal_says_which_micro_batch_it_is_of() -> None:
    journal = Journal("p", "ab", {}, "cd", 7)
    assert Journal.from_json(journal.to_json()) == journal
    assert staged.seat_of(journal, "s").writer == "p.s@cd"
    assert staged.seat_of(Journal("p", "ab", {}), "s").writer == ""

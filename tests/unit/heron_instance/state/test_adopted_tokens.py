"""A sink that begins with another topology's checkpoint commits what waits for it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from heron_instance.core.state.checkpointer import InvalidToken, TwoPhaseCommits, generation_of
from heron_instance.core.state.task_state import RestoredState, UnclaimedState
from heron_runtime.model.checkpoints import AdoptionMode, CommitToken
from heronry.api.state import Checkpoint, TwoPhaseSink

TOKENS = (CommitToken(8, "4-8-1-a"), CommitToken(9, "4-9-1-a"))
NAMES = frozenset(token.name for token in TOKENS)


class Sink(TwoPhaseSink):
    """One that tells what is asked of it."""

    def __init__(self, *waiting: str) -> None:
        super().__init__()
        self.waiting = list(waiting)
        self.committed: list[str] = []

    def prepared(self) -> list[str]:
        return list(self.waiting)

    def commit(self, checkpoint: int, token: str) -> None:
        self.committed.append(token)
        if token in self.waiting:
            self.waiting.remove(token)

    def abort(self, token: str) -> None:
        self.waiting.remove(token)


def restored(adopted: AdoptionMode) -> RestoredState:
    return RestoredState(9, tokens=TOKENS, known_tokens=NAMES, adopted=adopted)


@pytest.mark.parametrize(("given", "kept"), [("4-9-1-a", ["4-9-1-a"]), (None, []), ("mine", None), (7, None)])
def test_a_token_begins_with_the_name_of_its_checkpoint_and_none_is_none(given: Any, kept: list[str] | None) -> None:
    sink = Sink()
    sink.prepare = lambda checkpoint: given  # type: ignore[method-assign]  # each case its own
    tokens = TwoPhaseCommits(sink, 4)
    if kept is None:
        with pytest.raises(InvalidToken, match="a token must begin with"):
            tokens.prepare(Checkpoint(9, 4, "4-9-1"))
    else:
        tokens.prepare(Checkpoint(9, 4, "4-9-1"))
        assert [token.name for token in tokens.unconfirmed] == kept


def test_only_what_waits_is_committed_and_what_nobody_knows_is_aborted() -> None:
    sink = Sink("4-9-1-a", "4-10-1-a")
    TwoPhaseCommits(sink, 5).restore(restored(AdoptionMode.WHOLE))
    assert (sink.committed, sink.waiting) == (["4-9-1-a"], [])


def test_of_its_own_checkpoint_everything_is_committed_again() -> None:
    sink = Sink()
    TwoPhaseCommits(sink, 5).restore(restored(AdoptionMode.NO))
    assert sink.committed == [token.name for token in TOKENS]


def test_what_was_prepared_for_a_complete_checkpoint_is_committed_once_in_order() -> None:
    sink = Sink()
    tokens = TwoPhaseCommits(sink, 4)
    tokens.unconfirmed = [CommitToken(9, "4-9-1-a"), CommitToken(8, "4-8-1-a"), CommitToken(10, "4-10-1-a")]
    for _ in range(2):
        tokens.commit(9)
    assert sink.committed == ["4-8-1-a", "4-9-1-a"]
    assert tokens.unconfirmed == [CommitToken(10, "4-10-1-a")]


def test_only_what_lower_generations_have_left_is_aborted() -> None:
    sink = Sink("4-8-1-a", "4-10-1-a", "5-11-1-a", "6-11-1-a", "no token", "x-1-1-a")
    TwoPhaseCommits(sink, 5).sweep(["4-8-1-a"])
    assert sink.waiting == ["4-8-1-a", "5-11-1-a", "6-11-1-a", "no token", "x-1-1-a"]


def test_where_no_sink_is_any_more_it_is_said_unless_that_is_well_so() -> None:
    component: Any = object()
    with pytest.raises(UnclaimedState, match=r"token '4-8-1-a': .* is not a TwoPhaseSink"):
        TwoPhaseCommits(component, 5).restore(restored(AdoptionMode.WHOLE))
    TwoPhaseCommits(component, 5).restore(restored(AdoptionMode.IN_PART))


@pytest.mark.parametrize(
    ("name", "generation"),
    [("3-9-1-a", 3), ("12-1", 12), ("0-1-1-a", 0), ("12", None), ("x-9-1-a", None), ("-9-1", None), ("", None)],
)
def test_a_token_tells_its_generation_and_any_other_name_none(name: str, generation: int | None) -> None:
    assert generation_of(name) == generation


def test_a_sweep_aborts_what_lower_generations_left_and_nobody_knows() -> None:
    sink = Sink("2-1-1-a", "3-2-1-a", "4-3-1-a", "5-4-1-a", "3-5-1-a", "mine", "3-6-1-a")
    tokens = TwoPhaseCommits(sink, 4)
    tokens.unconfirmed.append(CommitToken(5, "3-5-1-a"))
    tokens.sweep(["3-6-1-a"])
    assert sink.waiting == ["4-3-1-a", "5-4-1-a", "3-5-1-a", "mine", "3-6-1-a"]


def test_what_is_complete_is_committed_in_order_and_once() -> None:
    sink = Sink()
    tokens = TwoPhaseCommits(sink, 4)
    tokens.unconfirmed += [CommitToken(9, "4-9-1-a"), CommitToken(7, "4-7-1-a"), CommitToken(8, "4-8-1-a")]
    tokens.commit(6)
    assert sink.committed == []
    tokens.commit(8)
    tokens.commit(8)
    assert sink.committed == ["4-7-1-a", "4-8-1-a"]
    assert tokens.unconfirmed == [CommitToken(9, "4-9-1-a")]

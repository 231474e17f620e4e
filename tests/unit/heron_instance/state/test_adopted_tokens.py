"""Commit and abort of sink tokens after a restore, a complete checkpoint and a sweep."""

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
    """Sink that records the tokens it commits and the tokens that are still staged."""

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
def test_prepare_rejects_token_without_checkpoint_prefix(given: Any, kept: list[str] | None) -> None:
    sink = Sink()
    sink.prepare = lambda checkpoint: given  # type: ignore[method-assign]  # each case its own
    tokens = TwoPhaseCommits(sink, 4)
    if kept is None:
        with pytest.raises(InvalidToken, match="a token must begin with"):
            tokens.prepare(Checkpoint(9, 4, "4-9-1"))
    else:
        tokens.prepare(Checkpoint(9, 4, "4-9-1"))
        assert [token.name for token in tokens.unconfirmed] == kept


def test_restore_of_adopted_checkpoint_commits_only_prepared_tokens() -> None:
    sink = Sink("4-9-1-a", "4-10-1-a")
    TwoPhaseCommits(sink, 5).restore(restored(AdoptionMode.WHOLE))
    assert (sink.committed, sink.waiting) == (["4-9-1-a"], [])


def test_restore_of_own_checkpoint_commits_every_token_again() -> None:
    sink = Sink()
    TwoPhaseCommits(sink, 5).restore(restored(AdoptionMode.NO))
    assert sink.committed == [token.name for token in TOKENS]


def test_restore_without_sink_raises_unless_adopted_in_part() -> None:
    component: Any = object()
    with pytest.raises(UnclaimedState, match=r"token '4-8-1-a': .* is not a TwoPhaseSink"):
        TwoPhaseCommits(component, 5).restore(restored(AdoptionMode.WHOLE))
    TwoPhaseCommits(component, 5).restore(restored(AdoptionMode.IN_PART))


@pytest.mark.parametrize(
    ("name", "generation"),
    [("3-9-1-a", 3), ("12-1", 12), ("0-1-1-a", 0), ("12", None), ("x-9-1-a", None), ("-9-1", None), ("", None)],
)
def test_generation_of_returns_none_for_names_that_are_not_tokens(name: str, generation: int | None) -> None:
    assert generation_of(name) == generation


def test_sweep_aborts_unknown_tokens_of_lower_generations() -> None:
    kept = ["4-3-1-a", "5-4-1-a", "3-5-1-a", "mine", "no token", "x-1-1-a", "3-6-1-a"]
    sink = Sink("2-1-1-a", "3-2-1-a", *kept)
    tokens = TwoPhaseCommits(sink, 4)
    tokens.unconfirmed.append(CommitToken(5, "3-5-1-a"))
    tokens.sweep(["3-6-1-a"])
    assert sink.waiting == kept


def test_commit_is_idempotent_and_ordered() -> None:
    sink = Sink()
    tokens = TwoPhaseCommits(sink, 4)
    tokens.unconfirmed += [CommitToken(9, "4-9-1-a"), CommitToken(7, "4-7-1-a"), CommitToken(8, "4-8-1-a")]
    tokens.commit(6)
    assert sink.committed == []
    tokens.commit(8)
    tokens.commit(8)
    assert sink.committed == ["4-7-1-a", "4-8-1-a"]
    assert tokens.unconfirmed == [CommitToken(9, "4-9-1-a")]

"""Rules of the executors' part in checkpoints, each taken away by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heron_instance.core.dead_letters import DeadLetters
from heron_instance.core.gates import Gates
from heron_instance.core.held_call import HeldCall
from heron_instance.core.output import Output
from heron_instance.core.spout_collector import SpoutCollector
from heron_instance.core.state.kept import KeptState, Restored
from heron_instance.core.state.splits import Positions
from heron_instance.core.state.stateful import Stateful
from heron_instance.core.state.tokens import Tokens
from heron_runtime.wire.data import BARRIER


def barriers_overtake_what_was_emitted(patch: pytest.MonkeyPatch) -> None:
    def flush_early(self: Output, now_ms: float) -> None:
        """Later."""

    real = Gates.align

    def align(self: Gates, align: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Output, "flush_early", flush_early)
            real(self, align)

    patch.setattr(Gates, "align", align)


def a_batch_spans_a_barrier(patch: pytest.MonkeyPatch) -> None:
    real = Gates.lets_in
    patch.setattr(Gates, "lets_in", lambda self, frame, begun: frame.codec == BARRIER or real(self, frame, begun))


def spouts_go_on_while_quiet(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stateful, "stands_still", property(lambda self: not self._runs))


def what_is_held_is_not_sent(patch: pytest.MonkeyPatch) -> None:
    def route_all(self: SpoutCollector) -> None:
        """What waits stays."""

    patch.setattr(SpoutCollector, "route_all", route_all)


def frames_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stateful, "flushed", lambda self, flush: None)


def everybody_runs_at_once(patch: pytest.MonkeyPatch) -> None:
    def follow(self: Stateful, plan: Any) -> None:
        self._runs = self._runs or self.report.restored

    patch.setattr(Stateful, "follow", follow)


def tokens_are_committed_before_complete(patch: pytest.MonkeyPatch) -> None:
    real = Tokens.prepare

    def prepare(self: Tokens, checkpoint: Any) -> None:
        real(self, checkpoint)
        self.commit(checkpoint.number)

    patch.setattr(Tokens, "prepare", prepare)


def tokens_are_not_committed_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tokens, "restore", lambda self, restored: None)


def own_tokens_are_swept(patch: pytest.MonkeyPatch) -> None:
    def restore(self: Tokens, restored: Restored) -> None:
        if self._sink is not None:
            for name in list(self._sink.prepared()):
                self._sink.abort(name)

    patch.setattr(Tokens, "restore", restore)


def tokens_of_cancelled_checkpoints_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = Tokens.prepare

    def prepare(self: Tokens, checkpoint: Any) -> None:
        self.unconfirmed = []
        real(self, checkpoint)

    patch.setattr(Tokens, "prepare", prepare)


def positions_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Positions, "load", lambda self, positions: None)


def every_task_reads_all_splits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Positions, "owns", lambda self, split: True)


def changes_are_taken_against_incomplete_checkpoints(patch: pytest.MonkeyPatch) -> None:
    real = KeptState.take

    def take(self: KeptState, checkpoint: int, turn: int) -> Any:
        self.completed(checkpoint - 1)
        return real(self, checkpoint, turn)

    patch.setattr(KeptState, "take", take)


def what_a_bad_record_has_changed_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeptState, "undo", KeptState.keep)


def what_a_bad_record_has_emitted_leaves(patch: pytest.MonkeyPatch) -> None:
    def forget(self: HeldCall) -> None:
        for out, row in self._rows:
            out.rows.append(row)

    patch.setattr(HeldCall, "forget", forget)


def a_bad_record_leaves_no_letter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeadLetters, "_put_aside", lambda self, tup, error, call: None)


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        barriers_overtake_what_was_emitted,
        a_batch_spans_a_barrier,
        spouts_go_on_while_quiet,
        what_is_held_is_not_sent,
        frames_are_not_counted,
        everybody_runs_at_once,
        tokens_are_committed_before_complete,
        tokens_are_not_committed_again,
        own_tokens_are_swept,
        tokens_of_cancelled_checkpoints_are_forgotten,
        positions_are_not_kept,
        every_task_reads_all_splits,
        changes_are_taken_against_incomplete_checkpoints,
        what_a_bad_record_has_changed_stays,
        what_a_bad_record_has_emitted_leaves,
        a_bad_record_leaves_no_letter,
    )
}

"""Each of these mistakes breaks the law of exact results: what it is made of is needed."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from exact_programs import PROGRAMS, drawn

from heronry.streamlet.online.process_state import ProcessState
from heronry.streamlet.online.published import PublishedView
from heronry.streamlet.online.reduce_bolt import CLOSED, ENDED, ReduceBolt
from heronry.streamlet.online.sequence_spout import SequenceSpout
from heronry.streamlet.online.session_state import SessionState
from heronry.streamlet.online.source_spout import SourceSpout
from heronry.streamlet.online.stage_bolt import StageBolt
from heronry.streamlet.online.staging import Staging
from heronry.streamlet.online.view_files import ViewFiles
from heronry.streamlet.online.writers import LinesWriter

SEEDS = 40
Patch = pytest.MonkeyPatch


def nothing(*args: Any, **more: Any) -> None:
    """In place of what is left out."""


def positions_are_not_kept(patch: Patch) -> None:
    opened = SequenceSpout.open

    def afresh(self: Any) -> None:
        self.keyed._values.clear()
        opened(self)

    patch.setattr(SequenceSpout, "open", afresh)


def positions_run_ahead(patch: Patch) -> None:
    """A block is read, and its position kept, a call before it is emitted."""

    def next_tuple(self: Any) -> None:
        waiting = getattr(self, "_waiting", None)
        self._waiting = self.next_block()
        if self._waiting is not None:
            self.keyed[self._waiting[0]] = self._waiting[1]
        if waiting is not None:
            self.emit(waiting[2], None, "blocks")
        elif self._waiting is None:
            self._say(self.clock())

    patch.setattr(SourceSpout, "next_tuple", next_tuple)


def accumulators_are_not_kept(patch: Patch) -> None:
    patch.setattr(ReduceBolt, "_keep", nothing)


def closed_windows_stay_in_state(patch: Patch) -> None:
    kept = ReduceBolt._keep
    patch.setattr(ReduceBolt, "_keep", lambda self, dropped, changed: kept(self, [], changed))


def what_is_closed_is_forgotten(patch: Patch) -> None:
    kept = ReduceBolt.keep_state

    def keep_state(self: Any) -> None:
        kept(self)
        self.state[CLOSED] = None
        self.state["watermark"] = {"value": None, "times": [], "final": False}

    patch.setattr(ReduceBolt, "keep_state", keep_state)


def the_end_is_forgotten(patch: Patch) -> None:
    kept = ReduceBolt.keep_state

    def keep_state(self: Any) -> None:
        kept(self)
        self.state.pop(ENDED, None)

    patch.setattr(ReduceBolt, "keep_state", keep_state)


def the_least_is_closed(patch: Patch) -> None:
    """A new task begins with no window closed."""
    patch.setattr(ReduceBolt, "union_state", nothing)


def running_results_wait(patch: Patch) -> None:
    """Those that are due stay in memory over a checkpoint."""
    update = ReduceBolt._update

    def now_and_then(self: Any) -> None:
        if self.clock() - self._shown_at >= 1.0 or self._watermark.is_final:
            update(self)

    patch.setattr(ReduceBolt, "_update", now_and_then)


def sinks_show_at_once(patch: Patch) -> None:
    prepare = StageBolt.prepare

    def prepared(self: Any, checkpoint: Any) -> Any:
        token = prepare(self, checkpoint)
        if token is not None:
            self.commit(checkpoint.number, token)
        return token

    patch.setattr(StageBolt, "prepare", prepared)


def prepared_files_are_not_committed_again(patch: Patch) -> None:
    """After a restore they are swept."""
    patch.setattr("heron_instance.core.state.tokens.Tokens.restore", lambda self, restored: self.sweep(()))


def nothing_is_swept(patch: Patch) -> None:
    patch.setattr(StageBolt, "prepared", lambda self: [])


def files_of_a_checkpoint_have_one_name(patch: Patch) -> None:
    flush = LinesWriter._flush
    patch.setattr(LinesWriter, "_flush", lambda self, name: flush(self, name.rpartition("-")[0]))


def views_are_not_written_anew_when_keys_move(patch: Patch) -> None:
    patch.setattr(PublishedView, "unite", staticmethod(nothing))


def files_of_tasks_that_went_stay_in_views(patch: Patch) -> None:
    patch.setattr(ViewFiles, "open_buckets", lambda self, index, closed_ms: [])


def sessions_are_closed_before_a_record_at_their_end(patch: Patch) -> None:
    begun = SessionState.__init__
    patch.setattr(SessionState, "__init__", lambda self, m, gap, wait: begun(self, m, gap, wait - 300_000))


def timers_run_ahead_of_records(patch: Patch) -> None:
    begun = ProcessState.__init__
    patch.setattr(ProcessState, "__init__", lambda self, s, handlers, wait: begun(self, s, handlers, wait - 90_000))


def memories_are_not_kept(patch: Patch) -> None:
    changed = ProcessState.take_changed

    def take_changed(self: Any) -> Any:
        dropped, found = changed(self)
        return dropped, [entry for entry in found if entry.start is not None]

    patch.setattr(ProcessState, "take_changed", take_changed)


def commits_leave_no_mark(patch: Patch) -> None:
    """So what comes again looks like output that is gone."""
    patch.setattr(Staging, "_mark", lambda self, hidden, token: shutil.rmtree(hidden))


MUTATIONS: dict[Callable[[Patch], None], str] = {
    positions_are_not_kept: "windows",
    positions_run_ahead: "windows",
    accumulators_are_not_kept: "windows",
    closed_windows_stay_in_state: "windows",
    what_is_closed_is_forgotten: "windows",
    the_end_is_forgotten: "results",
    the_least_is_closed: "windows",
    running_results_wait: "results",
    sinks_show_at_once: "windows",
    prepared_files_are_not_committed_again: "windows",
    nothing_is_swept: "windows",
    files_of_a_checkpoint_have_one_name: "results",
    sessions_are_closed_before_a_record_at_their_end: "sessions",
    timers_run_ahead_of_records: "stories",
    memories_are_not_kept: "stories",
    views_are_not_written_anew_when_keys_move: "views",
    files_of_tasks_that_went_stay_in_views: "views",
    commits_leave_no_mark: "windows",
}


@contextmanager
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_the_law_catches(mutation: Callable[[Patch], None]) -> None:
    law = PROGRAMS[MUTATIONS[mutation]]
    with pytest.MonkeyPatch.context() as patch, silence():
        mutation(patch)
        for seed in range(SEEDS):
            try:
                law(drawn(seed))
            except Exception:
                return
    pytest.fail(f"{SEEDS} schedules do not notice it")

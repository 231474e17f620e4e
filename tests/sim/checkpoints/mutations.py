"""Rules taken away, one at a time: each of these must be noticed by some seed of the range that the tests run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from heron_instance.core.state import keyed
from heron_instance.core.state.keyed import KeyedState
from heron_instance.core.state.participant import Align, Barrier, Participant
from heron_instance.core.state.taken import GroupRows, Taken
from heron_runtime.model.checkpoints import Manifest, TaskReport
from heron_runtime.model.generations import NO_CHECKPOINT, Phase
from heron_runtime.model.key_groups import rebalance
from topology_master.core.state.coordinator import Coordinator
from topology_master.core.state.generations import Generations

from .outside import Plan, Transaction
from .program import COUNT
from .tasks import Task
from .world import Channel, World

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(apply: Mutation) -> Mutation:
    MUTATIONS[apply.__name__.replace("_", " ")] = apply
    return apply


def around(patch: pytest.MonkeyPatch, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """``wrapper(original, *arguments)`` in place of a method."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *arguments, **named: wrapper(original, *arguments, **named))


# Barriers and quiet.


@mutation
def a_barrier_overtakes_a_frame_and_nobody_counts(patch: pytest.MonkeyPatch) -> None:
    def overtaking(flush: Callable[[Task], None], self: Task) -> None:
        flush(self)
        for channel in self.world.channels.values():
            queue = channel.queue
            if len(queue) > 1 and isinstance(queue[-1], Barrier) and not isinstance(queue[-2], Barrier):
                queue[-1], queue[-2] = queue[-2], queue[-1]

    around(patch, Task, "_flush", overtaking)
    around(patch, Participant, "barrier", _any_count)


@mutation
def no_barrier_on_an_idle_channel(patch: pytest.MonkeyPatch) -> None:
    def skipping(align: Callable[[Task, Align], None], self: Task, what: Align) -> None:
        align(self, what)
        for entry in [e for e in self.pending if isinstance(e[1], Barrier) and e[1].count == 0]:
            self.pending.remove(entry)

    around(patch, Task, "_align", skipping)


@mutation
def lost_frames_are_not_counted_and_broken_channels_not_reported(patch: pytest.MonkeyPatch) -> None:
    around(patch, Participant, "barrier", _any_count)
    patch.setattr(Participant, "disconnected", lambda self: None)


def _any_count(barrier: Callable[..., Any], self: Participant, source: int, what: Barrier) -> Any:
    return barrier(self, source, replace(what, count=self._frames[source]))


@mutation
def resume_before_the_last_has_aligned(patch: pytest.MonkeyPatch) -> None:
    def most(every: Callable[..., bool], self: Coordinator, found: Any) -> bool:
        return every(self, found) or (isinstance(found, set) and len(found) >= 5)

    around(patch, Coordinator, "_all", most)


@mutation
def a_spout_emits_while_it_is_quiet(patch: pytest.MonkeyPatch) -> None:
    def emitting(step: Callable[[Task], None], self: Task) -> None:
        step(self)
        if self.runs and self.participant and self.participant.quiet and not self.pending:
            self._emit()

    around(patch, Task, "step", emitting)


@mutation
def a_frame_behind_a_barrier_is_taken_in_silence_and_resume_comes_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Participant, "may_take", lambda self, source: not self.quiet)
    resume_before_the_last_has_aligned(patch)


@mutation
def old_barriers_count_after_all_is_over(patch: pytest.MonkeyPatch) -> None:
    def forgetful(barrier: Callable[..., Any], self: Participant, source: int, what: Barrier) -> Any:
        over, self._over = self._over, NO_CHECKPOINT
        try:
            return barrier(self, source, what)
        finally:
            self._over = max(over, self._over)

    around(patch, Participant, "barrier", forgetful)


@mutation
def nothing_is_declined_by_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Participant, "tick", lambda self, now_ms: None)
    patch.setattr(Coordinator, "_decline", lambda self, why: None)


@mutation
def a_write_that_fails_is_not_declined(patch: pytest.MonkeyPatch) -> None:
    def silent(decline: Callable[..., None], self: Participant, checkpoint: int, why: str) -> None:
        if "storage" not in why:
            decline(self, checkpoint, why)

    around(patch, Participant, "decline", silent)
    patch.setattr(Coordinator, "_decline", lambda self, why: None)


@mutation
def a_report_is_told_once(patch: pytest.MonkeyPatch) -> None:
    def once(tell: Callable[[Task], None], self: Task) -> None:
        tell(self)
        if self.participant is not None:
            self.participant._stored.clear()
            self.participant._aligned = NO_CHECKPOINT

    around(patch, Task, "_tell", once)


# Keyed state.


@mutation
def deletions_are_not_written(patch: pytest.MonkeyPatch) -> None:
    def without(blocks: Callable[..., Iterator[GroupRows]], self: Taken) -> Iterator[GroupRows]:
        for block in blocks(self):
            yield GroupRows(block.group, block.full, [row for row in block.rows if len(row) > 1])

    around(patch, Taken, "__iter__", without)


@mutation
def values_changed_in_place_are_not_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keyed, "UNCHANGEABLE", keyed.UNCHANGEABLE | {list})


@mutation
def a_delta_follows_a_checkpoint_that_did_not_complete(patch: pytest.MonkeyPatch) -> None:
    def hasty(take: Callable[..., Taken], self: KeyedState, n: int, turn: int) -> Taken:
        taken = take(self, n, turn)
        self.completed(n)
        return taken

    around(patch, KeyedState, "take", hasty)


@mutation
def a_group_is_kept_by_two_tasks(patch: pytest.MonkeyPatch) -> None:
    def old_groups(follow: Callable[[Task, Plan], None], self: Task, plan: Plan) -> None:
        first, second, *more = plan.tasks[COUNT]
        follow(self, replace(plan, table=rebalance(plan.table, (first, second))) if more else plan)

    around(patch, Task, "_follow", old_groups)


# Tokens.


@mutation
def a_token_is_committed_before_its_checkpoint_is_complete(patch: pytest.MonkeyPatch) -> None:
    def early(commit: Callable[..., None], self: Task, part: Participant) -> None:
        complete, part.complete = part.complete, 1 << 60
        if self.tokens:
            commit(self, part)
        part.complete = complete

    around(patch, Task, "_commit", early)


@mutation
def a_later_token_is_committed_with_an_earlier_one(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(commit: Callable[..., None], self: Task, part: Participant) -> None:
        if any(token.checkpoint <= part.complete for token in self.tokens):
            for token in sorted(self.tokens):
                self.world.outside.commit(token.name)
            self.tokens.clear()

    around(patch, Task, "_commit", all_of_them)


@mutation
def tokens_of_cancelled_checkpoints_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def forgetting(align: Callable[[Task, Align], None], self: Task, what: Align) -> None:
        part = self.participant
        if part is not None:
            self.tokens = [t for t in self.tokens if t.checkpoint <= part.complete]
        align(self, what)

    around(patch, Task, "_align", forgetting)


@mutation
def tokens_are_not_committed_again_on_restore(patch: pytest.MonkeyPatch) -> None:
    def uncommitted(settle: Callable[..., Any], self: Task, plan: Plan, manifest: Any) -> Any:
        return iter(())

    around(patch, Task, "_settle_tokens", uncommitted)


@mutation
def a_late_riser_aborts_what_is_newer(patch: pytest.MonkeyPatch) -> None:
    def everything(sweepable: Callable[..., Any], self: World, generation: int, manifest: Any) -> list[str]:
        return [name for name in sorted(self.outside.prepared) if name not in manifest.tokens]

    around(patch, World, "sweepable", everything)


# Generations.


def _nobody_notices(patch: pytest.MonkeyPatch) -> None:
    """The walls behind: incarnations that change, connections that end, counts of frames."""

    def trusting(heard: Callable[..., None], self: Any, place: Any, incarnation: int, report: TaskReport) -> None:
        named = self.generation.incarnation(place)
        heard(self, place, incarnation if named is None else named, report)

    around(patch, Generations, "heard", trusting)
    patch.setattr(Participant, "disconnected", lambda self: None)


@mutation
def a_new_process_and_broken_channels_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    _nobody_notices(patch)


@mutation
def whoever_comes_runs_and_channels_are_opened_again(patch: pytest.MonkeyPatch) -> None:
    _nobody_notices(patch)
    around(patch, Participant, "barrier", _any_count)

    def joining(follow: Callable[[Task, Plan], None], self: Task, plan: Plan) -> None:
        new = self.participant is None
        follow(self, plan)
        if new and plan.generation.phase is Phase.RUNNING and self.participant is not None:
            self._loading = self._restore(plan)
            self.runs = True

    around(patch, Task, "_follow", joining)

    def again(connect: Callable[..., None], self: World, task: Task, *arguments: Any) -> None:
        for key, ends in self.ends.items():
            if task.task in key[1:] and key[0] == arguments[-1] and self.channels[key].broken:
                self.channels[key] = Channel(*key)
                ends.pop(task.task, None)
        connect(self, task, *arguments)

    around(patch, World, "connect", again)

    def any_incarnation(heard: Callable[..., None], self: Any, task: int, incarnation: int, report: Any) -> None:
        named = self._participants.incarnations.get(task, 0) if self._participants else 0
        parts = tuple(replace(part, incarnation=named) for part in report.stored)
        heard(self, task, named, replace(report, stored=parts))

    around(patch, Coordinator, "heard", any_incarnation)


@mutation
def not_all_have_restored(patch: pytest.MonkeyPatch) -> None:
    every = Generations.missing
    assert isinstance(every, property)
    missing = every.fget
    assert missing is not None
    patch.setattr(Generations, "missing", property(lambda self: () if len(self._restored) >= 5 else missing(self)))


@mutation
def a_restore_point_is_chosen_while_another_completes(patch: pytest.MonkeyPatch) -> None:
    def unchecked(submit: Callable[..., None], self: World, master: Any, transaction: Transaction) -> None:
        transaction.checks_record = transaction.plan is None
        submit(self, master, transaction)

    around(patch, World, "submit", unchecked)


@mutation
def a_deposed_master_writes(patch: pytest.MonkeyPatch) -> None:
    def unfenced(submit: Callable[..., None], self: World, master: Any, transaction: Transaction) -> None:
        transaction.fences = False
        transaction.checks_record = False
        submit(self, master, transaction)

    around(patch, World, "submit", unfenced)


@mutation
def reports_of_other_generations_count(patch: pytest.MonkeyPatch) -> None:
    def any_generation(heard: Callable[..., None], self: Any, who: Any, incarnation: int, report: TaskReport) -> None:
        number = self.record.generation if isinstance(self, Coordinator) else self.generation.number
        heard(self, who, incarnation, replace(report, generation=number))

    around(patch, Generations, "heard", any_generation)
    around(patch, Coordinator, "heard", any_generation)


@mutation
def numbers_are_given_out_without_the_store(patch: pytest.MonkeyPatch) -> None:
    def own(number: Callable[..., Any], self: Coordinator, now_ms: float) -> Any:
        wanted = number(self, now_ms)
        if wanted is not None:
            self.record = wanted.record
            self._begin(wanted.record.begun, now_ms)
        return None

    around(patch, Coordinator, "_next_number", own)


@mutation
def tokens_of_tasks_that_went_are_nobodys(patch: pytest.MonkeyPatch) -> None:
    def own(tokens_of: Callable[..., Any], self: Manifest, task: int, now: Any, component: str) -> Any:
        return tokens_of(self, task, (*now, *(part.task for part in self.parts)), component)

    around(patch, Manifest, "tokens_of", own)


@mutation
def a_new_history_is_built_on_what_was_struck_off(patch: pytest.MonkeyPatch) -> None:
    def keep(read: Callable[..., None], self: Coordinator, record: Any, base: Manifest) -> None:
        read(self, record, max(base, self.base, key=lambda manifest: manifest.checkpoint))

    around(patch, Coordinator, "read", keep)

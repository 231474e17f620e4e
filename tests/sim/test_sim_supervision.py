"""Schedules of supervision and liveness, and the mutations of both cores that the laws notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from budget import Budget

from heron_container.core import liveness as liveness_module
from heron_container.core import supervisor as supervisor_module
from heron_container.core.liveness import Liveness
from heron_container.core.supervisor import Supervisor
from heron_runtime.model.backoff import Backoff

from .noticing import Mutations, broken_law
from .supervision import run

FLOOR, SECONDS = 100, 8.0
MUTATION_FLOOR, MUTATION_SECONDS = 100, 10.0

MUTATIONS = Mutations(run, MUTATION_FLOOR, MUTATION_SECONDS)
mutation = MUTATIONS.breaks


def test_places_keep_one_process_for_each_slot(record_property: Callable[[str, object], None]) -> None:
    budget = Budget(SECONDS, FLOOR)
    while budget.more():
        assert broken_law(run, budget.used) == "", f"seed {budget.used}"
    record_property("schedules of supervision", budget.used)


def test_schedules_of_supervision_are_not_idle() -> None:
    found = [run(seed) for seed in range(1, 21)]
    assert sum(containers for containers, _, _ in found) > 40, "hardly any place has two containers"
    assert sum(restarts for _, restarts, _ in found) > 100
    assert found[:3] == [run(seed) for seed in range(1, 4)], "a seed fixes its schedule"


@mutation("beats and is condemned|is condemned after")
def the_watchers_own_pause_counts_as_silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(liveness_module, "TICK_CAP", 10**9)


@mutation("is condemned after")
def who_computes_without_a_beat_is_hung(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(liveness_module, "CPU_PROGRESS_SECONDS", 1e9)


@mutation("nobody ends it")
def nobody_is_condemned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Liveness, "_judge", lambda self, slot, watched: None)


@mutation("second living process|signal for process|not sound")
def who_is_killed_counts_as_ended(patch: pytest.MonkeyPatch) -> None:
    real = Supervisor.kill

    def kill(self: Supervisor, slot: int, reason: str) -> Any:
        effects = real(self, slot, reason)
        return [*effects, *(self.ended(self.processes[slot].since_ms + 60_000, slot, reason) if effects else [])]

    patch.setattr(Supervisor, "kill", kill)


@mutation("not staggered")
def restarts_come_all_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(supervisor_module, "STAGGER_MS", 0)


@mutation("times in a minute")
def restarts_never_grow_rare(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backoff, "died", lambda self, lived_ms: 0)


@mutation("told that it is replaced")
def who_was_replaced_is_started_again(patch: pytest.MonkeyPatch) -> None:
    real = Supervisor.ended
    patch.setattr(Supervisor, "ended", lambda self, now, slot, reason, replaced=False: real(self, now, slot, reason))


@mutation("is still there after|quiet seconds")
def who_is_to_stop_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Supervisor, "stop", lambda self, now_ms: [])


test_a_broken_watcher_is_noticed = MUTATIONS.test()

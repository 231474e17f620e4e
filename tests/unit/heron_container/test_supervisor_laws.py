"""Process table of the supervisor, tested with processes that start and die at random."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import heron_container
from heron_container.core.supervisor import (
    KILL_AGAIN_MS,
    STAGGER_MS,
    TRANSITIONS,
    FindReplacement,
    Kill,
    ProcessSpec,
    Start,
    Supervisor,
    Terminate,
    build_process_specs,
    transition_table,
)
from heron_runtime.model.backoff import Backoff, BackoffPolicy
from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan
from heron_runtime.wire.container import ProcessState

POLICY = BackoffPolicy(100, 10_000, 60_000)
KINDS = ("stream_manager", "metrics_manager", "heron_instance", "heron_instance")
SPECS = [ProcessSpec(slot, kind, f"p{slot}") for slot, kind in enumerate(KINDS)]


class World(RuleBasedStateMachine):
    """Processes follow the supervisor's effects; births and deaths occur in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.core = Supervisor(POLICY, 5000)
        self.ordered: set[int] = set()  # started but not born yet
        self.living: dict[int, int] = {}  # slot to pid
        self.pids = iter(range(100, 1_000_000))
        self.asked: set[int] = set()
        self.due_latest: dict[int, int] = {}
        self.left_out: set[int] = set()
        self.held = False
        self.apply(self.core.want(0, SPECS))

    def apply(self, effects: list) -> None:
        for effect in effects:
            match effect:
                case Start(spec, _):
                    assert spec.slot not in self.ordered, "started twice"
                    assert spec.slot not in self.living, "two live processes for one slot"
                    assert not self.core.stopping
                    assert not (self.held and spec.is_instance), "a held instance was started"
                    self.due_latest.pop(spec.slot, None)
                    self.ordered.add(spec.slot)
                case Terminate(slot, pid):
                    assert self.living[slot] == pid
                    assert slot not in self.asked, "asked twice"
                    self.asked.add(slot)
                    others = (self.ordered | set(self.living)) - {1}
                    assert slot != 1 or not others, "the metrics manager is asked before the others are gone"
                case Kill(slot, pid):
                    assert self.living[slot] == pid
                    self.die(slot, "killed by SIGKILL")
                case FindReplacement(slot):
                    assert slot not in self.living

    def die(self, slot: int, reason: str, replaced: bool = False) -> None:
        process = self.core.processes[slot]
        lived = self.now - process.born_ms
        young = process.backoff.young_deaths
        self.living.pop(slot, None)
        self.asked.discard(slot)
        self.ordered.discard(slot)
        self.apply(self.core.on_exit(self.now, slot, reason, replaced))
        if not self.core.stopping and not replaced:
            delay = 0 if lived >= POLICY.reset_ms else POLICY.delay_ms(young + 1)
            # Only the stagger delays a start.
            restarting = slot in self.core.processes and self.core.processes[slot].state is ProcessState.RESTARTING
            if restarting and not (self.held and SPECS[slot].is_instance):
                self.due_latest[slot] = self.now + delay + STAGGER_MS * len(SPECS)

    @precondition(lambda self: self.ordered)
    @rule(data=st.data())
    def born(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.ordered)))
        self.ordered.remove(slot)
        self.living[slot] = next(self.pids)
        self.apply(self.core.on_started(self.now, slot, self.living[slot]))

    @rule(why=st.sampled_from(["", "the volume is full"]))
    def held_or_free(self, why: str) -> None:
        """Held instances end in any state and start once free and due; other processes are unaffected."""
        was, self.held = self.held, bool(why)
        others = {slot: process.state for slot, process in self.core.processes.items() if not process.spec.is_instance}
        for slot in (2, 3):
            self.due_latest.pop(slot, None)
        self.apply(self.core.hold(self.now, why))
        now = {slot: process.state for slot, process in self.core.processes.items() if not process.spec.is_instance}
        assert self.core.stopping or now == others or not why
        if was and not why:
            waits = [p for p in self.core.processes.values() if p.state is ProcessState.RESTARTING]
            for process in waits:
                latest = max(self.now, process.due_ms or 0) + STAGGER_MS * len(SPECS)
                self.due_latest.setdefault(process.spec.slot, latest)

    @precondition(lambda self: self.living or self.ordered)
    @rule(data=st.data(), replaced=st.booleans())
    def dies(self, data: st.DataObject, replaced: bool) -> None:
        self.die(data.draw(st.sampled_from(sorted(self.ordered | set(self.living)))), "exit code 1", replaced)

    @precondition(lambda self: self.living)
    @rule(data=st.data(), works=st.booleans())
    def says(self, data: st.DataObject, works: bool) -> None:
        self.core.set_phase(self.now, data.draw(st.sampled_from(sorted(self.living))), works)

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def hangs(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.living)))
        self.apply(self.core.kill(slot, "killed: no heartbeat for 30.0 s"))
        if slot not in self.left_out:
            assert self.core.processes[slot].last_error == "killed: no heartbeat for 30.0 s"

    @rule(passed=st.sampled_from([1, 50, 500, 5_000, 61_000]))
    def time_passes(self, passed: int) -> None:
        end = self.now + passed
        while (deadline := self.core.next_deadline_ms()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.apply(self.core.tick(self.now))
        self.now = end
        self.apply(self.core.tick(self.now))

    @precondition(lambda self: not self.core.stopping)
    @rule(left_out=st.sets(st.integers(2, len(SPECS) - 1)), settled=st.booleans())
    def another_plan(self, left_out: set[int], settled: bool) -> None:
        """Removed processes are asked to end once the plan has settled; wanted ones return."""
        self.left_out = left_out if settled else self.left_out & left_out
        for slot in left_out:
            self.due_latest.pop(slot, None)
        living = dict(self.living)
        specs = [spec for spec in SPECS if spec.slot not in left_out]
        self.apply(self.core.want(self.now, specs, settled=settled))
        assert not settled or all(slot in self.asked for slot in self.left_out & set(living))

    @precondition(lambda self: not self.core.stopping)
    @rule(chance=st.integers(0, 9))
    def stop(self, chance: int) -> None:
        if chance == 0:
            self.due_latest.clear()
            self.apply(self.core.stop(self.now))

    @invariant()
    def holds(self) -> None:
        self.core.check()
        if not self.core.stopping:
            there = set(self.core.processes)
            running = self.ordered | set(self.living)
            wanted = {spec.slot for spec in SPECS} - self.left_out
            assert wanted <= there <= wanted | running, "rows are those of the plan, and what still runs"
        for slot, process in self.core.processes.items():
            assert process.alive == (slot in self.ordered or slot in self.living)
            assert process.pid == self.living.get(slot, 0)
        assert not (self.held and not self.core.stopping and {2, 3} & set(self.living)), "a held instance lives"
        for slot, latest in self.due_latest.items():
            assert self.now <= latest, f"slot {slot} waits longer than its own delay"

    def teardown(self) -> None:
        """After a stop request everything has ended within the grace period, and stays ended."""
        self.due_latest.clear()
        self.apply(self.core.stop(self.now))
        while self.ordered:
            slot = self.ordered.pop()
            self.living[slot] = next(self.pids)
            self.apply(self.core.on_started(self.now, slot, self.living[slot]))
        self.time_passes(5_000)
        self.time_passes(5_000)
        assert self.core.all_ended()
        assert {p.state for p in self.core.processes.values()} <= {ProcessState.STOPPED}
        assert self.core.next_deadline_ms() is None


World.TestCase.settings = settings(stateful_step_count=40)
TestSupervisor = World.TestCase


def test_backoff_starts_at_zero_doubles_to_its_limit_and_resets() -> None:
    backoff = Backoff(POLICY)
    delays = [backoff.died(10) for _ in range(12)]
    assert delays == [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000, 10_000]
    assert backoff.died(60_000) == 0
    assert backoff.died(59_999) == 100
    assert POLICY.delay_ms(10**9) == 10_000


def test_process_age_counts_from_its_birth() -> None:
    core = Supervisor(POLICY, 5000)
    core.want(1_000_000, SPECS[1:2])
    for now_ms, delay_ms in ((1_000_000, 0), (1_001_000, 100), (1_002_000, 200)):
        core.on_started(now_ms, 1, 11)
        core.on_exit(now_ms + 5, 1, "exit code 1")
        assert core.processes[1].due_ms == (now_ms + 5 + delay_ms if delay_ms else None), "None: it begins at once"
        core.tick(now_ms + 900)


def test_held_process_reports_its_reason_and_counts_no_restart() -> None:
    core = Supervisor(POLICY, 5000)
    assert core.want(0, SPECS[1:3]) == [Start(SPECS[1], 0), Start(SPECS[2], 0)]
    core.on_started(0, 1, 11)
    assert core.hold(5, "full") == [], "it is being born"
    (kill,) = core.on_started(10, 2, 12)
    assert kill == Kill(2, 12)
    assert core.on_exit(20, 2, "killed by SIGKILL") == []
    process = core.processes[2]
    assert (process.state, process.last_error, process.restarts) == (ProcessState.RESTARTING, "full", 0)
    assert core.tick(100_000) == []
    assert core.next_deadline_ms() is None
    assert core.want(100_000, SPECS[1:]) == [], "nor is one started that is new"
    assert core.processes[1].state is ProcessState.STARTING, "others go on"
    assert core.hold(100_000, "") == [Start(SPECS[2], 1)]
    assert core.tick(100_000 + STAGGER_MS) == [Start(SPECS[3], 0)]


def test_restarts_of_many_processes_are_staggered() -> None:
    core = Supervisor(POLICY, 5000)
    core.want(0, SPECS)
    starts = []
    for slot in range(4):
        core.on_started(0, slot, 10 + slot)
    for slot in range(4):
        starts += [(1000, e) for e in core.on_exit(1000, slot, "its zygote has ended")]
    now = 1000
    while (deadline := core.next_deadline_ms()) is not None:
        now = max(now, deadline)
        starts += [(now, effect) for effect in core.tick(now)]
    assert [at for at, _ in starts] == [1000, 1020, 1040, 1060]
    assert len({effect.spec.slot for _, effect in starts}) == 4


def test_every_state_has_transitions_or_is_final() -> None:
    assert transition_table().count("\n") == len(TRANSITIONS) - 1
    left = {state for state, _ in TRANSITIONS}
    assert set(ProcessState) - left == {ProcessState.STOPPED}
    assert set(TRANSITIONS.values()) == set(ProcessState)


def test_removed_tasks_are_terminated_and_new_ones_start() -> None:
    core = Supervisor(POLICY, 5000)
    plan = PackingPlan("t", (ContainerPlan(1, (InstancePlan(1, "a", 0), InstancePlan(2, "b", 0))),))
    specs = build_process_specs(1, plan, {})
    core.want(0, specs)
    for spec in specs:
        core.on_started(0, spec.slot, 10 + spec.slot)
    later = PackingPlan("t", (ContainerPlan(1, (InstancePlan(2, "b", 0), InstancePlan(5, "b", 1))),))
    known = {p.spec.task: p.spec.slot for p in core.processes.values() if p.spec.is_instance}
    assert known.keys() == {1, 2}, "only tasks have instances"
    assert {process.restarts for process in core.processes.values()} == {0}, "a first start is no restart"
    effects = core.want(10, build_process_specs(1, later, {}, known))
    assert [effect.spec.name for effect in effects if isinstance(effect, Start)] == ["container_1_b_5"]
    assert [effect for effect in effects if isinstance(effect, Terminate)] == [Terminate(known[1], 10 + known[1])]
    assert core.processes[known[1]].alive
    assert core.on_exit(20, known[1], "exit code 0") == []
    assert known[1] not in core.processes, "and their rows go with them"


def test_stop_terminates_then_kills_and_ends_the_metrics_manager_last() -> None:
    core = Supervisor(POLICY, 5000)
    core.want(0, SPECS)
    assert core.next_deadline_ms() is None
    for slot in range(4):
        assert core.on_started(10, slot, 100 + slot) == []
    assert core.stop(1000) == [Terminate(0, 100), Terminate(2, 102), Terminate(3, 103)]
    assert (core.stop(1100), core.next_deadline_ms()) == ([], 6000), "asked once, with a grace"
    for slot in (0, 2):
        assert core.on_exit(2000, slot, "exit code 0") == []
    assert (core.tick(5999), core.tick(6000)) == ([], [Kill(3, 103)])
    assert core.next_deadline_ms() == 6000 + KILL_AGAIN_MS
    assert (core.tick(5999 + KILL_AGAIN_MS), core.tick(6000 + KILL_AGAIN_MS)) == ([], [Kill(3, 103)])
    assert core.on_exit(7100, 3, "killed") == [Terminate(1, 101)]
    assert (core.next_deadline_ms(), core.all_ended()) == (12_100, False)
    assert core.on_exit(7200, 1, "exit code 0") == []
    assert (core.next_deadline_ms(), core.all_ended()) == (None, True)
    assert {process.state for process in core.processes.values()} == {ProcessState.STOPPED}
    assert core.want(8000, SPECS) == [], "nothing is started any more"


def test_process_specs_have_slot_name_and_task() -> None:
    plan = PackingPlan("t", (ContainerPlan(1, (InstancePlan(5, "b", 0), InstancePlan(2, "a", 0))),))
    ours = [
        ProcessSpec(0, "stream_manager", "stream_manager-1"),
        ProcessSpec(1, "metrics_manager", "metrics_manager-1"),
    ]

    def instances(*slots: int) -> list[ProcessSpec]:
        two = (("container_1_a_2", "a", 2), ("container_1_b_5", "b", 5))
        return [ProcessSpec(slot, "heron_instance", *rest) for slot, rest in zip(slots, two, strict=True)]

    assert build_process_specs(1, plan, {}) == [*ours, *instances(2, 3)]
    assert build_process_specs(1, plan, {}, {7: 4, 2: 3}) == [*ours, *instances(3, 5)], (
        "a slot that somebody has is not free"
    )
    assert build_process_specs(0, plan, {}) == [
        ProcessSpec(0, "topology_master", "topology_master-0"), ProcessSpec(1, "metrics_manager", "metrics_manager-0")
    ]  # fmt: skip
    assert [spec.stops_last for spec in build_process_specs(1, plan, {})] == [False, True, False, False]
    assert [spec.is_instance for spec in build_process_specs(1, plan, {})] == [False, False, True, True]


def test_replaced_process_is_retried_only_if_the_last_plan_wants_it() -> None:
    """A process that exits as replaced is started once more if a later plan wants it, otherwise not."""
    for last, effects in ((SPECS[2:3], [Start(SPECS[2], 0)]), ((), [FindReplacement(2)])):
        core = Supervisor(POLICY, 5000)
        core.want(0, SPECS[2:3])
        core.on_started(0, 2, 100)
        core.want(10, SPECS[2:3])
        core.want(20, last, settled=False)
        assert core.on_exit(1_000, 2, "exit 3", replaced=True) == effects


@pytest.mark.parametrize("expected", [False, True])
def test_exit_by_a_plan_or_changed_settings_counts_no_fault(expected: bool) -> None:
    core = Supervisor(POLICY, 5000)
    core.want(0, SPECS[2:3])
    core.on_started(0, 2, 100)
    for now in (1_000, 1_100, 1_200, 1_300):  # at any age
        if not expected:
            core.want(now, SPECS[2:3])  # moved away and back at once, each time
        leaves = core.on_exit(now, 2, "exit 122" if expected else "exit 121", expected=expected, replaced=not expected)
        assert leaves == [Start(SPECS[2], 0)]
        core.on_started(now, 2, now)
        process = core.processes[2]
        assert (process.restarts, process.last_error, process.backoff.young_deaths) == (0, "", 0)
        core.check()
    if not expected:
        assert core.on_exit(1_400, 2, "exit 121", replaced=True) == [FindReplacement(2)], "no plan has come since"
        return
    assert core.on_exit(1_400, 2, "exit 1") == [Start(SPECS[2], 1)], "the next one counts"
    core.on_started(1_400, 2, 500)
    core.want(1_500, ())
    assert core.on_exit(1_600, 2, "exit 122", expected=True) == []
    assert 2 not in core.processes, "one that is not wanted does not begin anew"


def test_readme_shows_the_transition_table() -> None:
    assert transition_table() in (Path(heron_container.__file__).parent / "README.md").read_text()

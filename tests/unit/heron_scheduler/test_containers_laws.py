"""Container table of the scheduler: starts, deaths, remains, restarts and stops in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heron_control.schedulers.containers import (
    ContainerStage,
    ContainerTable,
    KillGroup,
    StartContainer,
    TerminateContainer,
)
from heron_runtime.model.backoff import BackoffPolicy

POLICY = BackoffPolicy(100, 10_000, 60_000)
NUMBERS = (0, 1, 2)


class Host(RuleBasedStateMachine):
    """``leaders`` are live heron_containers; ``remains`` are non-empty groups whose leader is dead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.core = ContainerTable(POLICY, 8000, 2000)
        self.pids = iter(range(100, 1_000_000))
        self.leaders: dict[int, int] = {}
        self.remains: dict[int, int] = {}
        self.ordered: set[int] = set()
        self.touched: set[int] = set()
        self.begun = False

    def apply(self, effects: list) -> None:
        for effect in effects:
            self.touched.add(effect.number)
            match effect:
                case StartContainer(number):
                    assert number not in self.ordered, "started twice"
                    assert number not in self.leaders, "two containers of one number"
                    assert number not in self.remains, "started before its end was confirmed"
                    assert not self.core.stopping
                    self.ordered.add(number)
                case TerminateContainer(number, pid):
                    assert self.leaders[number] == pid
                case KillGroup(number, group):
                    assert group in (self.leaders.get(number), self.remains.get(number))
                    if self.leaders.pop(number, None) is not None:
                        self.remains[number] = group
                        self.apply(self.core.ended(self.now, number, "killed by SIGKILL"))
                    self.remains.pop(number)
                    self.apply(self.core.gone(self.now, number))

    @precondition(lambda self: not self.begun)
    @rule(found=st.dictionaries(st.sampled_from(NUMBERS), st.booleans()))
    def begin(self, found: dict[int, bool]) -> None:
        """Begin with some running containers and some remains."""
        self.begun = True
        for number, alive in found.items():
            group = next(self.pids)
            (self.leaders if alive else self.remains)[number] = group
            self.apply(self.core.adopt(self.now, number, group, alive))
        self.touched.clear()
        self.apply(self.core.want(self.now, NUMBERS))
        assert self.touched == set(NUMBERS) - set(found), "adopted containers are left alone"

    @precondition(lambda self: self.ordered)
    @rule(data=st.data(), works=st.booleans())
    def born(self, data: st.DataObject, works: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.ordered)))
        self.ordered.remove(number)
        if works:
            self.leaders[number] = next(self.pids)
            self.apply(self.core.born(self.now, number, self.leaders[number]))
        else:
            self.apply(self.core.ended(self.now, number, "not started: no memory"))
            self.apply(self.core.gone(self.now, number))

    @precondition(lambda self: self.leaders)
    @rule(data=st.data())
    def leader_dies(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.leaders)))
        self.remains[number] = self.leaders.pop(number)
        self.apply(self.core.ended(self.now, number, "killed by SIGKILL"))

    @precondition(lambda self: self.remains)
    @rule(data=st.data())
    def remains_go(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.remains)))
        del self.remains[number]
        self.apply(self.core.gone(self.now, number))

    @precondition(lambda self: self.begun)
    @rule(number=st.sampled_from(NUMBERS))
    def restart(self, number: int) -> None:
        self.touched.clear()
        self.apply(self.core.restart(self.now, number))
        assert self.touched <= {number}, "a restart touches exactly that container"

    @rule(passed=st.sampled_from([1, 100, 2_500, 10_000, 61_000]))
    def time_passes(self, passed: int) -> None:
        end = self.now + passed
        while (deadline := self.core.next_deadline_ms()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.apply(self.core.tick(self.now))
        self.now = end

    @precondition(lambda self: self.begun and not self.core.stopping)
    @rule(chance=st.integers(0, 7))
    def stop(self, chance: int) -> None:
        if chance == 0:
            self.apply(self.core.stop(self.now))

    @invariant()
    def holds(self) -> None:
        self.core.check()
        for number, row in self.core.rows.items():
            there = self.leaders.get(number) or self.remains.get(number) or 0
            assert row.group == there

    def teardown(self) -> None:
        """A killed topology ends from any state; a leader that ignores SIGTERM is killed."""
        self.apply(self.core.stop(self.now))
        while self.ordered:
            number = self.ordered.pop()
            self.leaders[number] = next(self.pids)
            self.apply(self.core.born(self.now, number, self.leaders[number]))
        self.time_passes(10_001)
        assert not self.leaders
        assert not self.remains
        assert self.core.all_over()
        assert self.core.next_deadline_ms() is None


Host.TestCase.settings = settings(stateful_step_count=40)
TestContainers = Host.TestCase


def test_requested_restart_does_not_count_as_a_death() -> None:
    core = ContainerTable(POLICY, 8000, 2000)
    core.want(0, [1])
    core.born(0, 1, 10)
    for group in range(11, 16):
        assert core.restart(0, 1) == [TerminateContainer(1, group - 1)]
        core.ended(0, 1, "exit code 0")
        assert core.gone(0, 1) == [StartContainer(1)]
        core.born(0, 1, group)
    assert core.rows[1].backoff.young_deaths == 0
    assert core.rows[1].last_error == ""


def test_removed_container_exits_and_stays_away() -> None:
    core = ContainerTable(POLICY, 8000, 2000)
    assert core.want(0, [0, 1]) == [StartContainer(0), StartContainer(1)]
    core.born(0, 0, 10)
    core.born(0, 1, 11)
    assert core.want(5, [0]) == []
    core.ended(6, 1, "exit code 0")
    assert core.gone(7, 1) == []
    assert core.rows[1].stage is ContainerStage.OVER
    assert core.want(8, [0, 1]) == [StartContainer(1)]


def test_consecutive_deaths_have_growing_delays() -> None:
    core = ContainerTable(POLICY, 8000, 2000)
    core.want(0, [1])
    waits = []
    for number in range(5):
        core.born(0, 1, 10 + number)
        core.ended(0, 1, "exit code 1")
        waits.append(bool(core.gone(0, 1)) or core.rows[1].due_ms)
        core.tick(core.rows[1].due_ms or 0)
    assert waits == [True, 100, 200, 400, 800]
    assert core.rows[1].backoff.young_deaths == 5
    core.restart(0, 1)
    assert core.rows[1].backoff.young_deaths == 0, "who asks for it may have mended what ended it"

"""One stateless task in an update: when it halts, what it reports, and when it resumes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.barriers import DRAIN_TIMEOUT_FACTOR, Barrier, UpdateDrain, barrier_frame, channel_tasks
from heron_runtime.model.plan import PhysicalPlan, PlanVersion, UpdatePhase
from heron_runtime.wire.data import BARRIER, Frame
from heronry.api.component import BasicBolt, Spout
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part, make_plan

NUMBER = 5
PARTS = {
    "s": Part(Spout, 2, {"default": ["n"]}),
    "b": Part(BasicBolt, 2, {"default": ["n"]}, [("s", "default", SHUFFLE)]),
    "r": Part(BasicBolt, 1, {}, [("b", "default", SHUFFLE), ("s", "default", SHUFFLE)]),
}
PLAN = make_plan(PARTS, {"topology.update.drain.secs": 2.0})
SPOUT, BOLT, LAST = 1, 3, 5


def plan(number: int, standstill: UpdatePhase = UpdatePhase.NONE) -> PhysicalPlan:
    return replace(PLAN, version=PlanVersion(1, number), standstill=standstill)


def barrier(source: int, task: int, number: int = NUMBER) -> Frame:
    return barrier_frame(source, task, 1, Barrier(0, number, 0, 0))


def test_channels_are_all_task_pairs_of_connected_components() -> None:
    assert channel_tasks(PLAN, "s") == ([], [3, 4, 5])
    assert channel_tasks(PLAN, "b") == ([1, 2], [5])
    assert channel_tasks(PLAN, "r") == ([1, 2, 3, 4], [])


@given(st.permutations([*range(5), 0, 1]), st.lists(st.sampled_from([NUMBER - 1, NUMBER]), min_size=4, max_size=4))
def test_bolt_halts_after_the_plan_and_the_barriers_of_all_upstream_tasks(order: list[int], first: list[int]) -> None:
    """The order does not matter; barriers of an earlier update do not count."""
    task, came, seen, told = UpdateDrain(plan(1), LAST, 0.0), set[int](), set[int](), False
    for what in order:
        if what == 4:
            task.follow(plan(NUMBER, UpdatePhase.DRAINING), 0.0)
            told = True
        else:
            source = 1 + what
            number = NUMBER if source in came else first[what]
            came.add(source)
            task.barrier(barrier(source, LAST, number))
            if number == NUMBER:
                seen.add(source)
        assert task.due == (told and seen == {1, 2, 3, 4})
        assert not task.quiet
        task.check()
    for source in (1, 2, 3, 4):
        task.barrier(barrier(source, LAST))
    assert task.due
    assert task.barriers() == [], "nobody reads it"
    assert (task.quiet, task.due, task.report.aligned) == (True, False, NUMBER)


def test_task_settles_and_resumes_with_the_matching_plans() -> None:
    task = UpdateDrain(plan(1), SPOUT, 0.0)
    task.follow(plan(NUMBER, UpdatePhase.DRAINING), 10.0)
    assert (task.is_draining, task.due, task.quiet) == (True, True, False), "a spout waits for nobody's barrier"
    assert [frame.destination_task for frame in task.barriers()] == [3, 4, 5]
    task.follow(plan(NUMBER - 1), 20.0)
    assert task.quiet, "an older plan is refused"
    task.follow(plan(NUMBER + 1, UpdatePhase.SETTLING), 30.0)
    assert (task.quiet, task.due, task.report.aligned) == (True, False, NUMBER + 1), "it goes by the new plan"
    task.follow(plan(NUMBER + 2), 40.0)
    assert (task.is_draining, task.quiet, task.report.aligned) == (False, False, 0)
    task.check()


def test_late_plan_of_an_earlier_update_keeps_newer_barriers() -> None:
    task = UpdateDrain(plan(1), BOLT, 0.0)
    task.barrier(barrier(1, BOLT, NUMBER + 1))
    task.follow(plan(NUMBER, UpdatePhase.DRAINING), 10.0)
    task.barrier(barrier(2, BOLT, NUMBER + 1))
    task.follow(plan(NUMBER + 1, UpdatePhase.DRAINING), 20.0)
    assert task.due


def test_process_started_while_settling_halts_without_a_report() -> None:
    task = UpdateDrain(plan(NUMBER, UpdatePhase.SETTLING), SPOUT, 0.0)
    assert (task.quiet, task.due, task.report.aligned) == (True, False, 0)


def test_task_resumes_after_its_deadline() -> None:
    for standstill in (UpdatePhase.DRAINING, UpdatePhase.SETTLING):
        task = UpdateDrain(plan(NUMBER, standstill), SPOUT, 1_000.0)
        deadline = task.deadline_ms()
        assert deadline == 1_000.0 + DRAIN_TIMEOUT_FACTOR * 2_000
        task.tick(deadline - 1)
        assert task.is_draining
        task.tick(deadline)
        assert (task.is_draining, task.quiet, task.due, task.deadline_ms()) == (False, False, False, None)
        task.check()


class Emits(Spout):
    """Spout that emits nothing; the test builds the frames."""

    def next_tuple(self) -> None: ...


class Batches(BasicBolt):
    """Bolt that records the tuples and ticks it received."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.taken: list[Any] = []
        self.ticks = 0

    def process(self, tup: Any) -> None:
        self.taken.append(tup.values[0])

    def process_tick(self, tup: Any) -> None:
        self.ticks += 1


@pytest.mark.parametrize("behind", [0, 1])
def test_bolt_finishes_input_before_the_barrier_and_stops_ticks(behind: int) -> None:
    parts = {
        "s": Part(Emits, 1, {"default": ["n"]}),
        "b": Part(Batches, 1, {}, [("s", "default", SHUFFLE)], {"topology.tick.tuple.freq.ms": 10}),
    }
    world = ExecutorHarness(parts)
    bolt, (user,) = world.executors[2], world.objects("b")
    codec = bolt.task.codec
    encoded = codec.encode_cut([(1,), (2,)])[0]
    data = Frame(1, 0, 2, 2, 1, int(encoded.codec), encoded.data)
    drains = replace(world.plan, version=PlanVersion(1, NUMBER), standstill=UpdatePhase.DRAINING)
    bolt.on_plan(world.clock.ms, drains)
    bolt.on_frames(world.clock.ms, [data, barrier(1, 2), *[data] * behind])
    bolt.run(world.clock.ms)
    assert bolt._work is not None  # type: ignore[attr-defined]
    assert bolt._work.count == 2, "no batch spans a barrier"  # type: ignore[attr-defined]
    for _ in range(5):
        world.clock.now += 0.02
        bolt.run(world.clock.ms)
        assert not bolt.output.draining.quiet or len(user.taken) == 2 + 2 * behind, "only once all is processed"
    assert bolt.output.draining.quiet
    assert user.taken == [1, 2, *[1, 2] * behind], "what comes all the same is processed"
    ticks = user.ticks
    for _ in range(5):
        world.clock.now += 0.02
        bolt.run(world.clock.ms)
    assert user.ticks == ticks, "nothing leaves it of its own accord"
    bolt.on_plan(world.clock.ms, replace(world.plan, version=PlanVersion(1, NUMBER + 1)))
    world.clock.now += 0.05
    bolt.run(world.clock.ms)
    assert user.ticks > ticks
    assert data.codec != BARRIER

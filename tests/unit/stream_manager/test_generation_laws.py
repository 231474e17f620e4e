"""Generations under random schedules of plans, hellos, ends and packets: no frame crosses a generation.

Reports and commands arrive, and the next generation works.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from heron_runtime.model.checkpoints import CheckpointCommand, TaskReport
from heron_runtime.model.plan import (
    NO_GENERATION,
    Generation,
    GenerationMember,
    GenerationPhase,
    ParticipantKind,
    stream_manager_of,
)
from stream_manager.core import events as e
from stream_manager.core.connections import ConnectionTable
from stream_manager.core.plan import NONE_CARRIED, GenerationState
from tests.support.harness.generations import CONTAINERS, TASKS, GenerationHarness

SEEDS = range(8)
ROUNDS, STEPS = 3, 250
SPOUTS, READERS = (1, 5, 7), {1: (2, 6), 5: (2, 6), 7: (3,), 2: (4, 8), 6: (4, 8)}
ACTIONS = {"plan": 6, "call": 8, "move": 60, "join": 8, "send": 30, "take": 6, "word": 4, "fault": 2, "master": 4}


class Schedule:
    """Random steps on a harness, followed by a phase without faults."""

    def __init__(self, seed: int) -> None:
        self.world = GenerationHarness(seed)
        self.rng = self.world.rng
        for container in CONTAINERS:
            self.world.tell(container, e.MasterConnected())

    def step(self) -> None:
        (action,) = self.rng.choices(list(ACTIONS), list(ACTIONS.values()))
        getattr(self, action)()

    def plan(self) -> None:
        container, world = self.rng.choice(CONTAINERS), self.world
        if self.rng.random() < 0.8:
            world.hear_plan(container, self.rng.randrange(len(world.plans)))
        elif self.rng.random() < 0.3:
            world.next_generation()
        else:
            world.run_generation()

    def call(self) -> None:
        world, rng = self.world, self.rng
        a, b = sorted(rng.sample(CONTAINERS, 2))
        if not any(end.container == a and end.peer == b for end in world.living.values()):
            world.dial(a, b)
        if world.calls and rng.random() < 0.8:
            world.answer(*world.calls.pop(rng.randrange(len(world.calls))))
        if world.answers and rng.random() < 0.8:
            world.answered(*world.answers.pop(rng.randrange(len(world.answers))))

    def move(self) -> None:
        world = self.world
        if world.ready and self.rng.random() < 0.5:
            world.pump(world.ends[self.rng.choice(list(world.ready))])
        elif moving := [end for end in world.living.values() if end.twin is not None]:
            end = self.rng.choice(moving)
            assert end.twin is not None
            world.deliver(end.twin)

    def join(self) -> None:
        world, task = self.world, self.rng.choice(list(TASKS))
        end = world.instance(task)
        if end is None or self.rng.random() < 0.3:
            number = world.generation.number
            world.join(task, self.rng.choice((0, number, number, number, number - 1)))
        else:
            world.open_instance(end)

    def send(self) -> None:
        task = self.rng.choice(list(READERS))
        end = self.world.instance(task)
        if end is not None:
            self.world.send(end, self.rng.choice(READERS[task]))

    def take(self) -> None:
        end = self.world.instance(self.rng.choice(list(TASKS)))
        if end is not None:
            self.world.take(end)

    def word(self) -> None:
        world, rng = self.world, self.rng
        end = world.instance(rng.choice(list(TASKS)))
        if end is not None:
            world.report(end, TaskReport(world.generation.number, bool(rng.randrange(2)), aligned=rng.randrange(3)))
        if rng.random() < 0.3:
            world.wish = replace(world.wish, generation=world.generation.number, under=world.wish.under + 1)
        world.say_wish(rng.choice(CONTAINERS))

    def fault(self) -> None:
        world, kind = self.world, self.rng.randrange(4)
        if kind == 0:
            world.restart(self.rng.choice(CONTAINERS))
            world.publish()
        elif world.living:
            world.hang_up(self.rng.choice(list(world.living.values())))

    def master(self) -> None:
        container = self.rng.choice(CONTAINERS)
        if not self.world.master[container]:
            self.world.tell(container, e.MasterConnected())
        elif self.rng.random() < 0.2:
            self.world.tell(container, e.MasterDisconnected())
        self.world.tick(self.rng.choice((10, 100, 1000)))

    def heal(self) -> None:
        """Run a generation without faults: all participants restore, the topology runs, and frames pass."""
        world = self.world
        world.next_generation()
        number = world.generation.number
        for container in CONTAINERS:
            if not world.master[container]:
                world.tell(container, e.MasterConnected())
            world.hear_plan(container, len(world.plans) - 1)
        self.settle()
        for a in CONTAINERS:
            for b in CONTAINERS:
                if a < b:
                    world.dial(a, b)
        self.settle()
        for task in TASKS:
            world.open_instance(world.join(task, number))
        self.settle()
        assert all(world.says_restored(c) for c in CONTAINERS), "all are restored"
        world.run_generation()
        assert world.generation.phase is GenerationPhase.RUNNING
        for container in CONTAINERS:
            world.hear_plan(container, len(world.plans) - 1)
        before = world.accepted, world.delivered
        for _ in range(30):
            for task, readers in READERS.items():
                end = world.instance(task)
                assert end is not None
                for reader in readers:
                    world.send(end, reader)
            self.settle()
        sent, got = world.accepted - before[0], world.delivered - before[1]
        assert sent == got >= 30 * len(READERS), "all frames come through, and credit comes back"

    def settle(self) -> None:
        """Run until nothing moves."""
        world, moved = self.world, True
        while moved:
            moved = False
            while world.calls:
                world.answer(*world.calls.pop(0))
            while world.answers:
                world.answered(*world.answers.pop(0))
            for number in list(world.ready):
                moved |= world.pump(world.ends[number])
            for end in list(world.living.values()):
                moved |= end.twin is not None and world.deliver(end.twin)
                world.take(end)


def test_frames_never_cross_generations() -> None:
    found: Counter[str] = Counter()
    for seed in SEEDS:
        schedule = Schedule(seed)
        world = schedule.world
        for _ in range(ROUNDS):
            for _ in range(STEPS):
                schedule.step()
                found["blocked"] += sum(len(core.forwarder.blocked) for core in world.cores.values())
                found["newcomers"] += sum(
                    core.generation.carried_generation == NONE_CARRIED for core in world.cores.values()
                )
            schedule.heal()
        for core in world.cores.values():
            assert core.causes.union() == ()
            assert core.forwarder.blocked == set()
            assert core.violations == 0
        dropped = sum(sum(core.forwarder.stale.values()) for core in world.cores.values())
        lost = sum(sum(n.link.lost.values()) for core in world.cores.values() for n in core.connections.all())
        moved = sum(core.forwarder.moved_frames for core in world.cores.values())
        counted = world.delivered + dropped + lost + moved + world.buried
        assert world.accepted <= counted, "no frame is gone without being counted"
        assert not lost, "what a generation takes with it is made up for by the next one"
        found.update(dropped=dropped, over=len(world.over), delivered=world.delivered)
    assert len(found) == 5, found
    assert min(found.values()) > 0, "the schedules reach what they are for"


def test_stateless_topology_reports_nothing_and_links_reconnect() -> None:
    world = GenerationHarness(0)
    world.generation = NO_GENERATION
    world.publish()
    world.wish = CheckpointCommand(0)
    schedule = Schedule.__new__(Schedule)
    schedule.world, schedule.rng = world, world.rng
    for container in CONTAINERS:
        world.tell(container, e.MasterConnected())
        world.hear_plan(container, len(world.plans) - 1)
    for _ in range(2):
        for end in list(world.living.values()):
            world.hang_up(end)
        for a, b in ((1, 2), (1, 3), (2, 3)):
            world.dial(a, b)
        ends = [world.join(task, 0) for task in TASKS]
        for end in ends:
            world.open_instance(end)
        schedule.settle()
        assert all(core.is_linked() for core in world.cores.values())
        for end in ends:
            world.report(end, TaskReport(0, lost="x"))
            for reader in READERS.get(end.task, ()):
                world.send(end, reader)
        schedule.settle()
        world.tick(1000)
    assert world.delivered == world.accepted > 0
    told = [report for reports in world.told.values() for report in reports]
    assert {report.place.kind for report in told} == {ParticipantKind.TASK}, "nobody has a word of his own to say"
    assert all(core.forwarder.stale == {} and not core.generation.loss_reason for core in world.cores.values())
    assert all(core.peer_hello().generation == 0 for core in world.cores.values())


# Single rules that are easy to get wrong.


@pytest.mark.parametrize(("member", "runs"), [(7, True), (6, False), (8, False), (None, False)])
def test_generation_runs_only_with_the_named_process(member: int | None, runs: bool) -> None:
    members = () if member is None else (GenerationMember(stream_manager_of(1), member),)
    plan = SimpleNamespace(generation=Generation(3, GenerationPhase.RUNNING, members=members))
    force = GenerationState(SimpleNamespace(container=1, incarnation=7), ConnectionTable)  # type: ignore[arg-type]
    force.apply_plan(SimpleNamespace(plan=plan, peers=()))  # type: ignore[arg-type]
    assert (force.carried_generation, bool(force.loss_reason)) == (3 if runs else NONE_CARRIED, not runs)

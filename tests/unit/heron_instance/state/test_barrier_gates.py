"""Checkpoints in executors: frame counts at a barrier, alignment, and no batch across a barrier."""

from __future__ import annotations

from typing import Any

from heron_runtime.model.checkpoints import CheckpointCommand
from heron_runtime.wire.data import BARRIER, Frame
from heronry.api.component import Bolt, Spout
from tests.support.harness.executors import SHUFFLE, Part
from tests.support.harness.stateful_executors import StatefulExecutorHarness


class Emits(Spout):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        if self.n < 200:
            self.n += 1
            self.emit([self.n])


class Passes(Bolt):
    def process(self, tup: Any) -> None:
        self.emit(list(tup.values))


class Ends(Bolt):
    def process(self, tup: Any) -> None:
        pass


def ran(passes: type[Bolt] = Passes) -> StatefulExecutorHarness:
    """Return a settled harness: a spout (task 1), a bolt that forwards (2) and a bolt that ends the stream (3)."""
    parts = {
        "s": Part(Emits, 1, {"default": ["n"]}),
        "b": Part(passes, 1, {"default": ["n"]}, [("s", "default", SHUFFLE)]),
        "e": Part(Ends, 1, {}, [("b", "default", SHUFFLE)]),
    }
    world = StatefulExecutorHarness(parts)
    world.run()
    return world


def test_frames_sent_before_a_barrier_equal_frames_taken() -> None:
    """The sender's frame count for a receiver equals the receiver's count of taken frames once all tasks are idle."""
    world = ran()
    for source, reader in ((1, 2), (2, 3)):
        frames = sum(len(flush.frames) for task, flush in world.flushes if task == source)
        assert frames > 0
        assert world.executors[source].output.sent_frames[reader] == frames
        assert world.state_of(world.executors[reader])._participant._frames[source] == frames


def test_no_batch_spans_a_barrier() -> None:
    world = ran()
    gates = world.state_of(world.executors[2])
    barrier, data = Frame(1, 0, 2, 0, 1, BARRIER, b""), Frame(1, 0, 2, 1, 1, 0, b"x")
    taken = dict(gates._participant._frames)
    assert not gates.can_take(barrier, True)
    assert gates.can_take(barrier, False)
    assert gates._participant._frames == taken, "a barrier is no data"
    assert gates.can_take(data, True)
    assert gates.can_take(data, False)
    assert gates._participant._frames == {1: taken[1] + 2}


def hear(world: StatefulExecutorHarness, wish: CheckpointCommand) -> None:
    for executor in world.executors.values():
        world.state_of(executor).apply_command(wish)
    world.run()


def test_checkpoint_passes_every_task_and_reports_completion_once() -> None:
    heard: list[int] = []

    class Hears(Passes):
        def on_checkpoint_complete(self, checkpoint: int) -> None:
            heard.append(checkpoint)

    world = ran(Hears)
    hear(world, CheckpointCommand(1, under=4, turn=1))
    states = [world.state_of(executor) for executor in world.executors.values()]
    assert [state.report.aligned for state in states] == [4, 4, 4]
    assert [state.saved for state in states] == [4, 4, 4]
    assert all(state.is_halted for state in states)
    assert heard == []
    for _ in range(2):
        hear(world, CheckpointCommand(1, over=4, complete=4))
    assert heard == [4], "once"
    assert not any(state.is_halted for state in states)


def test_exception_in_on_checkpoint_complete_fails_its_task() -> None:
    class Raises(Passes):
        def on_checkpoint_complete(self, checkpoint: int) -> None:
            raise OSError("the mail server is down")

    world = ran(Raises)
    hear(world, CheckpointCommand(1, under=4, turn=1))
    hear(world, CheckpointCommand(1, over=4, complete=4))
    told = [executor.failed and str(executor.failed) for executor in world.executors.values()]
    assert told == [None, "b.on_checkpoint_complete raised OSError: the mail server is down", None]


def test_idle_spout_declines_a_checkpoint_whose_part_is_late() -> None:
    world = ran()
    spout = world.executors[1]
    hear(world, CheckpointCommand(1, under=4, turn=1, timeout_ms=1000.0))
    state = world.state_of(spout)
    state.apply_command(CheckpointCommand(1, over=4, timeout_ms=1000.0))  # resumed, but not complete
    spout.on_wake(world.clock.ms)
    assert not state.is_halted
    until = world.clock.now + 2.0
    while world.clock.now < until and not state.report.declined:
        result = spout.run(world.clock.ms)
        world.clock.now += max(0.001, (result.wait_ms or 0.0) / 1000)
        while result.at_rest and world.clock.now < until:  # the shell polls and does nothing else
            wait_ms = spout.poll_idle(world.clock.ms)
            if wait_ms is None:
                break
            world.clock.now += wait_ms / 1000
    assert state.report.declined == 4
    assert world.clock.now < until

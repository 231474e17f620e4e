"""Shutdown of an instance: received but unprocessed input fails at once, not by timeout."""

from __future__ import annotations

import time
from typing import Any

import pytest

from heron_instance.core.outbox import Flush
from heron_instance.shell.executor_loop import ExecutorLoop, StopRequested, TaskReplaced
from heron_instance.shell.flush_timer import FlushTimer
from heron_instance.shell.inbox import Inbox, LeaveRequested, Stop
from heron_runtime.wire.data import Packet
from tests.support.harness.executors import SHUFFLE, Counts, ExecutorHarness, Part
from tests.support.harness.single_spout import Nothing, Source

SPOUT, BOLT = 1, 2


class Post:
    """Gateway stand-in that collects a runner's flushes."""

    def __init__(self) -> None:
        self.flushes: list[Flush] = []
        self.sent_weight = 0
        self.flush_timer = FlushTimer(self.post, self.wake)

    def record_taken(self, taken_weight: int) -> None:
        pass

    def request_wake_for_room(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def post(self, flushes: list[Flush]) -> None:
        self.flushes += flushes

    def offer_credit(self, total_weight: int, tuple_weight: int) -> None:
        pass


@pytest.mark.parametrize(("signal", "raised"), [(Stop(), StopRequested), (LeaveRequested("replaced"), TaskReplaced)])
def test_input_after_the_stop_signal_fails_with_the_rest(signal: Any, raised: type[Exception]) -> None:
    world = ExecutorHarness({
        "spout": Part(type("Few", (Source,), {"total": 0}), 1, {"default": ("word",)}),
        "bolt": Part(Nothing, 1, {}, [("spout", "default", SHUFFLE)]),
    })  # fmt: skip
    (source,) = world.objects("spout")
    frames = world.wires[SPOUT, BOLT]
    while len(frames) < 3:
        source.total = len(frames) + 1  # one frame for each
        world.step(SPOUT)
        world.clock.now += 0.02
    world.clock.now = time.monotonic() + 1000  # the runner uses the real clock
    inbox, post = Inbox(), Post()
    gateway: Any = post  # a stand-in
    first, second, third = (Packet(number, frames=[frame]) for number, frame in enumerate(frames, 1))
    for item in (first, signal, second):
        inbox.put(item)
    runner = ExecutorLoop(lambda driver: world.drive(BOLT, driver), inbox, gateway, Counts(), 1000.0)
    with pytest.raises(raised):
        runner.run()
    inbox.put(third)
    runner.finish()
    for flush in post.flushes:
        world.send(BOLT, flush)
    assert len(world.failed) == 3
    assert not world.tracker

"""Loop of an executor, its inbox, and the values that are new for each process of a task."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heron_instance.core.outbox import Flush
from heron_instance.shell import executor_loop as runner_module
from heron_instance.shell import main
from heron_instance.shell.executor_loop import ExecutorLoop, StopRequested, TaskReplaced
from heron_instance.shell.flush_timer import FlushTimer
from heron_instance.shell.inbox import Inbox, InboxItem, LeaveRequested, Stop, WakeUp
from heron_instance.shell.main import InstanceProcess
from heron_runtime.launch import Launch
from heron_runtime.wire.data import Packet
from tests.support.harness.executors import SHUFFLE, Counts, ExecutorHarness, Part, make_plan
from tests.support.harness.single_spout import Nothing, SingleSpout, Source

BOUND_SECONDS = 60.0


@pytest.fixture
def shaken_threads() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def interruptions() -> Iterator[None]:
    """Interrupt the main thread every 50 µs, so that time passes between any two of its steps."""
    with alarms(lambda *_: None):
        signal.setitimer(signal.ITIMER_REAL, 5e-5, 5e-5)
        yield


@contextmanager
def alarms(handler: Callable[..., None]) -> Iterator[None]:
    """Own SIGALRM for the block. The test timeout uses the same signal and must not receive a late alarm."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # drops an alarm that is still pending
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("interruptions")
def test_wait_ends_if_its_deadline_passes_before_the_sleep() -> None:
    # The deadline of a one-microsecond wait often passes before the thread sleeps. A queue that then
    # sleeps indefinitely is detected within some hundred rounds.
    inbox, rounds = Inbox(), 5000
    alarm = threading.Timer(BOUND_SECONDS, inbox.put, [Stop()])  # turns a hang into a failure
    alarm.start()
    try:
        for _ in range(rounds):
            inbox.put(WakeUp())
            assert len(inbox.take(BOUND_SECONDS)) == 1
            assert inbox.take(1e-6) == [], "it slept although its wait was over"
    finally:
        alarm.cancel()


@pytest.mark.usefixtures("shaken_threads")
@pytest.mark.parametrize("wait_seconds", [None, 30.0, 1e-5, 0])
def test_every_item_arrives_once_and_in_order(wait_seconds: float | None) -> None:
    putters, each = 3, 4000
    inbox, rng = Inbox(), random.Random(7)
    pauses = [[rng.random() < 0.1 for _ in range(each)] for _ in range(putters)]

    def put_all(number: int) -> None:
        for place in range(each):
            inbox.put(LeaveRequested(f"{number} {place}"))
            if pauses[number][place]:
                threading.Event().wait(1e-5)  # lets the other side sleep occasionally

    threads = [threading.Thread(target=put_all, args=(number,), daemon=True) for number in range(putters)]
    found: list[InboxItem] = []

    def executor() -> None:
        while len(found) < putters * each:
            found.extend(inbox.take(wait_seconds))

    taker = threading.Thread(target=executor, daemon=True)
    for thread in (taker, *threads):
        thread.start()
    taker.join(BOUND_SECONDS)
    assert not taker.is_alive(), f"{len(found)} of {putters * each} have arrived"
    came = [item.reason.split() for item in found if isinstance(item, LeaveRequested)]
    for number in range(putters):
        assert [int(place) for who, place in came if int(who) == number] == list(range(each))


@pytest.mark.parametrize("wait_seconds", [None, 60.0])
def test_signal_handler_wakes_the_interrupted_thread(wait_seconds: float | None) -> None:
    inbox = Inbox()
    with alarms(lambda *_: inbox.put(Stop())):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        (item,) = inbox.take(wait_seconds)
    assert isinstance(item, Stop)


def test_stale_wake_up_does_not_end_a_later_wait() -> None:
    inbox = Inbox()
    for _ in range(3):
        inbox.put(WakeUp())
        inbox.put(WakeUp())
        assert len(inbox.take(0)) == 2
    later = threading.Timer(0.05, inbox.put, [Stop()])
    later.start()
    (item,) = inbox.take(60.0)
    assert isinstance(item, Stop)
    assert inbox.take(0) == []


class Idle:
    """Runner whose inbox advances the clock at once. ``rings``: number of waits before an item arrives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rings: int = 10**9) -> None:
        self.now_ms = 1000.0
        self.rings = rings
        self.waits: list[float] = []
        self.polled: list[float] = []
        self.collected: list[float] = []
        self.sent_weight = 0  # of the gateway
        self.post = self.wake = lambda *_: None
        monkeypatch.setattr(runner_module, "now_ms", lambda: self.now_ms)
        here: Any = self
        self.flush_timer = FlushTimer(self.post, self.wake)
        self.runner = ExecutorLoop(lambda driver: SingleSpout(total=0).world.drive(1, driver), here, here, here, 1000.0)
        monkeypatch.setattr(self.runner.executor, "poll_idle", self.poll)
        self.runner._next_report_ms = self.now_ms + 1000.0
        monkeypatch.setattr(self.runner, "collect", lambda: self.collected.append(self.now_ms))

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now_ms += 1000 * seconds
        return len(self.waits) > self.rings

    def poll(self, now_ms: float) -> float | None:
        self.polled.append(now_ms)
        self.now_ms += 3.0  # duration of next_tuple
        return 16.0 if len(self.polled) < 200 else None


def test_idle_polling_ends_after_an_emit(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(monkeypatch)
    idle.runner._poll_idle(16.0)
    assert len(idle.polled) == 200
    assert set(idle.waits) == {0.016}
    assert idle.runner._busy_ms == pytest.approx(600.0)
    assert idle.runner._idle_ms == pytest.approx(3200.0)
    assert [round(at) for at in idle.collected] == [2007, 3014, 4021][: len(idle.collected)]
    assert len(idle.collected) == 3, "a report each second"


def test_idle_polling_ends_when_an_item_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(monkeypatch, rings=5)
    idle.runner._poll_idle(16.0)
    assert (len(idle.polled), len(idle.waits)) == (5, 6)
    assert idle.runner._idle_ms == pytest.approx(6 * 16.0)


def test_idle_polling_ends_when_the_gateway_has_sent_data(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(monkeypatch)
    idle.sent_weight = 7
    idle.runner._poll_idle(16.0)
    assert idle.polled == []


def test_wait_for_an_item_does_not_take_it() -> None:
    inbox, wake = Inbox(), WakeUp()
    assert not inbox.wait(0.0)
    assert not inbox.wait(-1.0)
    inbox.put(wake)
    assert inbox.wait(60.0)
    assert inbox.wait(60.0), "it is there still"
    assert inbox.take(0) == [wake]
    assert not inbox.wait(0.0)


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


def an_instance(home: Path) -> InstanceProcess:
    launch = Launch("local", "me", "d", "t", "t-1", f"files://{home}/state", str(home), str(home))
    return InstanceProcess(launch, 1, "s", 1, 0, -1, "")


def test_each_start_has_a_greater_incarnation(tmp_path: Path) -> None:
    incarnations = [an_instance(tmp_path).incarnation for _ in range(5)]
    assert incarnations == sorted(set(incarnations))
    assert len({number & 0xFFFF for number in incarnations}) > 1, "roots show it, too"


def keys_of_a_fork(instance: InstanceProcess) -> list[int]:
    """Return the first keys that a child process forked now draws."""
    plan = make_plan({"s": Part(Source, 1, {"default": ["x"]}), "r": Part(Nothing, 1, {}, [("s", "default", SHUFFLE)])})
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            driver: Any = None  # the executor does not run
            executor: Any = instance._make_executor(plan, None, driver)
            os.write(write, executor.collector._draw(4).tobytes())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.wait()
    return list(np.frombuffer(data, np.uint64))


def test_forked_processes_draw_different_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "load", lambda path: Source)
    instance = an_instance(tmp_path)
    first, second = keys_of_a_fork(instance), keys_of_a_fork(instance)
    assert len(first) == len(second) == 4
    assert not set(first) & set(second)

"""Inbox: every item is taken once and in order, and a bounded wait ends."""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from heron_instance.shell.inbox import Inbox, InboxItem, LeaveRequested, Stop, WakeUp

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

"""The inbox: what is put is taken, once and in order, and a wait with an end ends."""

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
    """Threads take turns at every chance they have."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def interruptions() -> Iterator[None]:
    """The main thread is interrupted every 50 µs, so that time passes between any two of its steps."""
    with alarms(lambda *_: None):
        signal.setitimer(signal.ITIMER_REAL, 5e-5, 5e-5)
        yield


@contextmanager
def alarms(handler: Callable[..., None]) -> Iterator[None]:
    """SIGALRM is ours. It is the timer of each test's time limit, too, which must not get a late one of ours."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # one that is still on its way to some thread is dropped
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("interruptions")
def test_a_wait_whose_end_is_past_before_the_thread_sleeps_ends() -> None:
    # Something came while nobody waited, and then a wait of a microsecond: its end is often past before the thread is
    # asleep. A queue that then sleeps without an end is found within some hundred rounds.
    inbox, rounds = Inbox(), 5000
    alarm = threading.Timer(BOUND_SECONDS, inbox.put, [Stop()])  # or a fault would be a test that hangs
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
def test_everything_arrives_once_and_in_order(wait_seconds: float | None) -> None:
    putters, each = 3, 4000
    inbox, rng = Inbox(), random.Random(7)
    pauses = [[rng.random() < 0.1 for _ in range(each)] for _ in range(putters)]

    def put_all(number: int) -> None:
        for place in range(each):
            inbox.put(LeaveRequested(f"{number} {place}"))
            if pauses[number][place]:
                threading.Event().wait(1e-5)  # so that the other side falls asleep now and then

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
def test_a_signal_handler_wakes_the_thread_it_interrupts(wait_seconds: float | None) -> None:
    inbox = Inbox()
    with alarms(lambda *_: inbox.put(Stop())):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        (item,) = inbox.take(wait_seconds)
    assert isinstance(item, Stop)


def test_a_bell_that_was_rung_for_what_is_taken_already_wakes_nobody() -> None:
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

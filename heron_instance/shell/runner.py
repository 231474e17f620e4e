"""The executor thread's loop: inbox, one step of the core, flushes to the gateway, wait.

It runs on the process's main thread, so that signals and profilers see user code. It blocks in one place only, where it
waits for the inbox; user code may of course block it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from heron_instance.core.executor import Executor
from heron_instance.core.telemetry import TelemetrySink
from heron_instance.shell.gateway import Gateway
from heron_instance.shell.inbox import (
    Inbox,
    Item,
    MustLeave,
    PauseChanged,
    PlanArrived,
    Stop,
    StreamManagerSaidHello,
    Wake,
    WeightsChanged,
)
from heron_runtime.wire.data import Packet


class Left(Exception):
    """This process has been replaced."""


class Stopped(Exception):
    """SIGTERM."""


def now_ms() -> float:
    """Monotonic milliseconds, the origin of every time in the instance."""
    return time.monotonic() * 1000


class Runner:
    """Drives one executor until told to stop."""

    def __init__(
        self, executor: Executor, inbox: Inbox, gateway: Gateway, telemetry: TelemetrySink, report_each_ms: float
    ) -> None:
        self._executor = executor
        self._inbox = inbox
        self._gateway = gateway
        self._telemetry = telemetry
        self._report_each_ms = report_each_ms
        self._next_report_ms = 0.0
        self._sent_seen = 0
        self._items: Iterator[Item] = iter(())  # taken from the inbox and not yet handled
        self._busy_ms = self._idle_ms = self._blocked_ms = 0.0

    def run(self) -> None:
        """Until the end. Raises Stopped, Left, UserCodeFailed; what was to be sent is with the gateway then."""
        executor, inbox, gateway = self._executor, self._inbox, self._gateway
        wait_ms: float | None = 0.0
        began = now_ms()
        while True:
            paused = executor.paused  # while it waits: what ends a pause comes at the end of the wait
            self._items = iter(inbox.take(None if wait_ms is None else wait_ms / 1000))
            for item in self._items:
                self.handle(item)
            now = now_ms()
            waited = now - began
            if executor.full or paused:
                self._blocked_ms += waited
            else:
                self._idle_ms += waited
            sent = gateway.sent_weight
            if sent != self._sent_seen:
                executor.on_sent(now, sent - self._sent_seen)
                self._sent_seen = sent
            result = executor.run(now)
            if result.flushes:
                gateway.post(result.flushes)
            if result.credit_bytes is not None:
                gateway.offer_credit(result.credit_bytes, result.tuple_weight)
            if executor.failed is not None:
                raise executor.failed
            began = now_ms()
            self._busy_ms += began - now
            if began >= self._next_report_ms:
                self._next_report_ms = began + self._report_each_ms
                self.collect()
            wait_ms = result.wait_ms
            limit = self._next_report_ms - began
            wait_ms = limit if wait_ms is None or wait_ms > limit else wait_ms
            if executor.full:
                gateway.tell_sent = True
                if gateway.sent_weight != self._sent_seen:
                    wait_ms = 0.0
            elif result.poll_idle is not None:
                self._poll_idle(result.poll_idle, result.wait_ms or 0.0)
                wait_ms, began = 0.0, now_ms()

    def _poll_idle(self, poll: Callable[[float], float | None], wait_ms: float) -> None:
        """A spout at rest: poll it, sleep, and touch nothing else, until something arrives or is emitted."""
        inbox, gateway = self._inbox, self._gateway
        began = now_ms()
        while not inbox.wait(wait_ms / 1000) and gateway.sent_weight == self._sent_seen:
            now = now_ms()
            self._idle_ms += now - began
            found = poll(now)
            began = now_ms()
            self._busy_ms += began - now
            if found is None:
                return
            wait_ms = found
            if began >= self._next_report_ms:
                self._next_report_ms = began + self._report_each_ms
                self.collect()
        self._idle_ms += now_ms() - began

    def handle(self, item: Item) -> None:
        """One item of the inbox. Raises Stopped, Left."""
        executor, now = self._executor, now_ms()
        match item:
            case Packet():
                if item.frames:
                    executor.on_frames(now, item.frames)
                if item.verdicts:
                    executor.on_verdicts(now, item.verdicts)
            case PauseChanged():
                executor.on_pause(now, item.paused)
            case WeightsChanged():
                executor.on_weights(now, item.weights)
            case PlanArrived():
                executor.on_plan(now, item.plan)
            case StreamManagerSaidHello():
                executor.on_stream_manager(now, item.incarnation)
            case Wake():
                executor.on_wake(now)
            case MustLeave():
                raise Left(item.reason)
            case Stop():
                raise Stopped

    def finish(self) -> None:
        """Close user code, hand the rest to the gateway: input that came behind the stop signal fails with it."""
        executor = self._executor
        for item in (*self._items, *self._inbox.take(0)):
            if isinstance(item, Packet) and item.frames:
                executor.on_frames(now_ms(), item.frames)
        self._gateway.post(executor.stop(now_ms()))
        self.collect()

    def collect(self) -> None:
        """Bring the totals up to date for the next report."""
        telemetry = self._telemetry
        telemetry.count("__busy-time-ms", self._busy_ms)
        telemetry.count("__idle-time-ms", self._idle_ms)
        telemetry.count("__backpressured-time-ms", self._blocked_ms)
        self._busy_ms = self._idle_ms = self._blocked_ms = 0.0
        self._executor.collect_metrics()

"""The executor thread's loop: inbox, one step of the core, flushes to the gateway, wait.

It runs on the process's main thread, so that signals and profilers see user code. It blocks in one place only, where it
waits for the inbox; user code may of course block it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import Executor, UserCodeFailed
from heron_instance.core.spout_executor import SpoutExecutor
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
)
from heronry.wire.data import Packet

CREDIT_STEP_BYTES = 16 * 1024


class Left(Exception):
    """This process has been replaced."""


class Stopped(Exception):
    """SIGTERM."""


def now_ms() -> float:
    """Monotonic milliseconds, the origin of every time in the instance."""
    return time.monotonic() * 1000


class Runner:
    """Drives one executor until told to stop."""

    def __init__(self, executor: Executor, inbox: Inbox, gateway: Gateway, report_each_ms: float) -> None:
        self._executor = executor
        self._inbox = inbox
        self._gateway = gateway
        self._report_each_ms = report_each_ms
        self._next_report_ms = 0.0
        self._sent_seen = 0
        self._offered = 0
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
            if executor.data_out.full or paused:
                self._blocked_ms += waited
            else:
                self._idle_ms += waited
            sent = gateway.sent_bytes
            if sent != self._sent_seen:
                executor.on_sent(now, sent - self._sent_seen)
                self._sent_seen = sent
            step = executor.run(now)
            if step.flushes:
                gateway.post(step.flushes)
            if isinstance(executor, BoltExecutor):
                self._renew_credit(executor)
            if executor.failed is not None:
                raise executor.failed
            began = now_ms()
            self._busy_ms += began - now
            if began >= self._next_report_ms:
                self._next_report_ms = began + self._report_each_ms
                self.collect()
            wait_ms = step.wait_ms
            limit = self._next_report_ms - began
            wait_ms = limit if wait_ms is None or wait_ms > limit else wait_ms
            if executor.data_out.full:
                gateway.tell_sent = True
                if gateway.sent_bytes != self._sent_seen:
                    wait_ms = 0.0
            elif step.ask is not None:
                self._doze(step.ask, step.wait_ms or 0.0)
                wait_ms, began = 0.0, now_ms()

    def _doze(self, ask: Callable[[float], float | None], wait_ms: float) -> None:
        """A spout at rest: ask it, sleep, and touch nothing else, until something arrives or is emitted."""
        inbox, gateway = self._inbox, self._gateway
        began = now_ms()
        while not inbox.wait(wait_ms / 1000) and gateway.sent_bytes == self._sent_seen:
            now = now_ms()
            self._idle_ms += now - began
            found = ask(now)
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
        executor: Any = self._executor
        now = now_ms()
        match item:
            case Packet():
                if item.frames and isinstance(executor, BoltExecutor):
                    executor.on_frames(now, item.frames)
                if item.verdicts and isinstance(executor, SpoutExecutor):
                    executor.on_verdicts(now, item.verdicts)
            case PauseChanged():
                executor.on_pause(now, item.paused)
            case PlanArrived():
                executor.on_plan(now, item.plan)
            case StreamManagerSaidHello():
                executor.on_stream_manager(now, item.incarnation)
            case Wake():
                executor.wake(now)
            case MustLeave():
                raise Left(item.reason)
            case Stop():
                raise Stopped

    def finish(self) -> None:
        """Close user code, hand the rest to the gateway: input that came behind the word to stop fails with it."""
        executor = self._executor
        if isinstance(executor, BoltExecutor):
            for item in (*self._items, *self._inbox.take(0)):
                if isinstance(item, Packet):
                    executor.on_frames(now_ms(), item.frames)
        self._gateway.post(executor.stop(now_ms()))
        self.collect()

    def collect(self) -> None:
        """Bring the totals up to date for the next report."""
        telemetry = self._executor.telemetry
        telemetry.count("__busy-time-ms", self._busy_ms)
        telemetry.count("__idle-time-ms", self._idle_ms)
        telemetry.count("__backpressured-time-ms", self._blocked_ms)
        self._busy_ms = self._idle_ms = self._blocked_ms = 0.0
        self._executor.collect_metrics()

    def _renew_credit(self, executor: BoltExecutor) -> None:
        limit = executor.credit_limit()
        # By halves, so that it is rare; and always in steps worth a message.
        if limit - self._offered >= max(CREDIT_STEP_BYTES, executor.data_in.capacity // 2):
            self._offered = limit
            self._gateway.offer_credit(limit)


__all__ = ["Left", "Runner", "Stopped", "UserCodeFailed", "now_ms"]

"""Emit limits within one call of user code, including calls that never return.

Between calls the executor handles arrivals, due flushes and the emit limits. A call that loops forever
(``for message in consumer: self.emit(...)``) never lets it. So emits ask the gate: the first emit after a flush,
which starts the clock of the next flush and lets the driver watch it, and then one of each ``ADMIT_ROWS`` rows.

Within a short call that is all: rows beyond a limit are sent like any other. In a call that has lasted ``LONG_CALL_MS``
the gate does the work of the executor between two calls: it serves arrivals, routes, flushes, and waits while nothing
more may be emitted. So the maximum of pending roots, pauses and the bound of data-out hold within the call. Acks and
fails are settled meanwhile, so the window reopens. Their delivery to user code is left to ``poll`` or to the end of the
call, unless too many gather.

``ack`` and ``fail`` have an *emit budget*, since thousands of calls may follow each other without a check in between.
The executor states the room in rows before it calls them; the emit that uses up the room ends the series. So emits
beyond a limit are at most those of one call, as with ``next_tuple``. Rows beyond the budget are held; only a long call
that keeps emitting waits.

A call that emits nothing cannot ask the gate. The flush timer flushes for it, from another thread (``user_code.py``).

With checkpoints only the thread that drives a task may emit, since the rows of another thread belong to no checkpoint.
A thread check in each emit would make emits a third slower, so it is part of admission: the first emit after each
flush, and one in a thousand. An emit while no user code runs is therefore always noticed. While more threads exist
than when the task began, which is checked between two calls of user code, every emit is checked. Two cases remain: a
thread that emits within the call that started it, which is as if the call had emitted, and threads unknown to Python
(callbacks of C libraries), until one of their emits is the first after a flush. The offending thread gets an exception
at once. The task fails at its next step, since a thread may end silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from heron_instance.core.collector import TaskCollector
from heron_instance.core.output import TaskOutput
from heron_instance.core.output_streams import OutputStream, Router
from heron_instance.core.task import ExecutorDriver, TaskRuntime
from heron_instance.core.user_code import ThreadInspector
from heron_runtime.failures import Failure
from heron_runtime.model.settings import Keys, setting

ADMIT_ROWS = 1024  # maximum of emits from one admission to the next
LONG_CALL_MS = 20.0  # a call this long has to wait; shorter calls may overshoot a bound by their emits
LONGEST_WAIT_MS = 1000.0  # until the executor is asked again
REPORT_CALL_MS = 2000.0  # `heron status` shows a call this long
REPORT_PLACE_MS = 5000.0  # and from here on its place in the source


class EmitBudget:
    """Emit budget of ``ack`` and ``fail`` of one spout task. ``is_exhausted``: begin no further call."""

    __slots__ = ("_last", "_router", "is_active", "is_exhausted")

    def __init__(self, router: Router) -> None:
        self.is_active = False  # within a series of calls
        self.is_exhausted = False
        self._router = router
        self._last = 0

    def begin(self, room: int) -> None:
        """Begin a series of calls that may emit ``room`` rows, possibly none."""
        self.is_active, self.is_exhausted = True, False
        self._last = self._router.emitted_ever() + room
        for out in self._router.streams.values():
            out.gate_at = 0

    def end(self) -> None:
        """End the series of calls."""
        self.is_active = False

    def spend(self, out: OutputStream, rows: int) -> None:
        """Account for ``rows`` that are about to be added to ``out``."""
        room = self._last - self._router.emitted_ever() - rows
        self.is_exhausted = room <= 0
        # Each stream gets a share of what is left now: shares of an earlier, larger rest would come on top.
        share = max(0, (room - 1) // len(self._router.streams))
        for each in self._router.streams.values():
            each.open_gate(share)
        out.gate_at += rows * out.per_row


class ForeignThreadEmit(Failure):
    """A thread other than the task's own has emitted."""


class EmitThreadGuard:
    """Checks that emits come from the thread of the executor, on which it must be made.

    Args:
        name: Name of the component, for messages.
        admit: Admission of emits to call after the check.
        wake: Makes the executor run.
    """

    def __init__(
        self,
        name: str,
        threads: ThreadInspector,
        admit: Callable[[OutputStream, int], bool | None],
        wake: Callable[[], None] | None,
    ) -> None:
        self.violation: ForeignThreadEmit | None = None  # the first one
        self.checks_every_emit = False
        self._name = name
        self._threads = threads
        self._admit = admit
        self._wake = wake
        self._mine = threads.current()
        self._began_with = threads.count()
        self._gate_at: dict[int, int] = {}  # while every emit is checked: ``gate_at`` by stream

    def between_calls(self) -> None:
        """Compare the number of threads. Called on the task's own thread while no user code runs."""
        checks_every_emit = self._threads.count() > self._began_with
        if checks_every_emit != self.checks_every_emit:
            self.checks_every_emit = checks_every_emit
            self._gate_at.clear()

    def admit(self, out: OutputStream, rows: int) -> None:
        """Check the thread, then admit an emit of ``rows`` rows. Raises ForeignThreadEmit."""
        if self._threads.current() != self._mine:
            raise self._refused(out)
        if not self.checks_every_emit:
            self._admit(out, rows)
        elif not out.waiting or len(out.waiting) + rows * out.per_row > self._gate_at.get(out.number, 0):
            self._admit(out, rows)
            self._gate_at[out.number] = out.gate_at
            out.gate_at = 0

    def _refused(self, out: OutputStream) -> ForeignThreadEmit:
        error = ForeignThreadEmit(
            f"{out.where}: thread {self._threads.name()!r} has emitted, but with checkpoints only the thread that "
            f"calls {self._name} may emit\nhint: put records into a queue.SimpleQueue and emit them in next_tuple "
            "(spout), or in process or process_tick (bolt)"
        )
        if self.violation is None:
            self.violation = error
            if self._wake is not None:
                self._wake()
        return error


class GatedExecutor(Protocol):
    """Executor as seen by its emit gate, which uses it only after its construction."""

    collector: TaskCollector
    output: TaskOutput

    def serve_within_call(self, now_ms: float) -> None:
        """Handle arrivals as far as possible without user code."""

    def must_wait(self, now_ms: float) -> bool:
        """Return True while a long call must not emit."""

    def room(self) -> int:
        """Return the number of rows that may be emitted now."""

    def next_opening_ms(self) -> float | None:
        """Return the time at which emits may be possible although nothing arrives, or None."""


class EmitGate:
    """Emit gate of one task. Without a driver (tests, simulation) emits never wait."""

    def __init__(self, executor: GatedExecutor, task: TaskRuntime, driver: ExecutorDriver | None) -> None:
        self.closing = False  # True: emits never wait
        self.waits_since_ms: float | None = None  # since when an emit waits for room
        self.budget = EmitBudget(task.router)
        self.interval_ms = float(setting(task.config, Keys.TOPOLOGY_FLUSH_INTERVAL_MS))
        self.lock = task.user_code.lock
        self._executor = executor
        self._driver = driver
        self._user_code = task.user_code
        self._clock = task.clock

    def admit(self, out: OutputStream, rows: int) -> bool:
        """Admit an emit of ``rows`` rows, and set when the gate is to be asked again.

        Called when ``out.gate_at`` entries wait in ``out``, with these rows or without them. Returns True if the emit
        must take the lock: no user code runs, so the emit comes from another thread while the executor waits or works.
        """
        now_ms = self._clock() * 1000
        driver, call = self._driver, self._user_code.call
        if call is None and driver is not None:
            return True
        if self.budget.is_active and not self.budget.is_exhausted:
            self.budget.spend(out, rows)
        elif driver is None or call is None or self.closing or now_ms - call.since_ms < LONG_CALL_MS:
            out.open_gate(ADMIT_ROWS)
        else:
            with self.lock:
                now_ms = self._pass(driver)
                out.gate_at = out.per_row * max(1, min(ADMIT_ROWS, self._executor.room()))
        if self._executor.output.waiting_since_ms is None:  # from now on: the caller emits at once
            self._executor.output.waiting_since_ms = now_ms
            if driver is not None:
                driver.watch()
        return False

    def due_ms(self) -> float | None:
        """Return when the waiting rows must be flushed, or None if there are none."""
        since_ms = self._executor.output.waiting_since_ms
        return None if since_ms is None else since_ms + self.interval_ms

    def outlasts_flush_interval(self) -> bool:
        """Return True if a call of user code has outlasted the flush interval."""
        call = self._user_code.call
        return call is not None and self._clock() * 1000 - call.since_ms >= self.interval_ms

    def in_call_ms(self) -> float:
        """Return how long the current call of user code has lasted, or 0 if that is short."""
        call = self._user_code.call
        lasted_ms = 0.0 if call is None else self._clock() * 1000 - call.since_ms
        return lasted_ms if lasted_ms >= REPORT_CALL_MS else 0.0

    def describe_call(self, place: Callable[[], str]) -> str:
        """Describe a long call of user code for the heartbeat: method, duration and the place given by ``place``."""
        call, lasted_ms, now_ms = self._user_code.call, self.in_call_ms(), self._clock() * 1000
        if call is None or not lasted_ms:
            return ""
        text = f"in {call.method} for {lasted_ms / 1000:.0f} s"
        waits_since_ms = self.waits_since_ms
        if waits_since_ms is not None and now_ms - waits_since_ms >= REPORT_CALL_MS:
            text += f", its emit has waited for room for {(now_ms - waits_since_ms) / 1000:.0f} s"
        where = place() if lasted_ms >= REPORT_PLACE_MS else ""
        return f"{text} ({where})" if where else text

    def poll(self) -> None:
        """Let the executor work for a moment within a call of user code, without waiting."""
        driver = self._driver
        if driver is not None and not self.closing:
            with self.lock:
                driver.serve(0.0)
                self._serve(driver)

    def _pass(self, driver: ExecutorDriver) -> float:
        """Serve, and wait until more may be emitted. Return the time."""
        executor = self._executor
        driver.serve(0.0)
        while True:
            now_ms = self._serve(driver)
            if not executor.must_wait(now_ms):
                self.waits_since_ms = None
                return now_ms
            if self.waits_since_ms is None:
                self.waits_since_ms = now_ms
            next_opening_ms = executor.next_opening_ms()
            wait_ms = LONGEST_WAIT_MS if next_opening_ms is None else next_opening_ms - now_ms
            driver.serve(max(0.0, min(LONGEST_WAIT_MS, wait_ms)))

    def _serve(self, driver: ExecutorDriver) -> float:
        """Route and send. Return the time."""
        self._executor.collector.route_pending()
        now_ms = self._clock() * 1000
        self._executor.serve_within_call(now_ms)
        # Where nothing more may be emitted, waiting for a fuller batch gains nothing.
        flushes = self._executor.output.take_due(now_ms, self._executor.must_wait(now_ms), 0.0)
        if flushes:
            driver.post(flushes)
        return now_ms

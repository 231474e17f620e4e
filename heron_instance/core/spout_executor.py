"""Executor of a spout: verdicts to ``ack`` and ``fail``, ``next_tuple`` in bursts, emitted rows to flushes.

``next_tuple`` is called only while the topology is active, this spout is not paused, fewer than
``topology.max.spout.pending`` roots are open and data-out has room. These conditions are checked between any two calls,
and by the emits of a long call (``emit_gate.py``), so a bound is exceeded by the emits of one short call at most. Acks,
fails and control are served in any case. Rows emitted in ``ack`` or ``fail`` while ``next_tuple`` must not be called
are held (``spout_collector.py``), and no further ack is delivered until they have left.

A *burst* calls ``next_tuple`` repeatedly, until a call emits nothing, a bound is reached or the time is up.

*Pacing* spaces the calls of a spout that had nothing to emit, by 1, 2, 4, 8, 16 ms, until a call emits, an ack or fail
arrives, or a control message comes. From then on calls are made where the clock shows a multiple of 16 ms: the idle
spouts of a machine wake up together, and all but the first find warm caches. Rows that a call emits before the next
flush leave with that flush, so an earlier call gains nothing and costs a wake-up: calls wait for the flush. But a spout
may pace itself by its calls, one tuple each time a moment has passed. If the call after such a wait emitted a single
tuple, the spout is called at the short delays, and the wait is only tried now and then.

*End of input*: a spout over a bounded source reports the end of its input (``Spout.at_end``). It is asked after calls
of ``next_tuple`` that had nothing to emit, while none of its rows wait and no tuple is in flight. With checkpoints its
work is done once a checkpoint is complete whose snapshot was taken after that. A later tuple revokes the end.
"""

from __future__ import annotations

import logging

from heron_instance.core.ack_delivery import AckDelivery
from heron_instance.core.collector import Admit, RowFilter
from heron_instance.core.executor import Executor, RunResult, ms_until_first
from heron_instance.core.outbox import Flush
from heron_instance.core.pending import PendingWindow, make_pending_table
from heron_instance.core.spout_collector import SpoutCollector, age_filter
from heron_instance.core.state.checkpointer import TaskCheckpointer
from heron_instance.core.task import ExecutorSetup, TaskRuntime
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.metrics import NEXT_TUPLE_COUNT, NEXT_TUPLE_LATENCY, PENDING_ACKED_COUNT, SPOUT_LAG
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.container import AT_END
from heron_runtime.wire.data import Reason, Verdict

FAST_CALL_MS = 0.1  # calls this short are not timed one by one
FINISH_CALL_MS = 250.0  # a call may emit this long after it notices a deactivation; then its emits wait
BURST_MS = 2.0  # acks wait at most this long and for one call
FIRST_DELAY_MS = 1.0
LAST_DELAY_MS = 16.0
RETRY_BURSTS = 16  # bursts of one tuple
WAITING_CALLS = frozenset({"next_tuple", "ack", "fail"})
log = logging.getLogger(__name__)


class Pacing:
    """Pacing of one spout task. ``at_rest``: it has long been idle, and only the next call is due."""

    def __init__(self) -> None:
        self._singles = 0  # bursts of one tuple, since one had more
        self.reset()

    def reset(self) -> None:
        """Call the spout at once, since something has happened."""
        self.at_rest = False
        self.next_call_ms = float("-inf")
        self._delay_ms = 0.0

    def record_empty_call(self, now_ms: float, emitted: int, flush_ms: float) -> None:
        """Schedule the next call after one that emitted nothing.

        Args:
            now_ms: Current time.
            emitted: Number of tuples emitted before it in the burst.
            flush_ms: Earliest time of the next flush.
        """
        self._delay_ms = min(LAST_DELAY_MS, max(FIRST_DELAY_MS, 2 * self._delay_ms))
        self.next_call_ms = now_ms + self._delay_ms
        if emitted:
            self._singles = self._singles + 1 if emitted == 1 else 0
        if self._singles % RETRY_BURSTS == 0:
            self.next_call_ms = max(self.next_call_ms, min(flush_ms, now_ms + LAST_DELAY_MS))

    @property
    def slow(self) -> bool:
        """True once the delay has reached its maximum."""
        return self._delay_ms >= LAST_DELAY_MS

    def rest(self, now_ms: float) -> float:
        """Schedule the next call at rest. Return the milliseconds until then."""
        wait_ms = LAST_DELAY_MS - now_ms % LAST_DELAY_MS
        self.next_call_ms = now_ms + wait_ms
        return wait_ms


class EndOfInput:
    """End of input of one spout task, during one generation."""

    def __init__(self, task: TaskRuntime, checkpointer: TaskCheckpointer | None) -> None:
        self._task = task
        self._checkpointer = checkpointer
        self._saved: int | None = None  # the newest snapshot when the end was reached
        self.status = ""  # for the heartbeat; also read by the gateway thread

    def revoke(self) -> None:
        """Revoke the end, since the spout has emitted or has tuples in flight."""
        self._saved = None
        self.status = ""

    def update(self, idle: bool) -> None:
        """Ask the spout after an empty call. ``idle``: none of its tuples are in flight."""
        task, checkpointer = self._task, self._checkpointer
        try:
            with task.user_code("at_end"):
                ended = idle and task.component.at_end()
        except Exception as error:
            task.errors.record_exception(error, "at_end")
            ended = False
        if not ended:
            self.revoke()
        elif checkpointer is None:
            self.status = AT_END
        elif self._saved is None:
            self._saved = checkpointer.saved
        else:
            self.status = AT_END if checkpointer.reported_complete > self._saved else ""


class SpoutExecutor(Executor):
    """Executor of one spout task."""

    collector: SpoutCollector

    def __init__(self, setup: ExecutorSetup) -> None:
        super().__init__(setup)
        task = self.task
        self._spout = task.component
        self._age_filter = age_filter(setup, task, self.collector.untracked_ids.append)
        self._ack_delivery = AckDelivery(task, self.pending, self.collector, self.gate.budget, self._room_to_deliver)
        max_pending: int = setting(task.config, Keys.TOPOLOGY_MAX_SPOUT_PENDING)
        self.window = PendingWindow(max_pending, self.output.interval_ms)
        self.at_end = EndOfInput(task, self.checkpointer)
        self._active = False
        self._finish_by_ms: float | None = None  # in a call: until when it may emit after a deactivation
        self._stream_manager: int | None = None
        self._pacing = Pacing()
        self._call_ms = 1.0  # time of one call in the last burst
        self._calls_at_rest = 0
        self._next_expiry_ms = float("-inf")

    def _make_collector(self, setup: ExecutorSetup, admit: Admit) -> SpoutCollector:
        self.pending, self._expire_each_ms = make_pending_table(
            setup.task, setup.incarnation, setup.settings, self.task.config
        )
        return SpoutCollector(self.task, admit, setup.rng, self.pending, self.poll)

    def _row_filters(self) -> list[RowFilter]:
        # Hooks come last: they see emitted rows, not dropped ones.
        filters: list[RowFilter] = [self._age_filter] if self._age_filter else []
        return [*filters, self.task.hooks.spout_emits] if self.task.hooks else filters

    # What arrives.

    def on_verdicts(self, now_ms: float, verdicts: list[Verdict]) -> None:
        """Queue verdicts of the tracker."""
        self._ack_delivery.add_verdicts(verdicts)
        self._pacing.reset()

    def on_plan(self, now_ms: float, plan: PhysicalPlan) -> None:
        """Apply a new plan, possibly with another state of the topology."""
        super().on_plan(now_ms, plan)
        self._pacing.reset()

    def on_pause(self, now_ms: float, paused: bool) -> None:
        """Begin or end a pause by backpressure."""
        self.paused = paused
        self.task.telemetry.gauge("__paused", float(paused or not self._active))
        self._pacing.reset()

    def on_stream_manager(self, now_ms: float, incarnation: int) -> None:
        """Apply a hello. Roots tracked by another incarnation are lost with it."""
        before, self._stream_manager = self._stream_manager, incarnation
        if before is not None and before != incarnation:
            self.output.flush_early(now_ms)
            self._ack_delivery.fail(self.pending.settle_all(now_ms), Reason(FailKind.STREAM_MANAGER_LOST))
        self._pacing.reset()

    def on_wake(self, now_ms: float) -> None:
        """Call the spout at once: it has something to emit, or a checkpoint needs it."""
        self._pacing.reset()

    # Work.

    def run(self, now_ms: float) -> RunResult:
        """Serve verdicts, then call ``next_tuple`` for a while."""
        pacing, output = self._pacing, self.output
        if pacing.at_rest and now_ms >= pacing.next_call_ms:
            wait_ms = self.poll_idle(now_ms)
            if wait_ms is not None:
                return RunResult([], wait_ms, at_rest=True)
        output.data_out.adjust(now_ms)
        if self.checkpointer is not None:
            self.checkpointer.run_due_work(now_ms)
        output.draining.tick(now_ms)
        self._settle(now_ms)
        self._ack_delivery.deliver()
        self._ack_delivery.deliver_untracked()
        self._follow_state(now_ms)
        self._finish_by_ms = None
        blocked = self._hold(now_ms)
        emitted, more, nothing = 0, False, False  # more: a call now might emit
        if output.draining.due and self._has_nothing_open():
            output.send_drain_barriers()
        if not (blocked or output.draining.is_draining) and now_ms >= pacing.next_call_ms and self.failed is None:
            emitted, more = self._run_burst(self.room())
            now_ms = self.task.clock() * 1000
            if self._dropped():
                more = True
            if emitted or more:
                pacing.reset()
                self.at_end.revoke()
            nothing = not more
            blocked = self.blocked(now_ms)
        # A spout that may not emit gains nothing by waiting for a fuller batch.
        gap_ms = 0.0 if blocked else output.interval_ms
        flushes = output.take_due(now_ms, not more or blocked, gap_ms)
        if nothing:
            pacing.record_empty_call(now_ms, emitted, output.next_flush_ms(gap_ms))
        pacing.at_rest = pacing.slow and not blocked and self._nothing_else_to_do()
        if nothing and pacing.slow:
            self.at_end.update(idle=not self.pending.count and output.waiting_since_ms is None)
        return RunResult(flushes, self._wait_ms(now_ms, blocked, gap_ms))

    def _run_burst(self, room: int) -> tuple[int, bool]:
        """Run one burst of about ``room`` rows. Return the number of rows, and True if another call might emit."""
        task, clock, emitted_ever = self.task, self.task.clock, self.task.router.emitted_ever
        started, already = clock(), emitted_ever()
        calls, more = [0], False
        try:
            with task.user_code("next_tuple"):
                more = room > 0 and self._call_repeatedly(already + room, started + BURST_MS / 1000, calls)
        except Exception as error:
            task.errors.record_exception(error, "next_tuple")
        finally:
            self.collector.route_pending()
            self._ack_delivery.deliver_untracked()
            elapsed_ms = 1000 * (clock() - started)
            task.counts.count(NEXT_TUPLE_COUNT, calls[0])
            if calls[0]:
                self._call_ms = elapsed_ms / calls[0]
                task.telemetry.latency(NEXT_TUPLE_LATENCY, self._call_ms, calls[0])
        return emitted_ever() - already, more

    def _call_repeatedly(self, last: int, until: float, counted: list[int]) -> bool:
        """Call ``next_tuple`` until ``last`` rows were ever emitted. Return False if a call emitted none.

        Rows that are routed meanwhile move from ``waiting`` to ``taken_ever``. One stream is counted by its entries.
        """
        clock, next_tuple, emitted_ever = self.task.clock, self._spout.next_tuple, self.task.router.emitted_ever
        look = 7 if self._call_ms < FAST_CALL_MS else 0  # every 8th call of a fast spout
        streams = list(self.collector.streams.values())
        out, waiting = (streams[0], streams[0].waiting) if len(streams) == 1 else (None, [])
        if out is not None:
            last *= out.per_row
        before, calls = emitted_ever() if out is None else out.taken_ever + len(waiting), 0
        try:
            while before < last:
                calls += 1
                next_tuple()
                emitted_now = out.taken_ever + len(waiting) if out is not None else emitted_ever()
                if emitted_now == before:
                    return False
                before = emitted_now
                if not calls & look and clock() >= until:
                    break
        finally:
            counted[0] = calls
        return True

    def _hold(self, now_ms: float) -> bool:
        """Hold emitted rows while ``next_tuple`` must not be called. Return True if that is so now."""
        blocked = self.blocked(now_ms)
        if self.collector.has_held_rows and not blocked:
            self.collector.set_holding(False)
            blocked = self.blocked(now_ms)
        self.collector.set_holding(blocked)
        return blocked

    def _has_nothing_open(self) -> bool:
        """Return True if no root is open and every settled root is delivered.

        While the topology is deactivated, undelivered roots do not count: rows emitted on delivery are held
        indefinitely.
        """
        self.collector.route_pending()
        untold = self.collector.has_held_rows or self._ack_delivery.has_work()
        return not self.pending.count and not (untold and self.is_active())

    def _room_to_deliver(self) -> int | None:
        """Return the number of rows that ``ack`` and ``fail`` may emit, or None while they must not be called."""
        now_ms = self.task.clock() * 1000
        self._hold(now_ms)
        self.collector.route_pending()  # what is not routed is not counted as pending
        if self.collector.has_held_rows:
            return None
        return 0 if self._hold(now_ms) else self.room()

    def _settle(self, now_ms: float) -> None:
        self._ack_delivery.settle(now_ms)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self._expire_each_ms
            self._ack_delivery.fail(self.pending.expire(now_ms), Reason(FailKind.TIMEOUT))

    def _nothing_else_to_do(self) -> bool:
        """Return True if only the next call of ``next_tuple`` is due."""
        return (
            self.output.waiting_since_ms is None
            and not self.pending.count
            and self.output.data_out.deadline_ms() is None
            and self.output.draining.deadline_ms() is None
            and (self.checkpointer is None or self.checkpointer.deadline_ms() is None)
            and self._age_filter is None
            and self.failed is None
        )

    def poll_idle(self, now_ms: float) -> float | None:
        """Call ``next_tuple`` of a spout at rest.

        The caches are cold after the sleep, and this is most of the cost of an idle topology, so it touches little.

        Returns:
            Milliseconds until the next call, or None if the spout had something to emit.
        """
        self._calls_at_rest += 1
        try:
            with self.task.user_code("next_tuple"):
                self._spout.next_tuple()
        except Exception as error:
            self.task.errors.record_exception(error, "next_tuple")
        else:
            if not self._has_emitted():
                return self._pacing.rest(now_ms)
        self.at_end.revoke()
        self.collector.route_pending()  # before more is emitted: what is not routed is not counted as pending
        self._ack_delivery.deliver_untracked()
        self._pacing.reset()
        return None

    def _has_emitted(self) -> bool:
        """Return True if a spout that was at rest has left anything to do."""
        if self.collector.untracked_ids or self.output.unsent():
            return True
        for out in self.collector.streams.values():  # noqa: SIM110  # a generator would touch more
            if out.waiting:
                return True
        return False

    def _dropped(self) -> bool:
        """Return True if ``next_tuple`` had a tuple that was too old to emit."""
        dropped = 0 if self._age_filter is None else self._age_filter.take_dropped()
        if dropped:
            self.task.counts.count("__dropped-older-count", dropped)
        return dropped > 0

    def _wait_ms(self, now_ms: float, blocked: bool, gap_ms: float) -> float | None:
        told_now = self._ack_delivery.has_work() and not self.collector.has_held_rows
        if told_now or self.failed is not None:
            return 0.0
        return ms_until_first(
            now_ms,
            None if blocked or self.output.draining.is_draining else self._pacing.next_call_ms,
            self._window_opening_ms(),
            self.output.deadline_ms(gap_ms),
            self._next_expiry_ms if self.pending.count else None,
            self.output.data_out.deadline_ms(),
            self.checkpointer.deadline_ms() if self.checkpointer is not None else None,
        )

    # Within a call of user code that lasts.

    def serve_within_call(self, now_ms: float) -> None:
        """Settle verdicts; they are delivered later."""
        self.output.data_out.adjust(now_ms)
        self._settle(now_ms)
        self._ack_delivery.relieve()
        self._hold(now_ms)

    def room(self) -> int:
        """Return the number of rows that may be emitted now."""
        if self._finish_by_ms is not None:
            return 1  # ask again at each emit
        room = self.output.quantum()
        return min(room, self.window.max_pending - self.pending.count) if self.collector.tracked else room

    def must_wait(self, now_ms: float) -> bool:
        """Return True while emits of a long call must wait: in ``next_tuple`` under the conditions of its next call."""
        call = self.task.user_code.call
        if call is None or call.method not in WAITING_CALLS:
            return self.output.data_out.full
        if self._active and self.is_active():
            self._finish_by_ms = None
            return self.blocked(now_ms)
        # Deactivated: a call that ends soon may emit its rows. It would wait until the activation, and with it every
        # checkpoint, since the task reaches a quiet point only between calls.
        if self._finish_by_ms is None:
            self._finish_by_ms = now_ms + FINISH_CALL_MS
        return now_ms >= self._finish_by_ms or self.output.data_out.full

    def next_opening_ms(self) -> float | None:
        """Return when emits may be possible by time alone, or a timer is due."""
        deadlines = (
            self._window_opening_ms(),
            self._next_expiry_ms if self.pending.count else None,
            self.output.data_out.deadline_ms(),
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def poll(self) -> None:
        """Deliver settled roots in the middle of a call."""
        self.gate.poll()
        with self.task.user_code.lock:
            self._ack_delivery.deliver()
            self._ack_delivery.deliver_untracked()

    def flush_within_call(self, now_ms: float) -> list[Flush]:
        """Flush the rows emitted so far. The caller has taken the lock while user code runs."""
        self.collector.route_pending()
        return self.output.take_all(now_ms)

    def blocked(self, now_ms: float) -> bool:
        """Return True while ``next_tuple`` must not be called."""
        return (
            (self.collector.tracked and self.window.is_shut(self.pending.count, now_ms))  # first: it keeps the time
            or self._is_halted()
            or self.output.data_out.full
        )

    def _is_halted(self) -> bool:
        """Return True while a pause, the topology's state or a checkpoint halts the spout, whatever room there is."""
        quiet = self.output.draining.quiet or (self.checkpointer is not None and self.checkpointer.is_halted)
        return quiet or self.paused or not self._active or not self.is_active() or self._stream_manager is None

    def _window_opening_ms(self) -> float | None:
        """Return when time opens the window, or None if it does not or the spout is halted."""
        return None if self._is_halted() else self.window.next_opening_ms(self.pending.count)

    def is_active(self) -> bool:
        """Return True if the topology is activated."""
        return self.output.plan.state is TopologyState.RUNNING

    def _follow_state(self, now_ms: float) -> None:
        wanted = self.is_active()
        if wanted is self._active:
            return
        self._active = wanted
        self.task.telemetry.gauge("__paused", float(self.paused or not wanted))
        self._hold(now_ms)
        call = self._spout.activate if wanted else self._spout.deactivate
        try:
            with self.task.user_code("activate" if wanted else "deactivate"):
                call()
        except Exception as error:
            self.task.errors.record_exception(error, "activate" if wanted else "deactivate")
        self.collector.route_pending()
        self._ack_delivery.deliver_untracked()

    # Metrics, end.

    def collect_metrics(self) -> None:
        """Report counters and gauges, including the roots in flight."""
        task = self.task
        task.counts.count(NEXT_TUPLE_COUNT, self._calls_at_rest)
        self._calls_at_rest = 0
        super().collect_metrics()
        task.telemetry.gauge(PENDING_ACKED_COUNT, self.pending.count)
        if task.tracked:  # otherwise the lag is unknown, and 0 would be wrong
            oldest_ms = self.pending.oldest_ms() if self.pending.count else None
            lag_ms = 0.0 if oldest_ms is None else task.clock() * 1000 - oldest_ms
            task.telemetry.gauge(SPOUT_LAG, max(0.0, lag_ms))

    def stop(self, now_ms: float) -> list[Flush]:
        """Deactivate and close user code. Return the remaining flushes."""
        self.gate.closing = True
        if self._active:
            self._active = False
            try:
                with self.task.user_code("deactivate"):
                    self._spout.deactivate()
            except Exception:
                log.exception("%s.deactivate raised", self.task.name)
        self.task.close()
        self.collector.set_holding(False)  # held rows leave now or never
        return self.output.take_all(now_ms)

    def check(self) -> None:
        """Assert the invariants of the pending table and the queue."""
        super().check()
        self.pending.check()

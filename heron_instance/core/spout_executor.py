"""Runs a spout: verdicts to ``ack`` and ``fail``, ``next_tuple`` in bursts, what it emits to flushes.

``next_tuple`` is called only while the topology is active, nobody has paused this spout, fewer than
``topology.max.spout.pending`` roots are open and data-out has room. Each of these is asked between any two calls, so
what a single call emits beyond a bound is the most that ever lies beyond it (the pending-emits list of the protocol: it
is simply what that call left in the outbox). Acks, fails and control are served in any case.

A call that emits nothing ends the burst; calls are then spaced by 1, 2, 4, 8, 16 ms, until one emits, an ack or fail
arrives, or something is said on the control stream. From then on calls are made where the clock shows a multiple of
16 ms: the spouts of a machine that have nothing to do wake up together, and all but the first find the caches warm.
"""

from __future__ import annotations

from typing import Any

from heron_instance.core.dropping import DroppingSpoutCollector
from heron_instance.core.executor import Executor, Flush, Setup, Step, log, soonest
from heron_instance.core.hooked import HookedSpoutCollector
from heron_instance.core.outcomes import Outcomes
from heron_instance.core.pending import PendingTable
from heron_instance.core.spout_collector import SpoutCollector
from heron_instance.core.window import PendingWindow
from heronry.model.ids import root_base
from heronry.model.metrics import NEXT_TUPLE_COUNT, NEXT_TUPLE_LATENCY, PENDING_ACKED_COUNT, SPOUT_LAG
from heronry.model.plan import PhysicalPlan
from heronry.model.reasons import FailKind
from heronry.model.settings import setting
from heronry.wire.data import Reason, Verdict

FIRST_BACKOFF_MS = 1.0
LAST_BACKOFF_MS = 16.0
FAST_CALL_MS = 0.1  # calls this short are not timed one by one
BURST_MS = 2.0  # acks wait no longer than this, and one call


class SpoutExecutor(Executor):
    """The executor of one spout task."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        config = self.config
        self.max_pending: int = setting(config, "topology.max.spout.pending")
        timeout_ms: float | None = 1000.0 * setting(config, "topology.message.timeout.secs")
        buckets: int = setting(setup.settings, "heron.streammgr.ack.buckets")
        if setting(config, "topology.enable.message.timeouts") and timeout_ms is not None:
            bucket_ms = timeout_ms / (buckets - 1)
            self._expire_each_ms = max(50.0, min(1000.0, bucket_ms))
            timeout_ms += 2 * bucket_ms
        else:
            timeout_ms, self._expire_each_ms = None, 1000.0
        base = root_base(setup.task, setup.incarnation)
        self.pending = PendingTable(base, self.max_pending, timeout_ms)
        self.collector = SpoutCollector(
            self.router,
            self.outbox,
            self.pending,
            setup.rng,
            setup.task,
            setup.incarnation,
            self.tracked,
            lambda: setup.clock() * 1000,
        )
        component = self.component
        self._dropping: DroppingSpoutCollector | None = None
        older_ms = setting(config, "topology.spout.drop.older.ms")
        if older_ms is not None:
            if not hasattr(component, "emit_time_ms"):
                raise TypeError(
                    f"{self.name}: topology.spout.drop.older.ms needs a method emit_time_ms(values) of the spout: "
                    "write it (milliseconds since 1970 of a tuple), or leave the setting out"
                )
            self._dropping = DroppingSpoutCollector(
                self.collector, component.emit_time_ms, older_ms, setup.wall, self.collector.at_once
            )
        self.outcomes = Outcomes(self, self.pending, self.collector)
        self._active = False
        self._stream_manager: int | None = None
        self._backoff_ms = 0.0
        self._call_ms = 1.0  # what one call took in the last burst
        self._at_rest = False  # nothing was emitted for long, and nothing waits
        self._calls_at_rest = 0
        self._window = PendingWindow(self.max_pending, self.flush_interval_ms)
        self._next_call_ms = float("-inf")
        self._next_expiry_ms = float("-inf")

    # What arrives.

    def on_verdicts(self, now_ms: float, verdicts: list[Verdict]) -> None:
        """The tracker's word."""
        self.outcomes.put(verdicts)
        self._do_not_back_off()

    def on_plan(self, now_ms: float, plan: PhysicalPlan) -> None:
        """A new plan, perhaps with another state."""
        super().on_plan(now_ms, plan)
        self._do_not_back_off()

    def on_pause(self, now_ms: float, paused: bool) -> None:
        """Backpressure begins or ends."""
        self.paused = paused
        self.telemetry.gauge("__paused", float(paused or not self._active))
        self._do_not_back_off()

    def on_stream_manager(self, now_ms: float, incarnation: int) -> None:
        """A hello. Roots that another incarnation tracked are lost with it."""
        before, self._stream_manager = self._stream_manager, incarnation
        if before is not None and before != incarnation:
            self.book()
            self.ready += self.flush(now_ms)
            self.outcomes.failed(self.pending.settle_all(now_ms), Reason(FailKind.STREAM_MANAGER_LOST))
        self._do_not_back_off()

    def wake(self, now_ms: float) -> None:
        """The spout itself says that it has something to emit."""
        self._do_not_back_off()

    def _do_not_back_off(self) -> None:
        self._at_rest = False
        self._backoff_ms = 0.0
        self._next_call_ms = float("-inf")

    # Work.

    def attach(self) -> None:
        """Give the spout its collector."""
        collector: Any = self._dropping or self.collector
        if self.context.hooks:
            collector = HookedSpoutCollector(collector, self.task, self.call_hooks)
        self.component.attach(collector, self.name)

    def run(self, now_ms: float) -> Step:
        """Serve verdicts, then call ``next_tuple`` for a while."""
        if self._at_rest and now_ms >= self._next_call_ms:
            wait_ms = self.ask(now_ms)
            if wait_ms is not None:
                return Step([], wait_ms, self.ask)
        self.data_out.adjust(now_ms)
        self.outcomes.serve(now_ms)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self._expire_each_ms
            self.outcomes.failed(self.pending.expire(now_ms), Reason(FailKind.TIMEOUT))
        self._follow_state()
        blocked = self._blocked(now_ms)
        more = False  # a call now would perhaps emit
        if not blocked and now_ms >= self._next_call_ms and self.failed is None:
            emitted, more = self._burst(now_ms)
            now_ms = self.setup.clock() * 1000
            if self._dropped():
                emitted = more = True
            if emitted:
                self._do_not_back_off()
            if not more:
                self._backoff_ms = min(LAST_BACKOFF_MS, max(FIRST_BACKOFF_MS, 2 * self._backoff_ms))
                self._next_call_ms = now_ms + self._backoff_ms
            blocked = self._blocked(now_ms)
        flushes, self.ready = self.ready, []
        # A spout that may not emit gains nothing by waiting for a fuller batch.
        gap_ms = 0.0 if blocked else self.flush_interval_ms
        flushes += self.flush_if_due(now_ms, not more or blocked, gap_ms)
        self._at_rest = self._backoff_ms >= LAST_BACKOFF_MS and not blocked and self._nothing_else_to_do()
        return Step(flushes, self._wait_ms(now_ms, blocked, gap_ms))

    def _nothing_else_to_do(self) -> bool:
        """True if time brings nothing but the next call of ``next_tuple``."""
        return (
            self._waiting_since_ms is None
            and not self.pending.count
            and self.data_out.deadline_ms() is None
            and self._dropping is None
            and self.failed is None
        )

    def ask(self, now_ms: float) -> float | None:
        """Call ``next_tuple`` of a spout at rest: milliseconds until the next call, or None if it had something. The
        caches are cold after the sleep, and this is most of what an idle topology costs, so it touches little."""
        self._calls_at_rest += 1
        try:
            self.component.next_tuple()
        except Exception as error:
            self.user_error(error, "next_tuple")
        else:
            if not self._has_emitted():
                wait_ms = LAST_BACKOFF_MS - now_ms % LAST_BACKOFF_MS
                self._next_call_ms = now_ms + wait_ms
                return wait_ms
        self.book()  # before more is emitted: what is not booked is not counted as pending
        self.outcomes.ack_at_once()
        self._do_not_back_off()
        return None

    def _has_emitted(self) -> bool:
        """True if a spout that was at rest has left anything to do."""
        if self.collector.at_once or self.unsent():
            return True
        for out in self.router.streams.values():  # noqa: SIM110  # a generator would touch more
            if out.rows:
                return True
        return False

    def _dropped(self) -> bool:
        """True if ``next_tuple`` had something, though too old to emit."""
        dropped = 0 if self._dropping is None else self._dropping.take_dropped()
        if dropped:
            self.count("__dropped-older-count", dropped)
        return dropped > 0

    def _wait_ms(self, now_ms: float, blocked: bool, gap_ms: float) -> float | None:
        if self.outcomes.waiting() or self.failed is not None:
            return 0.0
        return soonest(
            now_ms,
            None if blocked else self._next_call_ms,
            self._window.reopens_ms(self.pending.count),
            self.flush_deadline_ms(gap_ms),
            self._next_expiry_ms if self.pending.count else None,
            self.data_out.deadline_ms(),
        )

    def _blocked(self, now_ms: float) -> bool:
        """True while ``next_tuple`` must not be called."""
        return (
            self.paused
            or not self._active
            or self._stream_manager is None
            or (self.tracked and self._window.shut(self.pending.count, now_ms))
            or self.data_out.full
        )

    def _follow_state(self) -> None:
        wanted = self.is_active()
        if wanted is self._active:
            return
        self._active = wanted
        self.telemetry.gauge("__paused", float(self.paused or not wanted))
        call = self.component.activate if wanted else self.component.deactivate
        try:
            call()
        except Exception as error:
            self.user_error(error, "activate" if wanted else "deactivate")
        self.book()
        self.outcomes.ack_at_once()

    def _burst(self, now_ms: float) -> tuple[bool, bool]:
        """Call ``next_tuple`` until a call emits nothing, a bound is reached or the time is up; (True if any emitted,
        True if another might)."""
        room = self.quantum()
        if self.tracked:
            room = min(room, self.max_pending - self.pending.count)
        clock = self.setup.clock
        started = clock()
        until = started + BURST_MS / 1000
        next_tuple = self.component.next_tuple
        look = 7 if self._call_ms < FAST_CALL_MS else 0  # every 8th call of a fast spout
        calls = 0
        before = already = self._emitted_ever()
        last = before + room
        more = room > 0
        try:
            if len(self.router.streams) == 1:
                # The common case, unrolled. A call that asks for task ids books: that moves rows to ``emitted_ever``.
                (out,) = self.router.streams.values()
                rows = out.rows
                while before < last:
                    calls += 1
                    next_tuple()
                    here = out.emitted_ever + len(rows)
                    if here == before:
                        more = False
                        break
                    before = here
                    if not calls & look and clock() >= until:
                        break
            else:
                while before < last:
                    calls += 1
                    next_tuple()
                    here = self._emitted_ever()
                    if here == before:
                        more = False
                        break
                    before = here
                    if not calls & look and clock() >= until:
                        break
        except Exception as error:
            self.user_error(error, "next_tuple")
            more = False
        finally:
            self.book()
            self.outcomes.ack_at_once()
            elapsed_ms = 1000 * (clock() - started)
            self.count(NEXT_TUPLE_COUNT, calls)
            if calls:
                self._call_ms = elapsed_ms / calls
                self.telemetry.latency(NEXT_TUPLE_LATENCY, elapsed_ms / calls, calls)
        return self._emitted_ever() > already, more

    def _emitted_ever(self) -> int:
        return sum(out.emitted_ever + len(out.rows) for out in self.router.streams.values())

    # Flushing.

    def book(self) -> None:
        """Number and divide what was emitted."""
        self.collector.book()

    def unsent(self) -> bool:
        """True if rows or fails wait."""
        return bool(self.outbox.rows or self.failures.waiting())

    def fill(self, flush: Flush) -> None:
        """The inits of the roots in this flush."""
        flush.inits = self.collector.take_inits()

    def collect_metrics(self) -> None:
        """The roots in flight, too."""
        self.count(NEXT_TUPLE_COUNT, self._calls_at_rest)
        self._calls_at_rest = 0
        super().collect_metrics()
        self.telemetry.gauge(PENDING_ACKED_COUNT, self.pending.count)
        if self.tracked:  # otherwise nobody knows when a tuple is done, and 0 would be a lie
            oldest_ms = self.pending.oldest_ms() if self.pending.count else None
            lag_ms = 0.0 if oldest_ms is None else self.setup.clock() * 1000 - oldest_ms
            self.telemetry.gauge(SPOUT_LAG, max(0.0, lag_ms))

    def stop(self, now_ms: float) -> list[Flush]:
        """Deactivate, close."""
        if self._active:
            self._active = False
            try:
                self.component.deactivate()
            except Exception:
                log.exception("%s.deactivate raised", self.name)
        return super().stop(now_ms)

    def check(self) -> None:
        """The table and the queue are sound."""
        super().check()
        self.pending.check()

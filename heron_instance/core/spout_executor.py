"""Runs a spout: verdicts to ``ack`` and ``fail``, ``next_tuple`` in bursts, what it emits to flushes.

``next_tuple`` is called only while the topology is active, nobody has paused this spout, fewer than
``topology.max.spout.pending`` roots are open and data-out has room. Each of these is asked between any two calls, and
by the emits of a call that lasts (``emit_gate.py``), so what a short call emits beyond a bound is the most that ever
lies beyond it. Acks, fails and control are served in any case; what ``ack`` or ``fail`` emits while ``next_tuple`` must
not be called is held (``spout_collector.py``), and the spout is told no more until that has left.

A call that emits nothing ends the burst; ``pacing`` says when the next one is due.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from heron_instance.core.at_end import AtEnd
from heron_instance.core.burst import Bursts
from heron_instance.core.dropping import age_filter
from heron_instance.core.emit_gate import EmitGate
from heron_instance.core.executor import RunResult, soonest
from heron_instance.core.gates import Gates
from heron_instance.core.outbox import Flush
from heron_instance.core.outcomes import Outcomes
from heron_instance.core.output import Output
from heron_instance.core.pacing import Pacing
from heron_instance.core.pending import pending_table
from heron_instance.core.settled_figures import SettledFigures
from heron_instance.core.setup import Setup
from heron_instance.core.spout_collector import SpoutCollector
from heron_instance.core.task import Task
from heron_instance.core.user_errors import UserCodeFailed
from heron_instance.core.window import PendingWindow
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.metrics import NEXT_TUPLE_COUNT, PENDING_ACKED_COUNT, SPOUT_LAG
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.data import Frame, Reason, Verdict
from heronry.api.reliability_hints import reliability_unsaid, untracked_note

MAY_WAIT = frozenset({"next_tuple", "ack", "fail"})
log = logging.getLogger(__name__)


class SpoutExecutor:
    """The executor of one spout task."""

    def __init__(self, setup: Setup) -> None:
        task = self.task = Task(setup)
        config = task.config
        max_pending: int = setting(config, Keys.TOPOLOGY_MAX_SPOUT_PENDING)
        self.pending, self._expire_each_ms = pending_table(setup, config)
        self.collector = SpoutCollector(
            task.router,
            task.outbox,
            self.pending,
            setup.rng,
            setup.task,
            setup.incarnation,
            task.tracked,
            task.user_code.lock,
            lambda: setup.clock() * 1000,
            task.user_code.wake_if_idle,
        )
        self.output = Output(task, self.collector, setup.plan)
        self.gate = EmitGate(self, self.output, self.collector, task.user_code, setup.clock)
        self.collector.on_poll = self.poll
        self._spout = task.component
        self._age_filter = age_filter(setup, task, self.collector.at_once.append)
        streams = {out.number: out.name for out in task.router.streams.values()}
        self._outcomes = Outcomes(
            task.component,
            self.pending,
            self.collector,
            task.hooks,
            task.errors,
            task.counts.count,
            SettledFigures(streams, task.counts.count, task.telemetry),
            task.user_code,
            self.gate.allowance,
            self._room_to_tell,
            untracked_note(task.name) if reliability_unsaid(task.config) else "",
        )
        self.window = PendingWindow(max_pending, self.output.interval_ms)
        self.gates, self.stateful = Gates.of(task, self.output, self.collector), task.stateful
        self.at_end = AtEnd(task)
        self.paused = False
        self._active = False
        self._stream_manager: int | None = None
        self._pacing = Pacing()
        self._bursts = Bursts(task, self.collector, self._outcomes)
        self._calls_at_rest = 0
        self._next_expiry_ms = float("-inf")
        task.context.on_hooks_changed(self._attach)

    # For the shell.

    @property
    def full(self) -> bool:
        """True while data-out takes nothing more."""
        return self.output.data_out.full

    @property
    def failed(self) -> UserCodeFailed | None:
        """Not None once user code has raised under the policy ``restart``."""
        return self.task.errors.failed

    def start(self) -> None:
        """Attach the collector and initialize user code. Raises what user code raises."""
        self._attach()
        self.task.initialize()

    def _attach(self) -> None:
        hooks = self.task.hooks
        filters = [self._age_filter] if self._age_filter else []
        # Hooks come last: they are told of what is emitted, not of what is dropped.
        self.task.attach(self.collector, *filters, *([hooks.spout_emits] if hooks else []))

    # What arrives.

    def on_verdicts(self, now_ms: float, verdicts: list[Verdict]) -> None:
        """What the tracker has found."""
        self._outcomes.put(verdicts)
        self._pacing.reset()

    def on_plan(self, now_ms: float, plan: PhysicalPlan) -> None:
        """A new plan, perhaps with another state."""
        self.output.follow(now_ms, plan)
        self._pacing.reset()

    def on_pause(self, now_ms: float, paused: bool) -> None:
        """Backpressure begins or ends."""
        self.paused = paused
        self.task.telemetry.gauge("__paused", float(paused or not self._active))
        self._pacing.reset()

    def on_stream_manager(self, now_ms: float, incarnation: int) -> None:
        """A hello. Roots that another incarnation tracked are lost with it."""
        before, self._stream_manager = self._stream_manager, incarnation
        if before is not None and before != incarnation:
            self.output.flush_early(now_ms)
            self._outcomes.failed(self.pending.settle_all(now_ms), Reason(FailKind.STREAM_MANAGER_LOST))
        self._pacing.reset()

    def on_frames(self, now_ms: float, frames: list[Frame]) -> None:
        """Nobody sends tuples to a spout."""

    def on_wake(self, now_ms: float) -> None:
        """The spout itself says that it has something to emit, or a checkpoint has something for it to do."""
        self._pacing.reset()

    def on_weights(self, now_ms: float, weights: Mapping[int, int]) -> None:
        """Frames weigh so from now on."""
        self.task.outbox.weigh(weights)

    def on_sent(self, now_ms: float, sent_weight: int) -> None:
        """There is room in data-out."""
        self.output.data_out.remove(sent_weight)

    # Work.

    def run(self, now_ms: float) -> RunResult:
        """Serve verdicts, then call ``next_tuple`` for a while."""
        pacing, output = self._pacing, self.output
        if pacing.at_rest and now_ms >= pacing.next_call_ms:
            wait_ms = self.poll_idle(now_ms)
            if wait_ms is not None:
                return RunResult([], wait_ms, poll_idle=self.poll_idle)
        output.data_out.adjust(now_ms)
        if self.gates is not None:
            self.gates.attend(now_ms)
        output.draining.tick(now_ms)
        self._settle(now_ms)
        self._outcomes.tell()
        self._outcomes.ack_at_once()
        self._follow_state(now_ms)
        blocked = self._hold(now_ms)
        emitted, more, nothing = 0, False, False  # more: a call now would perhaps emit
        if output.draining.due and self._has_nothing_open():
            output.fall_silent()
        if not (blocked or output.draining.stands) and now_ms >= pacing.next_call_ms and self.failed is None:
            emitted, more = self._bursts.run(self.room())
            now_ms = self.task.clock() * 1000
            if self._dropped():
                more = True
            if emitted or more:
                pacing.reset()
                self.at_end.left()
            nothing = not more
            blocked = self.blocked(now_ms)
        # A spout that may not emit gains nothing by waiting for a fuller batch.
        gap_ms = 0.0 if blocked else output.interval_ms
        flushes = output.take_due(now_ms, not more or blocked, gap_ms)
        if nothing:
            pacing.had_nothing(now_ms, emitted, output.next_flush_ms(gap_ms))
        pacing.at_rest = pacing.slow and not blocked and self._nothing_else_to_do()
        if nothing and pacing.slow:
            self.at_end.look(idle=not self.pending.count and output.waiting_since_ms is None)
        return RunResult(flushes, self._wait_ms(now_ms, blocked, gap_ms))

    def _hold(self, now_ms: float) -> bool:
        """What is emitted while ``next_tuple`` must not be called is held; True if that is so now."""
        blocked = self.blocked(now_ms)
        if self.collector.held and not blocked:
            self.collector.hold(False)
            blocked = self.blocked(now_ms)
        self.collector.hold(blocked)
        return blocked

    def _has_nothing_open(self) -> bool:
        """True if no root of this spout is open, and it is told of all; where its owner has paused it, of what it can
        be told of: what it emits there is held for as long as he likes."""
        self.collector.route_pending()
        untold = self.collector.held or self._outcomes.waiting()
        return not self.pending.count and not (untold and self.is_active())

    def _room_to_tell(self) -> int | None:
        """How many rows the spout may emit while it is told what became of its tuples; None while it is not to be."""
        now_ms = self.task.clock() * 1000
        self._hold(now_ms)
        self.collector.route_pending()  # what is not routed is not counted as pending
        if self.collector.held:
            return None
        return 0 if self._hold(now_ms) else self.room()

    def _settle(self, now_ms: float) -> None:
        self._outcomes.settle(now_ms)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self._expire_each_ms
            self._outcomes.failed(self.pending.expire(now_ms), Reason(FailKind.TIMEOUT))

    def _nothing_else_to_do(self) -> bool:
        """True if time brings nothing but the next call of ``next_tuple``."""
        return (
            self.output.waiting_since_ms is None
            and not self.pending.count
            and self.output.data_out.deadline_ms() is None
            and self.output.draining.deadline_ms() is None
            and (self.stateful is None or self.stateful.deadline_ms() is None)
            and self._age_filter is None
            and self.failed is None
        )

    def poll_idle(self, now_ms: float) -> float | None:
        """Call ``next_tuple`` of a spout at rest: milliseconds until the next call, or None if it had something. The
        caches are cold after the sleep, and this is most of what an idle topology costs, so it touches little."""
        self._calls_at_rest += 1
        try:
            with self.task.user_code("next_tuple"):
                self._spout.next_tuple()
        except Exception as error:
            self.task.errors.raised(error, "next_tuple")
        else:
            if not self._has_emitted():
                return self._pacing.rest(now_ms)
        self.at_end.left()
        self.collector.route_pending()  # before more is emitted: what is not routed is not counted as pending
        self._outcomes.ack_at_once()
        self._pacing.reset()
        return None

    def _has_emitted(self) -> bool:
        """True if a spout that was at rest has left anything to do."""
        if self.collector.at_once or self.output.unsent():
            return True
        for out in self.collector.streams.values():  # noqa: SIM110  # a generator would touch more
            if out.rows:
                return True
        return False

    def _dropped(self) -> bool:
        """True if ``next_tuple`` had something, though too old to emit."""
        dropped = 0 if self._age_filter is None else self._age_filter.take_dropped()
        if dropped:
            self.task.counts.count("__dropped-older-count", dropped)
        return dropped > 0

    def _wait_ms(self, now_ms: float, blocked: bool, gap_ms: float) -> float | None:
        told_now = self._outcomes.waiting() and not self.collector.held
        if told_now or self.failed is not None:
            return 0.0
        return soonest(
            now_ms,
            None if blocked or self.output.draining.stands else self._pacing.next_call_ms,
            self._window_reopens_ms(),
            self.output.deadline_ms(gap_ms),
            self._next_expiry_ms if self.pending.count else None,
            self.output.data_out.deadline_ms(),
            self.gates.stateful.deadline_ms() if self.gates is not None else None,
        )

    # Within a call of user code that lasts.

    def serve_inside(self, now_ms: float) -> None:
        """Settle; the spout is told later."""
        self.output.data_out.adjust(now_ms)
        self._settle(now_ms)
        self._outcomes.relieve()
        self._hold(now_ms)

    def room(self) -> int:
        """How many rows may be emitted now."""
        room = self.output.quantum()
        return min(room, self.window.max_pending - self.pending.count) if self.collector.tracked else room

    def holds(self, now_ms: float) -> bool:
        """True while emits of a call that lasts must wait: in ``next_tuple`` as its next call would have to."""
        call = self.task.user_code.call
        if call is not None and call.method in MAY_WAIT:
            return self.blocked(now_ms)
        return self.output.data_out.full

    def reopens_ms(self) -> float | None:
        """When time alone lets it emit again, or something is due."""
        deadlines = (
            self._window_reopens_ms(),
            self._next_expiry_ms if self.pending.count else None,
            self.output.data_out.deadline_ms(),
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def poll(self) -> None:
        """User code lets the spout be told of what was settled, in the middle of a call."""
        self.gate.poll()
        with self.task.user_code.lock:
            self._outcomes.tell()
            self._outcomes.ack_at_once()

    def flush_inside(self, now_ms: float) -> list[Flush]:
        """What has been emitted so far; the caller has taken the lock while user code runs."""
        self.collector.route_pending()
        return self.output.take_all(now_ms)

    def blocked(self, now_ms: float) -> bool:
        """True while ``next_tuple`` must not be called."""
        return (
            (self.collector.tracked and self.window.shut(self.pending.count, now_ms))  # it must know, whatever else
            or self._stands()
            or self.output.data_out.full
        )

    def _stands(self) -> bool:
        """True while others want it to stand still, whatever room there is."""
        quiet = self.output.draining.quiet or (self.gates is not None and self.gates.stateful.stands_still)
        return quiet or self.paused or not self._active or not self.is_active() or self._stream_manager is None

    def _window_reopens_ms(self) -> float | None:
        """When time opens the window; None if it does not, or if that would help nobody."""
        return None if self._stands() else self.window.reopens_ms(self.pending.count)

    def is_active(self) -> bool:
        """True if the topology's owner wants it to run."""
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
            self.task.errors.raised(error, "activate" if wanted else "deactivate")
        self.collector.route_pending()
        self._outcomes.ack_at_once()

    # Metrics, end.

    def collect_metrics(self) -> None:
        """The roots in flight, too."""
        task = self.task
        task.counts.count(NEXT_TUPLE_COUNT, self._calls_at_rest)
        self._calls_at_rest = 0
        self.output.collect_metrics()
        task.collect_metrics()
        task.telemetry.gauge(PENDING_ACKED_COUNT, self.pending.count)
        if task.tracked:  # otherwise nobody knows when a tuple is done, and 0 would be a lie
            oldest_ms = self.pending.oldest_ms() if self.pending.count else None
            lag_ms = 0.0 if oldest_ms is None else task.clock() * 1000 - oldest_ms
            task.telemetry.gauge(SPOUT_LAG, max(0.0, lag_ms))

    def stop(self, now_ms: float) -> list[Flush]:
        """Deactivate, close."""
        self.gate.closing = True
        if self._active:
            self._active = False
            try:
                with self.task.user_code("deactivate"):
                    self._spout.deactivate()
            except Exception:
                log.exception("%s.deactivate raised", self.task.name)
        self.task.close()
        self.collector.hold(False)  # it will not come back to what user code has emitted
        return self.output.take_all(now_ms)

    def check(self) -> None:
        """The table and the queue are sound."""
        self.output.check()
        self.pending.check()

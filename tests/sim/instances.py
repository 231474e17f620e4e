"""Simulated instance: the production executor and the gateway's production queue, joined by a small shell.

The two threads of a real instance are two halves here. The gateway half receives and sends at any time. The executor
half runs one step after the other; a step that takes time (a slow bolt) keeps it busy while the gateway continues.
``SimClock`` is the clock on which user code spends its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import Executor, RunResult
from heron_instance.core.flow_control import UploadQueue
from heron_instance.core.outbox import Flush
from heron_instance.core.spout_executor import SpoutExecutor
from heron_instance.core.task import ExecutorSetup
from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.dataflow import UNKNOWN_WEIGHT
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.model.plan import NO_PLAN, PhysicalPlan
from heron_runtime.wire.control import (
    Credit,
    InstanceHello,
    Leave,
    Pause,
    PlanUpdate,
    StreamManagerHello,
    TaskWeights,
)
from heron_runtime.wire.data import Packet

from .encoding import INSTANCES
from .simulation import SimProcess, Simulation
from .wire import DATA_OPEN, End, Pipe

if TYPE_CHECKING:
    from .cluster import Cluster

RECONNECT_MS = (50.0, 2000.0)
NO_CREDIT_YET = -1


class NoTelemetry:
    """Telemetry that discards everything; exceptions of user code are part of the programs."""

    def count(self, name: str, n: float = 1) -> None:
        """Ignore the count."""

    def gauge(self, name: str, value: float) -> None:
        """Ignore the gauge."""

    def latency(self, name: str, milliseconds: float, weight: float = 1) -> None:
        """Ignore the latency."""

    def exception(self, class_name: str, message: str, traceback: str, now: float, n: int = 1) -> None:
        """Ignore the exception."""


class SimInstance(SimProcess):
    """Process of one task. ``make_component`` creates new user code for each life."""

    def __init__(
        self,
        world: Simulation,
        cluster: Cluster,
        task: int,
        container: int,
        make_component: Callable[[SimInstance], Any],
    ) -> None:
        super().__init__(world, f"task{task}", container)
        self.cluster = cluster
        self.task = task
        self.make_component = make_component
        self.component_name = cluster.component_of(task)
        self.is_spout = cluster.topology.component(self.component_name).is_spout
        self.incarnation = world.rng.randrange(1 << 16)
        self.spent_ms = 0.0  # by user code in the current step
        self.executor: Executor | None = None

    # Start and end.

    def boot(self) -> None:
        """Look for the stream manager; user code starts with the first plan."""
        self.incarnation = self.cluster.next_incarnation(self.incarnation)
        self.executor = None
        self.component: Any = None
        self.plan_version = NO_PLAN
        self.stream_manager: int | None = None
        self.paused_by_pressure = self._told_to_pause = False
        self.pause_changes = 0  # in this life
        self.sent_tuples = self.received_tuples = 0  # over all connections of this life
        self.emitted_copies = self.processed = 0  # as seen by user code
        self.largest_frame = 0
        self._early: list[Callable[[Any, float], None]] = []
        self._inbox_of_executor: list[Callable[[Any, float], None]] = []
        self._busy_until_ms = 0.0
        self._wake_ms: float | None = None
        self._end: End | None = None
        self._outgoing = UploadQueue()
        self._writing = False
        self._sent_bytes = self._sent_seen = 0
        self._received_bytes = self._received_before = 0
        self._credit_total, self._tuple_weight, self._taken_weight = 0, UNKNOWN_WEIGHT, 0
        self.lost = 0  # as the gateway counts it, over all connections
        self.links: list[tuple[Pipe, int]] = []  # of this life: the data pipe, and the losses counted before it
        self._granted = self._reported_weight = NO_CREDIT_YET
        self.heaviest_told = 0
        self._expected = 1
        self._leaving = False
        self._told_report: TaskReport | None = None  # of this life and link
        self.later(self.world.between(1, 100), lambda: self._connect(RECONNECT_MS[0]))

    def on_fault(self) -> None:
        """Notify the checkers."""
        self.cluster.checkers.fault()

    def died(self) -> None:
        """Notify the oracle."""
        self.cluster.checkers.instance_died(self)

    # The gateway half.

    def _connect(self, delay_ms: float) -> None:
        if self._end is not None:
            return
        server = self.cluster.stream_managers[self.host]
        if not server.alive:
            delay_ms = min(RECONNECT_MS[1], 2 * delay_ms)
            self.later(delay_ms, lambda: self._connect(delay_ms))
            return
        end = self._end = self.cluster.network.connect(self, server, server.accept_instance, INSTANCES)
        end.on_control, end.on_data, end.on_gone = self._control, self._data, self._gone
        hello = InstanceHello(
            PROTOCOL_VERSION, self.cluster.topology.id, self.task, self.incarnation, 1000 * self.task + self.life
        )
        end.control.send(hello)

    def _gone(self, reason: str) -> None:
        self.log(f"link ends: {reason}")
        self.on_fault()
        self._end = None
        self.lost += sum(self._outgoing.end_stream().values())
        self._writing = False
        self._granted = self._reported_weight = NO_CREDIT_YET
        self.stream_manager = None
        self.later(RECONNECT_MS[0], lambda: self._connect(RECONNECT_MS[0]))

    def _control(self, message: Any) -> None:
        match message:
            case StreamManagerHello(incarnation=incarnation):
                assert self._end is not None
                self._outgoing.begin_stream()
                self._received_before, self._granted, self._expected = self._received_bytes, 0, 1
                self.stream_manager = incarnation
                self.links.append((self._end.data, self.lost))
                self._end.data.send(DATA_OPEN)
                self._told_report = None
                self._report()
                self._to_executor(lambda executor, now: executor.on_stream_manager(now, incarnation))
                self._offer()
                self._write()
            case Credit(limit_bytes=limit, taken_bytes=taken):
                self._outgoing.grant(limit, taken)
                self._write()
            case PlanUpdate(plan=plan):
                self._plan(plan)
            case TaskWeights(tasks=tasks):
                weights = {one.task: one.bytes for one in tasks}
                self._to_executor(lambda executor, now: executor.on_weights(now, weights))
            case Pause(paused=paused):
                if paused != self._told_to_pause:
                    self.log("pauses" if paused else "is not paused any more")
                self._told_to_pause = paused
                self._to_executor(lambda executor, now: self._pause(executor, now, paused))
            case Leave(reason=reason):
                self.cluster.checkers.told_to_leave(self, reason)
                self.crash(f"told to leave: {reason}", self.cluster.restart_after_leave(self))

    def _pause(self, executor: Any, now: float, paused: bool) -> None:
        self.pause_changes += paused != self.paused_by_pressure
        self.paused_by_pressure = paused
        executor.on_pause(now, paused)

    def _data(self, packet: Packet) -> None:
        if packet.sequence != self._expected:
            self.cluster.checkers.sequence_fault_at(self)
            if self._end is not None:
                self._end.close(f"packet {packet.sequence} came where {self._expected} was due")
            return
        self._expected += 1
        sizes = [frame.weight() for frame in packet.frames]
        self._received_bytes += sum(sizes)
        self.largest_frame = max(self.largest_frame, *sizes) if sizes else self.largest_frame
        self.received_tuples += sum(frame.count for frame in packet.frames)
        self._to_executor(lambda executor, now: self._taken(executor, now, packet))

    def _taken(self, executor: Any, now: float, packet: Packet) -> None:
        if packet.frames:
            executor.on_frames(now, packet.frames)
        if packet.verdicts:
            executor.on_verdicts(now, packet.verdicts)

    def _offer(self) -> None:
        limit = max(0, self._credit_total - self._received_before)
        taken = max(0, self._taken_weight - self._received_before)
        news = limit > self._granted or self._tuple_weight != self._reported_weight
        if self._end is not None and self._granted != NO_CREDIT_YET and news:
            self._granted, self._reported_weight = limit, self._tuple_weight
            self._end.control.send(Credit(limit, self._tuple_weight, taken))

    def _report(self) -> None:
        """Report the progress of an update, with each link and on each change."""
        report = self.executor.output.draining.report if self.executor is not None else None
        news = report is not None and report != (self._told_report or TaskReport(0))
        if news and self._end is not None and self.stream_manager is not None:
            self._told_report = report
            self._end.control.send(report)

    def _write(self) -> None:
        if self._writing or self._end is None or self._granted == NO_CREDIT_YET:
            return
        taken = self._outgoing.take()
        if taken is None:
            return
        packet, size = taken
        self.sent_tuples += sum(frame.count for frame in packet.frames)
        self._sent_bytes += size
        self._writing = True
        self._end.data.send(packet, self._written)
        if size:
            self._to_executor(lambda executor, now: None)

    def _written(self) -> None:
        self._writing = False
        self._write()

    def post(self, flushes: list[Flush]) -> None:
        """Queue the flushes of the executor for sending."""
        for flush in flushes:
            self._outgoing.put(flush)
        self._write()

    # The executor half.

    def clock(self) -> float:
        """Return the time in seconds, as user code sees it."""
        return (self.clock_ms + self.spent_ms) / 1000

    def _plan(self, plan: PhysicalPlan) -> None:
        self.cluster.checkers.plan_seen(self.name, self.life, plan)
        self.plan_version = plan.version
        if self.executor is not None:
            self._to_executor(lambda executor, now: executor.on_plan(now, plan))
            return
        rng = np.random.Generator(np.random.PCG64(self.world.rng.getrandbits(64)))
        self.component = self.make_component(self)
        setup = ExecutorSetup(
            self.component, plan, self.task, self.incarnation, rng, NoTelemetry(), self.clock,
            lambda: self.clock_ms / 1000, settings=self.cluster.settings,
        )  # fmt: skip
        self.executor = SpoutExecutor(setup) if self.is_spout else BoltExecutor(setup)
        self.executor.start()
        early, self._early = self._early, []
        self._inbox_of_executor += early
        self._run_at(self.world.now_ms)

    def _to_executor(self, item: Callable[[Any, float], None]) -> None:
        if self.executor is None:
            self._early.append(item)
            return
        self._inbox_of_executor.append(item)
        self._run_at(self.world.now_ms)

    def _run_at(self, when_ms: float) -> None:
        when_ms = max(when_ms, self._busy_until_ms)
        if self._wake_ms is None or when_ms < self._wake_ms:
            self._wake_ms = when_ms
            self.later(when_ms - self.world.now_ms, lambda: self._run(when_ms))

    def _run(self, planned_ms: float) -> None:
        if planned_ms != self._wake_ms or self.executor is None or self._leaving:
            return
        executor, now = self.executor, self.clock_ms
        self._wake_ms = None
        self.spent_ms = 0.0
        items, self._inbox_of_executor = self._inbox_of_executor, []
        for item in items:
            item(executor, now)
        if self._sent_bytes != self._sent_seen:
            executor.on_sent(now, self._sent_bytes - self._sent_seen)
            self._sent_seen = self._sent_bytes
        opened = self.cluster.checkers.before_run(self)
        step = executor.run(now)
        self.cluster.checkers.instance_ran(self, opened)
        # Time spent in user code passes before the executor handles or emits anything else.
        self._busy_until_ms = self.world.now_ms + self.spent_ms
        if self.spent_ms:
            self.later(self.spent_ms, lambda: self._stepped(step))
        else:
            self._stepped(step)
        if step.wait_ms is not None:
            # A step takes some time even if user code takes none.
            self._run_at(self._busy_until_ms + max(0.05, step.wait_ms))

    def _stepped(self, step: RunResult) -> None:
        executor = self.executor
        assert executor is not None
        self.spent_ms = 0.0
        self.post(step.flushes)
        self._report()
        self._taken_weight = step.taken_weight
        if step.credit_bytes is not None:
            self._credit_total, self._tuple_weight = step.credit_bytes, step.tuple_weight
            self.heaviest_told = max(self.heaviest_told, step.tuple_weight)
            self._offer()
        if executor.failed is not None and not self._leaving:
            self._leave()

    def _leave(self) -> None:
        """Send what is queued and end, since user code has raised and the policy is to restart."""
        self._leaving = True
        self.cluster.oracle.stopped_tasks.add(self.task)
        assert self.executor is not None
        self.post(self.executor.stop(self.clock_ms))
        self.later(500, lambda: self.crash("user code raised", self.world.between(50, 500)))

    def idle(self) -> bool:
        """Return True if nothing is queued here."""
        executor = self.executor
        if executor is None:
            return not self._early
        if self._busy_until_ms > self.world.now_ms or self._leaving:
            return False
        if not self._outgoing.empty() or executor.task.outbox.rows or self._inbox_of_executor:
            return False
        return not isinstance(executor, BoltExecutor) or (executor.data_in.size == 0 and executor._work is None)

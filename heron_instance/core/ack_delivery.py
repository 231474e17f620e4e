"""Delivery of acks and fails to a spout.

Verdicts are *settled* at any time: their roots leave the pending table and are counted. ``deliver`` then calls ``ack``
or ``fail`` of the spout, once for each settled root and in order. It runs when user code may be called: between two
calls of user code, or within a call that polls. An exception ends the call for that root alone. ``ack`` and ``fail``
may emit within the emit budget (``emit_gate.py``); once it is exhausted, the remaining roots are delivered later. The
roots that wait here are bounded by the roots that were open.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable
from operator import length_hint
from typing import Any

import numpy as np

from heron_instance.core.emit_gate import EmitBudget
from heron_instance.core.pending import PendingTable, SettledRoots
from heron_instance.core.spout_collector import SpoutCollector
from heron_instance.core.task import TaskRuntime
from heron_instance.core.task_metrics import RootMetrics
from heron_runtime.model.dataflow import FailKind, FailReason
from heron_runtime.model.metrics import (
    ACK_COUNT,
    COMPLETE_LATENCY,
    FAIL_COUNT,
    FAIL_LATENCY,
    FAILED_BY_REASON,
    TIMEOUT_COUNT,
    keyed,
)
from heron_runtime.wire.data import Reason, Verdict
from heronry.api.component import Spout
from heronry.api.reliability_hints import reliability_unsaid, untracked_note

MAX_UNDELIVERED = 65_536  # settled roots that may wait while one call of the spout lasts
log = logging.getLogger(__name__)


class AckDelivery:
    """Settles verdicts and delivers acks and fails to one spout task.

    Args:
        task: The spout task.
        pending: Table of its open roots.
        collector: Collector of its emits.
        budget: Emit budget of ``ack`` and ``fail``.
        room: Returns the number of rows that they may emit, or None while they must not be called.
    """

    def __init__(
        self,
        task: TaskRuntime,
        pending: PendingTable,
        collector: SpoutCollector,
        budget: EmitBudget,
        room: Callable[[], int | None],
    ) -> None:
        streams = {out.number: out.name for out in task.router.streams.values()}
        spout = self._spout = task.component
        self._pending = pending
        self._collector = collector
        self._budget = budget
        self._room = room
        self._hooks = task.hooks
        self._errors = task.errors
        self._user_code = task.user_code
        self._count = task.counts.count
        self._metrics = RootMetrics(streams, task.counts.count, task.telemetry)
        # A warning for the first message id that nothing tracks.
        self._untracked_note = untracked_note(task.name) if reliability_unsaid(task.config) else ""
        self._wants_ack = type(spout).ack is not Spout.ack and not task.errors.strict
        self._wants_fail = type(spout).fail is not Spout.fail
        self._wants_reason = takes_reason(spout.fail)
        self._verdicts: deque[Verdict] = deque()
        self._undelivered: deque[tuple[SettledRoots, Reason | None]] = deque()
        self._warned = False
        self.undelivered_count = 0  # settled roots not delivered yet

    def add_verdicts(self, verdicts: list[Verdict]) -> None:
        """Queue verdicts of the tracker for the next ``settle``."""
        self._verdicts.extend(verdicts)

    def has_work(self) -> bool:
        """Return True if there are roots to settle or to deliver."""
        return bool(self._verdicts or self._undelivered or self._collector.untracked_ids)

    def settle(self, now_ms: float) -> None:
        """Settle the queued verdicts."""
        while self._verdicts:
            verdict = self._verdicts.popleft()
            roots = np.frombuffer(verdict.roots, dtype="<u8")
            settled = self._pending.settle(roots, now_ms)
            if settled.dropped:
                self._count("__dropped-verdict-count", settled.dropped)
            if verdict.reason is None:
                self._acked(settled)
            else:
                self.fail(settled, verdict.reason)

    def _acked(self, settled: SettledRoots) -> None:
        if not settled.ids:
            return
        self._metrics.count_roots(ACK_COUNT, settled)
        self._metrics.time_roots(COMPLETE_LATENCY, settled)
        if self._wants_ack or self._hooks:
            self._deliver_later(settled, None)

    def fail(self, settled: SettledRoots, reason: Reason) -> None:
        """Count and queue failed roots, whatever the source of the failure."""
        if not settled.ids:
            return
        name = TIMEOUT_COUNT if reason.kind is FailKind.TIMEOUT else FAIL_COUNT
        self._metrics.count_roots(name, settled)
        if name is TIMEOUT_COUNT:
            self._metrics.count_roots(FAIL_COUNT, settled)
        by = (reason.kind, reason.component) if reason.component else (reason.kind,)
        self._count(keyed(FAILED_BY_REASON, *by), len(settled.ids))
        self._metrics.time_roots(FAIL_LATENCY, settled)
        if self._wants_fail or self._hooks:
            self._deliver_later(settled, reason)

    def _deliver_later(self, settled: SettledRoots, reason: Reason | None) -> None:
        self._undelivered.append((settled, reason))
        self.undelivered_count += len(settled.ids)

    def deliver(self) -> None:
        """Call ``ack`` or ``fail`` of the spout for each settled root, while there is room for the rows it emits."""
        if not self._undelivered or not self._begin():
            return
        try:
            while self._undelivered and not self._budget.is_exhausted:
                settled, reason = self._undelivered.popleft()
                ids = settled.ids
                count = self._deliver_acked(settled) if reason is None else self._deliver_failed(settled, reason)
                self.undelivered_count -= count
                if count < len(ids):
                    rest = SettledRoots(ids[count:], settled.streams[count:], settled.ages_ms[count:])
                    self._undelivered.appendleft((rest, reason))
        finally:
            self._end()

    def _begin(self) -> bool:
        """Open the emit budget. Return True if user code may be called now; ``_end`` must follow."""
        room = None if self._budget.is_active else self._room()  # an ``ack`` that polls gets no further roots
        if room is not None:
            self._budget.begin(room)
        return room is not None

    def _end(self) -> None:
        """Close the emit budget, and route or hold the rows that user code has emitted."""
        self._budget.end()
        self._collector.route_pending()

    def relieve(self) -> None:
        """Bound the number of undelivered roots within a long call."""
        if not self._wants_ack:
            self.deliver_untracked()
        if self.undelivered_count + len(self._collector.untracked_ids) <= MAX_UNDELIVERED:
            return
        if not self._warned:
            self._warned = True
            log.warning(
                "%d acks and fails wait while next_tuple runs; ack and fail are now called from within emit\n"
                "hint: call self.poll() in the loop, or return from next_tuple",
                MAX_UNDELIVERED,
            )
        self.deliver()
        self.deliver_untracked()

    def _deliver_acked(self, settled: SettledRoots) -> int:
        """Return the number of roots delivered."""
        ids = settled.ids
        if not self._hooks:
            return self._call_acks(ids)
        for count, (tup_id, age) in enumerate(zip(ids, settled.ages_ms.tolist(), strict=True)):
            if self._budget.is_exhausted:
                return count
            self._hooks.spout_ack(tup_id, age)
            if self._wants_ack:
                self._call_acks([tup_id])
        return len(ids)

    def _call_acks(self, ids: list[Any]) -> int:
        """Return the number of calls made."""
        ack, budget, remaining_ids = self._spout.ack, self._budget, iter(ids)
        while True:
            try:
                with self._user_code("ack"):
                    for tup_id in remaining_ids:
                        ack(tup_id)
                        if budget.is_exhausted:
                            break
                break
            except Exception as error:  # continue after the id that raised
                self._errors.record_exception(error, "ack")
                if budget.is_exhausted:
                    break
        return len(ids) - length_hint(remaining_ids)

    def _deliver_failed(self, settled: SettledRoots, reason: Reason) -> int:
        """Return the number of roots delivered."""
        for count, (tup_id, age) in enumerate(zip(settled.ids, settled.ages_ms.tolist(), strict=True)):
            if self._budget.is_exhausted:
                return count
            why = FailReason(reason.kind, reason.component, reason.task, reason.message, reason.traceback, age)
            if self._hooks:
                self._hooks.spout_fail(tup_id, age, why)
            if not self._wants_fail:
                continue
            try:
                with self._user_code("fail"):
                    if self._wants_reason:
                        self._spout.fail(tup_id, why)
                    else:
                        self._spout.fail(tup_id)
            except Exception as error:
                self._errors.record_exception(error, "fail")
        return len(settled.ids)

    def deliver_untracked(self) -> None:
        """Ack ids of rows that are not tracked or that went to no task."""
        untracked_ids = self._collector.untracked_ids
        if not untracked_ids:
            return
        if self._untracked_note:
            log.warning("%s", self._untracked_note)
            self._untracked_note = ""
        if not self._wants_ack:
            self._count("__untracked-ack-count", len(untracked_ids))
            untracked_ids.clear()
            return
        if not self._begin():
            return
        try:
            while untracked_ids and not self._budget.is_exhausted:
                ids = untracked_ids[:]
                untracked_ids.clear()
                acked = self._call_acks(ids)
                self._count("__untracked-ack-count", acked)
                untracked_ids[:0] = ids[acked:]
        finally:
            self._end()


def takes_reason(fail: Any) -> bool:
    """Return True if the user's ``fail`` accepts the reason as a second argument."""
    try:
        parameters = inspect.signature(fail).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) >= 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters)

"""What became of a spout's tuples: verdicts settle roots, and ``ack`` or ``fail`` tells the spout of each, once.

Verdicts are *settled* at any time: the roots leave the pending table and are counted. The spout is told when its code
may be called, which is between two calls of it or when it polls (``tell``): for many roots at a time and in their
order; what it raises ends the call for that root alone. It may emit in ``ack`` and ``fail``: that is routed before
anything else happens.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from heron_instance.core.failures import takes_reason
from heron_instance.core.hooks import Hooks
from heron_instance.core.pending import PendingTable, Settled
from heron_instance.core.settled_figures import SettledFigures
from heron_instance.core.spout_collector import SpoutCollector
from heron_instance.core.user_code import UserCode
from heron_instance.core.user_errors import UserErrors
from heron_runtime.model.instance_metrics import (
    ACK_COUNT,
    COMPLETE_LATENCY,
    FAIL_COUNT,
    FAIL_LATENCY,
    FAILED_BY_REASON,
    TIMEOUT_COUNT,
)
from heron_runtime.model.metrics import keyed
from heron_runtime.model.reasons import FailKind, FailReason
from heron_runtime.wire.data import Reason, Verdict
from heronry.api.component import Spout

MOST_UNTOLD = 65_536  # roots whose spout may be told later, while one call of it lasts

log = logging.getLogger(__name__)


class Outcomes:
    """Of one spout task."""

    def __init__(
        self,
        spout: Any,
        pending: PendingTable,
        collector: SpoutCollector,
        hooks: Hooks,
        errors: UserErrors,
        count: Callable[[str, float], None],
        figures: SettledFigures,
        user_code: UserCode,
    ) -> None:
        self._spout = spout
        self._pending = pending
        self._collector = collector
        self._hooks = hooks
        self._errors = errors
        self._count = count
        self._figures = figures
        self._user_code = user_code
        self._wants_ack = type(spout).ack is not Spout.ack
        self._wants_fail = type(spout).fail is not Spout.fail
        self._wants_reason = takes_reason(spout.fail)
        self._verdicts: deque[Verdict] = deque()
        self._untold: deque[tuple[Settled, Reason | None]] = deque()
        self._warned = False
        self.untold = 0  # settled roots that the spout is still to be told of

    def put(self, verdicts: list[Verdict]) -> None:
        """What the tracker has found, for the next ``settle``."""
        self._verdicts.extend(verdicts)

    def waiting(self) -> bool:
        """True if there is something to settle or to tell."""
        return bool(self._verdicts or self._untold)

    def settle(self, now_ms: float) -> None:
        """Settle what waits."""
        while self._verdicts:
            verdict = self._verdicts.popleft()
            roots = np.frombuffer(verdict.roots, dtype="<u8")
            settled = self._pending.settle(roots, now_ms)
            if settled.dropped:
                self._count("__dropped-verdict-count", settled.dropped)
            if verdict.reason is None:
                self._acked(settled)
            else:
                self.failed(settled, verdict.reason)

    def _acked(self, settled: Settled) -> None:
        if not settled.ids:
            return
        self._figures.counted(ACK_COUNT, settled)
        self._figures.timed(COMPLETE_LATENCY, settled)
        if self._wants_ack or self._hooks:
            self._tell_later(settled, None)

    def failed(self, settled: Settled, reason: Reason) -> None:
        """These have failed, whoever said so."""
        if not settled.ids:
            return
        name = TIMEOUT_COUNT if reason.kind is FailKind.TIMEOUT else FAIL_COUNT
        self._figures.counted(name, settled)
        if name is TIMEOUT_COUNT:
            self._figures.counted(FAIL_COUNT, settled)
        by = (reason.kind, reason.component) if reason.component else (reason.kind,)
        self._count(keyed(FAILED_BY_REASON, *by), len(settled.ids))
        self._figures.timed(FAIL_LATENCY, settled)
        if self._wants_fail or self._hooks:
            self._tell_later(settled, reason)

    def _tell_later(self, settled: Settled, reason: Reason | None) -> None:
        self._untold.append((settled, reason))
        self.untold += len(settled.ids)

    def tell(self) -> None:
        """Call ``ack`` or ``fail`` of the spout for each settled root."""
        while self._untold:
            settled, reason = self._untold.popleft()
            self.untold -= len(settled.ids)
            if reason is None:
                self._tell_acked(settled)
            else:
                self._tell_failed(settled, reason)
            self._collector.route_pending()  # a spout may emit in ack, and emit again in fail

    def relieve(self) -> None:
        """Within a long call: keep bounded what waits for user code."""
        if not self._wants_ack:
            self.ack_at_once()
        if self.untold + len(self._collector.at_once) <= MOST_UNTOLD:
            return
        if not self._warned:
            self._warned = True
            log.warning(
                "%d acks and fails wait while next_tuple goes on; ack and fail are called from within emit now: "
                "call self.poll() in the loop, or return from next_tuple",
                MOST_UNTOLD,
            )
        self.tell()
        self.ack_at_once()

    def _tell_acked(self, settled: Settled) -> None:
        if self._hooks:
            for tup_id, age in zip(settled.ids, settled.ages_ms.tolist(), strict=True):
                self._hooks.spout_ack(tup_id, age)
        if self._wants_ack:
            self._call_acks(settled.ids)

    def _call_acks(self, ids: list[Any]) -> None:
        left = iter(ids)
        while True:
            try:
                with self._user_code("ack"):
                    # In C, a call of the user's method each; after an exception it goes on behind the one that raised.
                    deque(map(self._spout.ack, left), 0)
                return
            except Exception as error:
                self._errors.raised(error, "ack")

    def _tell_failed(self, settled: Settled, reason: Reason) -> None:
        for tup_id, age in zip(settled.ids, settled.ages_ms.tolist(), strict=True):
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
                self._errors.raised(error, "fail")

    def ack_at_once(self) -> None:
        """Ack what was emitted with an id and is not tracked, or went to no task."""
        while self._collector.at_once:
            ids = self._collector.at_once[:]
            self._collector.at_once.clear()
            self._count("__untracked-ack-count", len(ids))
            if self._wants_ack:
                self._call_acks(ids)
                self._collector.route_pending()

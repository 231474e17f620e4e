"""What became of a spout's tuples: verdicts settle roots, and ``ack`` or ``fail`` tells the spout of each, once.

Verdicts are *settled* at any time: the roots leave the pending table and are counted. The spout is told when its code
may be called, which is between two calls of it or when it polls (``tell``): for many roots at a time and in their
order; what it raises ends the call for that root alone. It may emit in ``ack`` and ``fail``, within its allowance
(``allowance.py``): when that is used up the rest is told later. What waits here is bounded by the roots that were open.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from operator import length_hint
from typing import Any

import numpy as np

from heron_instance.core.allowance import Allowance
from heron_instance.core.failures import takes_reason
from heron_instance.core.hooks import Hooks
from heron_instance.core.pending import PendingTable, Settled
from heron_instance.core.settled_figures import SettledFigures
from heron_instance.core.spout_collector import SpoutCollector
from heron_instance.core.user_code import UserCode
from heron_instance.core.user_errors import UserErrors
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

MOST_UNTOLD = 65_536  # roots whose spout may be told later, while one call of it lasts

log = logging.getLogger(__name__)


class Outcomes:
    """Of one spout task. ``room`` says how many rows ``ack`` and ``fail`` may emit; None: they are not to be called."""

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
        allowance: Allowance,
        room: Callable[[], int | None],
        untracked_note: str = "",
    ) -> None:
        self._spout = spout
        self._pending = pending
        self._collector = collector
        self._hooks = hooks
        self._errors = errors
        self._count = count
        self._figures = figures
        self._user_code = user_code
        self._allowance = allowance
        self._room = room
        self._untracked_note = untracked_note  # for the log, when the first id comes that nothing tracks
        self._wants_ack = type(spout).ack is not Spout.ack and not errors.strict
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
        return bool(self._verdicts or self._untold or self._collector.at_once)

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
        """Call ``ack`` or ``fail`` of the spout for each settled root, while there is room for what it emits."""
        if not self._untold or not self._begin():
            return
        try:
            while self._untold and not self._allowance.used_up:
                settled, reason = self._untold.popleft()
                ids = settled.ids
                told = self._tell_acked(settled) if reason is None else self._tell_failed(settled, reason)
                self.untold -= told
                if told < len(ids):
                    rest = Settled(ids[told:], settled.streams[told:], settled.ages_ms[told:])
                    self._untold.appendleft((rest, reason))
        finally:
            self._end()

    def _begin(self) -> bool:
        """True if user code may be told now; ``_end`` must follow."""
        room = None if self._allowance.lasts else self._room()  # an ``ack`` that polls is told of nothing more
        if room is not None:
            self._allowance.begin(room)
        return room is not None

    def _end(self) -> None:
        """What user code has emitted meanwhile is routed, or held."""
        self._allowance.end()
        self._collector.route_pending()

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

    def _tell_acked(self, settled: Settled) -> int:
        """How many it was told of."""
        ids = settled.ids
        if not self._hooks:
            return self._call_acks(ids)
        for told, (tup_id, age) in enumerate(zip(ids, settled.ages_ms.tolist(), strict=True)):
            if self._allowance.used_up:
                return told
            self._hooks.spout_ack(tup_id, age)
            if self._wants_ack:
                self._call_acks([tup_id])
        return len(ids)

    def _call_acks(self, ids: list[Any]) -> int:
        """How many were called."""
        ack, allowance, left = self._spout.ack, self._allowance, iter(ids)
        while True:
            try:
                with self._user_code("ack"):
                    for tup_id in left:
                        ack(tup_id)
                        if allowance.used_up:
                            break
                break
            except Exception as error:  # it goes on behind the one that raised
                self._errors.raised(error, "ack")
                if allowance.used_up:
                    break
        return len(ids) - length_hint(left)

    def _tell_failed(self, settled: Settled, reason: Reason) -> int:
        """How many it was told of."""
        for told, (tup_id, age) in enumerate(zip(settled.ids, settled.ages_ms.tolist(), strict=True)):
            if self._allowance.used_up:
                return told
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
        return len(settled.ids)

    def ack_at_once(self) -> None:
        """Ack what was emitted with an id and is not tracked, or went to no task."""
        at_once = self._collector.at_once
        if not at_once:
            return
        if self._untracked_note:
            log.warning("%s", self._untracked_note)
            self._untracked_note = ""
        if not self._wants_ack:
            self._count("__untracked-ack-count", len(at_once))
            at_once.clear()
            return
        if not self._begin():
            return
        try:
            while at_once and not self._allowance.used_up:
                ids = at_once[:]
                at_once.clear()
                acked = self._call_acks(ids)
                self._count("__untracked-ack-count", acked)
                at_once[:0] = ids[acked:]
        finally:
            self._end()

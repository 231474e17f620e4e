"""A burst: ``next_tuple`` called again and again, until a call emits nothing, a bound is reached or the time is up."""

from __future__ import annotations

from heron_instance.core.outcomes import Outcomes
from heron_instance.core.spout_collector import SpoutCollector
from heron_instance.core.task import Task
from heron_runtime.model.metrics import NEXT_TUPLE_COUNT, NEXT_TUPLE_LATENCY

FAST_CALL_MS = 0.1  # calls this short are not timed one by one
BURST_MS = 2.0  # acks wait no longer than this, and one call


class Bursts:
    """Of one spout task."""

    def __init__(self, task: Task, collector: SpoutCollector, outcomes: Outcomes) -> None:
        self._task = task
        self._collector = collector
        self._outcomes = outcomes
        self._call_ms = 1.0  # what one call took in the last burst

    def run(self, room: int) -> tuple[int, bool]:
        """One burst of about ``room`` rows at most; (how many were emitted, True if another might be)."""
        task, clock = self._task, self._task.clock
        started, already = clock(), self._collector.emitted_ever()
        calls, more = [0], False
        try:
            with task.user_code("next_tuple"):
                more = room > 0 and self._call(already + room, started + BURST_MS / 1000, calls)
        except Exception as error:
            task.errors.raised(error, "next_tuple")
        finally:
            self._collector.route_pending()
            self._outcomes.ack_at_once()
            elapsed_ms = 1000 * (clock() - started)
            task.counts.count(NEXT_TUPLE_COUNT, calls[0])
            if calls[0]:
                self._call_ms = elapsed_ms / calls[0]
                task.telemetry.latency(NEXT_TUPLE_LATENCY, self._call_ms, calls[0])
        return self._collector.emitted_ever() - already, more

    def _call(self, last: int, until: float, counted: list[int]) -> bool:
        """Call until ``last`` rows were ever emitted; False if a call emitted none. What is routed meanwhile moves from
        ``rows`` to ``emitted_ever``."""
        clock, next_tuple = self._task.clock, self._task.component.next_tuple
        emitted_ever = self._collector.emitted_ever
        look = 7 if self._call_ms < FAST_CALL_MS else 0  # every 8th call of a fast spout
        before, calls = emitted_ever(), 0
        streams = list(self._collector.streams.values())
        out, rows = (streams[0], streams[0].rows) if len(streams) == 1 else (None, [])
        try:
            while before < last:
                calls += 1
                next_tuple()
                here = out.emitted_ever + len(rows) if out is not None else emitted_ever()
                if here == before:
                    return False
                before = here
                if not calls & look and clock() >= until:
                    break
        finally:
            counted[0] = calls
        return True

"""Components without a successful tuple, records put aside and late records, derived from counters. Pure.

Counts are totals since the submission, by component: calls of user code, exceptions it raised, tuples it acked and
failed, and records that a streamlet program has put aside or that were late for their windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heron_runtime.model.metrics import ACK_COUNT, EXECUTE_COUNT, FAIL_COUNT
from heron_runtime.wire.master import MetricsReply
from heron_runtime.wire.metrics import ExceptionReport

EXCEPTION_COUNT = "__exception-count"
PUT_ASIDE = "failed-record-count"
LATE = "late-count"
COUNTED = (EXECUTE_COUNT, ACK_COUNT, FAIL_COUNT, EXCEPTION_COUNT, PUT_ASIDE, LATE)
SOME = 3  # minimum number of exceptions for a pattern
MANY = 100  # number of tuples, all of them failed, from which the topology counts as failing
Counts = Mapping[str, Mapping[str, float]]  # component to metric, without its key, to total


def counts_of(reply: MetricsReply) -> Counts:
    """Return the totals of ``COUNTED`` in a reply about all time."""
    counts: dict[str, dict[str, float]] = {}
    for value in reply.values:
        name = value.name.partition("/")[0]
        if value.kind == "counter" and name in COUNTED:
            of_component = counts.setdefault(value.component, {})
            of_component[name] = of_component.get(name, 0.0) + value.total
    return counts


def all_fail(counts: Counts, least: int = SOME) -> list[str]:
    """Return the components with at least ``least`` exceptions and no successful tuple."""
    return [name for name, of in sorted(counts.items()) if _none_got_through(of, least)]


def _none_got_through(of: Mapping[str, float], least: int) -> bool:
    raised, executed = of.get(EXCEPTION_COUNT, 0.0), of.get(EXECUTE_COUNT, 0.0)
    failed, acked = of.get(FAIL_COUNT, 0.0), of.get(ACK_COUNT, 0.0)
    return raised >= least and (raised >= executed or (acked == 0 and failed >= executed))


def failing_text(counts: Counts, exceptions: Iterable[ExceptionReport]) -> str:
    """Return a text about components without a successful tuple, or ""."""
    newest = {report.component: report for report in sorted(exceptions, key=lambda report: report.last_time)}
    texts = []
    for component in all_fail(counts):
        report = newest.get(component)
        texts.append(f"all tuples of {component} fail{f': {report.class_name}: {report.message}' if report else ''}")
    return "; ".join(texts)


def put_aside(counts: Counts) -> int:
    """Return the number of records that a streamlet program has put aside."""
    return int(sum(of.get(PUT_ASIDE, 0.0) for of in counts.values()))


def late_records(counts: Counts) -> dict[str, int]:
    """Return the number of records that were late for their windows, by component, where there are any."""
    return {component: int(of[LATE]) for component, of in sorted(counts.items()) if of.get(LATE)}

"""Queue of reports to forward: the newest of each incarnation until delivered, within a bound."""

from __future__ import annotations

import pytest

from heron_runtime.telemetry import reporter
from heron_runtime.telemetry.reporter import ReportRelay
from heron_runtime.wire.metrics import ProcessMetrics


def report(task: int, incarnation: int = 1, time: float = 0.0) -> ProcessMetrics:
    return ProcessMetrics("c", f"container_1_c_{task}", 1, task, incarnation, time)


def test_newest_report_of_each_incarnation_waits_for_delivery() -> None:
    waiting = ReportRelay()
    for given in (report(1), report(2), report(1, time=1.0), report(1, incarnation=2)):
        waiting.put(given)
    under_way = waiting.all()
    assert under_way == (report(2), report(1, time=1.0), report(1, incarnation=2))
    waiting.put(report(2, time=5.0))  # newer than the one in flight
    assert waiting.all() == (report(1, time=1.0), report(1, incarnation=2), report(2, time=5.0)), "it may still fail"
    waiting.handed_on(under_way)
    assert waiting.all() == (report(2, time=5.0),)


def test_only_a_new_incarnation_sets_the_event() -> None:
    waiting = ReportRelay()
    waiting.put(report(1))
    assert waiting.news.is_set()
    waiting.news.clear()
    waiting.put(report(1, time=1.0))
    assert not waiting.news.is_set()
    waiting.put(report(1, incarnation=2))
    assert waiting.news.is_set()


def test_waiting_reports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "MAX_WAITING", 3)
    waiting = ReportRelay()
    for incarnation in range(10):
        waiting.put(report(1, incarnation))
    assert [each.incarnation for each in waiting.all()] == [7, 8, 9]

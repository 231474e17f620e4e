"""Topology events in reports: complete, limited in number, and robust to lost or repeated reports."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heron_runtime.telemetry.recorder import (
    MAX_EVENTS,
    MAX_SERIES,
    MAX_SINGLE,
    WINDOW_SECONDS,
    EventBuffer,
    Telemetry,
    new_events,
)
from heron_runtime.wire.message_codecs import PROCESS_METRICS
from heron_runtime.wire.metrics import ProcessMetrics, TopologyEvent

CAME = st.lists(
    st.tuples(st.sampled_from([0.0, 0.01, 0.5, 7.0, 61.0]), st.sampled_from("abc"), st.integers(1, 30)), max_size=40
)
ONE = settings(report_multiple_bugs=False)


def report(of: EventBuffer) -> ProcessMetrics:
    return ProcessMetrics("__stmgr__", "m", 1, 0, 1, 0.0, happenings=of.list_events(), happened=of.count)


@ONE
@given(CAME)
def test_events_are_complete_and_limited(came: list[tuple[float, str, int]]) -> None:
    """``came``: (seconds since the last one, series, number of events)."""
    found, now, told, counted = EventBuffer(), 0.0, [], 0
    for pause, series, many in came:
        now += pause
        for _ in range(many):
            before = found.count
            found.note(TopologyEvent(now, "pressure", series, 1, "", ""))
            found.check()
            events = found.list_events()
            told += events[len(events) - (found.count - before) :] if found.count > before else []
            counted += 1
    before = found.count
    found.settle(now, at_once=True)
    told += found.list_events()[len(found.list_events()) - (found.count - before) :] if found.count > before else []
    assert sum(each.count for each in told) == counted
    for series in "abc":
        mine = [each for each in told if each.component == series]
        assert len(mine) <= (MAX_SINGLE + 1) * (1 + now // WINDOW_SECONDS + 1)
    assert [each.count for each in told[:MAX_SINGLE]] == [1] * len(told[:MAX_SINGLE])


@ONE
@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from(["taken", "lost", "twice"])), max_size=20))
def test_each_event_is_delivered_once_or_counted_as_missed(steps: list[tuple[int, str]]) -> None:
    found, number, before = EventBuffer(), 0, None
    seen: list[str] = []
    missed = 0
    for many, what in [*steps, (0, "taken")]:
        for _ in range(many):
            number += 1
            found.note(TopologyEvent(100.0 * number, "checkpoint", "", 1, f"{number}", ""))
        if what == "lost":
            continue
        for _ in range(2 if what == "twice" else 1):
            fresh, more = new_events(before, report(found))
            seen += [each.text for each in fresh]
            missed += more
            before = report(found)
    assert seen == sorted(set(seen), key=int), "each once, in order"
    assert len(seen) + missed == number
    assert seen[-min(number, MAX_EVENTS) :] == [f"{n}" for n in range(1, number + 1)][-min(number, MAX_EVENTS) :]


def test_many_series_are_merged_into_one_of_their_kind() -> None:
    found = EventBuffer()
    for number in range(MAX_SERIES + 50):
        found.note(TopologyEvent(1.0, "pressure", f"spout{number}", 1, "", ""))
        found.check()
    assert found.count == MAX_SERIES + MAX_SINGLE
    found.settle(2.0, at_once=True)
    assert (found.count, found.list_events()[-1].count) == (MAX_SERIES + MAX_SINGLE + 1, 40)


def test_texts_are_truncated_and_a_clock_set_back_ends_the_window() -> None:
    found = EventBuffer()
    found.note(TopologyEvent(1000.0, "restore", "", 1, "x" * 2000, "y" * 5000))
    (told,) = found.list_events()
    assert (len(told.text), told.detail) == (1000, "")
    for _ in range(MAX_SINGLE):
        found.note(TopologyEvent(1000.0, "restore", "", 1, "", ""))
    found.settle(500.0)
    assert found.count == MAX_SINGLE + 1


def test_report_carries_events_over_the_wire() -> None:
    telemetry = Telemetry("__tmanager__", "topology_master-0", 0, 0, 1)
    telemetry.happened("checkpoint", "checkpoint 1 begun", 12.5, "{}", what="begun")
    found = telemetry.report(13.0)
    assert PROCESS_METRICS.decode(PROCESS_METRICS.encode(found)) == found
    assert (found.happened, found.happenings) == (
        1,
        (TopologyEvent(12.5, "checkpoint", "", 1, "checkpoint 1 begun", "{}"),),
    )
    for _ in range(20):
        telemetry.happened("checkpoint", "checkpoint 2 begun", 14.0, what="begun")
    telemetry.settle(15.0)
    assert sum(each.count for each in telemetry.report(15.0).happenings) == 21

"""Metric store of the master: intervals, totals, gauges, latencies and exceptions, compared with full lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.sketch import Sketch
from heron_runtime.wire import sketch_codec
from heron_runtime.wire.master import ExceptionsRequest, MetricsRequest, PublishMetrics, TimelineRequest
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import encode_sketch
from topology_master.core import metric_store
from topology_master.core.metric_store import MetricStore
from topology_master.core.time_series import LONGEST_SECONDS, CounterRings, LatencyRings, covered_seconds, window

START = 1_000_000.0
growths = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 100)), max_size=60)


def process(
    now: float, emitted: float = 0, incarnation: int = 1, started: float = START, task: int = 3, **more: object
) -> ProcessMetrics:
    values: dict[str, object] = {"counters": {"__emit-count/default": emitted}, **more}
    return ProcessMetrics("word", f"container_1_word_{task}", 1, task, incarnation, now, started=started, **values)  # type: ignore[arg-type]


def ask(store: MetricStore, now: float, seconds: float, *names: str) -> dict[str, float]:
    reply = store.metrics(now, MetricsRequest("", seconds, names))
    return {value.name: value.total for value in reply.values}


@given(growths, st.integers(1, 4000))
def test_rings_equal_a_full_list(growth: list[tuple[int, int]], seconds: int) -> None:
    ring, sketch_ring, everything, now = CounterRings(), LatencyRings(), [], START
    for gap, amount in growth:
        now += gap
        ring.add(now, amount)
        sketch_ring.add(now, Sketch({1: float(amount)}))
        everything.append((now, amount))
    step, points = window(seconds)
    begin = (now // step - points + 1) * step
    expected = sum(amount for time, amount in everything if time >= begin)
    assert ring.total(now, seconds) == sketch_ring.total(now, seconds).count == expected
    assert seconds <= covered_seconds(now, seconds) <= seconds + 2 * step
    assert begin + covered_seconds(now, seconds) == now


def test_counters_cover_intervals_and_all_time() -> None:
    store = MetricStore(START)
    for second in range(0, 1200, 5):
        store.publish(START + second, PublishMetrics(1, (process(START + second, 10.0 * (second + 5)),)))
        store.check()
    now = START + 1199
    assert ask(store, now, -1) == {"__emit-count/default": 12_000}
    reply = store.metrics(now, MetricsRequest("word", 60, ("__emit-count",)))
    assert reply.interval_seconds == pytest.approx(64)
    assert reply.values[0].rate == pytest.approx(10, rel=0.05)
    (hour,) = store.metrics(now, MetricsRequest("word", 3600)).values
    assert hour.total == 12_000
    assert store.metrics(now, MetricsRequest("other", 60)).values == ()
    assert ask(store, now, 60, "__emit") == {}


def test_timeline_shows_each_point() -> None:
    store = MetricStore(START)
    for second in range(0, 60, 5):
        slow = encode_sketch(Sketch.of([2.0] * (second + 5)))
        report = process(START + second, second + 5.0, sketches={"__execute-latency/a/b": slow})
        store.publish(START + second, PublishMetrics(1, (report,)))
    reply = store.timeline(START + 57, TimelineRequest("word", 30))
    counter, latency = reply.series
    assert (reply.start_time, reply.step_seconds) == (START + 25, 5)
    assert counter.values == (5.0,) * 7
    assert latency.values == pytest.approx((2.0,) * 7, rel=0.01)
    assert store.timeline(START + 57, TimelineRequest("other")).series == ()
    assert len(store.timeline(START + 57, TimelineRequest("word", 1e9, ("__emit-count",))).series[0].values) == 180


def test_restarted_instance_continues_its_counts() -> None:
    store = MetricStore(START)
    store.publish(START + 5, PublishMetrics(1, (process(START + 5, 100),)))
    store.publish(START + 10, PublishMetrics(1, (process(START + 10, 7, incarnation=2, started=START + 8),)))
    store.publish(START + 11, PublishMetrics(1, (process(START + 6, 103),)))  # the last report of the first one, late
    assert ask(store, START + 12, -1) == ask(store, START + 12, 60) == {"__emit-count/default": 110}


def test_new_master_knows_totals_but_no_earlier_interval() -> None:
    store = MetricStore(START + 5000)
    old = process(START + 5001, 90_000, incarnation=9, started=START + 100)
    earlier = process(START + 90, 1000, incarnation=0, started=START)
    store.publish(START + 5002, PublishMetrics(1, (earlier, old)))
    assert ask(store, START + 5003, -1) == {"__emit-count/default": 91_000}
    assert ask(store, START + 5003, 60) == {"__emit-count/default": 0}
    store.publish(START + 5007, PublishMetrics(1, (process(START + 5006, 90_050, incarnation=9, started=START + 100),)))
    assert ask(store, START + 5008, 60) == {"__emit-count/default": 50}


def test_first_master_counts_older_processes_fully() -> None:
    store = MetricStore(START + 5, is_first=True)
    store.publish(START + 9, PublishMetrics(1, (process(START + 9, 40, started=START),)))
    assert ask(store, START + 10, 60) == ask(store, START + 10, -1) == {"__emit-count/default": 40}


def test_interval_latencies_exclude_earlier_samples() -> None:
    store = MetricStore(START)
    slow, fast = Sketch.of([900.0] * 50), Sketch.of([2.0] * 50)
    name = "__complete-latency/default"
    store.publish(START + 1, PublishMetrics(1, (process(START + 1, sketches={name: encode_sketch(slow)}),)))
    both = encode_sketch(slow + fast)
    store.publish(START + 500, PublishMetrics(1, (process(START + 500, sketches={name: both}),)))
    (value,) = [v for v in store.metrics(START + 501, MetricsRequest("", 60)).values if v.kind == "latency"]
    assert value.total == 50
    assert sketch_codec.decode_sketch(value.sketch).quantile(0.99) == pytest.approx(2.0, rel=0.02)
    (always,) = [v for v in store.metrics(START + 501, MetricsRequest("", -1)).values if v.kind == "latency"]
    assert always.total == 100
    assert sketch_codec.decode_sketch(always.sketch).quantile(0.99) == pytest.approx(900.0, rel=0.02)


def test_malformed_report_is_refused_whole_and_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MetricStore(START)
    bad = process(START, 5, sketches={"l": b"\xff\xff"})
    store.publish(START, PublishMetrics(1, (bad, process(START, 5, task=4))))
    assert store.refused == 1
    assert ask(store, START + 1, -1)["__emit-count/default"] == 5
    counted = store.metrics(START + 1, MetricsRequest("", -1.0, ("__emit-count",))).values
    assert sum(value.total for value in counted) == 5, "nothing of a report that is refused is taken"
    monkeypatch.setattr(metric_store, "MAX_SERIES", 10)
    many = process(START + 2, 0, task=5, counters={f"c{n}": 1.0 for n in range(50)})
    store.publish(START + 2, PublishMetrics(1, (many,)))
    assert store.series <= 10
    assert store.refused > 30
    store.check()


def test_most_recent_exceptions_are_kept() -> None:
    store = MetricStore(START)

    def kind(number: int) -> ExceptionReport:
        return ExceptionReport("word", "container_1_word_3", "E", "m", f"t{number}", 2, START, START + number)

    for number in range(1000):
        store.publish(START, PublishMetrics(1, (process(START + number, exceptions=(kind(number),)),)))
    for task in range(4, 12):
        reports = tuple(
            ExceptionReport("count", f"c{task}", "E", "m", f"{task}.{n}", 1, START, START + 2000 + n)
            for n in range(200)
        )
        message = ProcessMetrics("count", f"c{task}", 1, task, 1, START, exceptions=reports, started=START)
        store.publish(START, PublishMetrics(1, (message,)))
    found = store.exceptions(ExceptionsRequest()).exceptions
    assert len(found) == 256
    assert [e.last_time for e in found] == sorted(e.last_time for e in found)
    assert found[-1].last_time == START + 2199
    held = sum(len(e.exceptions) for p in store._processes.values() for e in p.totals.entries())
    assert held <= 2 * 256 + 256


def test_rate_covers_the_observed_time() -> None:
    store = MetricStore(START)
    store.publish(START, PublishMetrics(1, (process(START, 40),)))
    (value,) = store.metrics(START, MetricsRequest("", 60)).values
    assert (value.total, value.rate) == (40, 0.0), "no time has passed"
    (value,) = store.metrics(START + 8, MetricsRequest("", 60)).values
    assert (value.total, value.rate) == (40, 5.0), "it is no older than this"
    (value,) = store.metrics(START + 16, MetricsRequest("", -1)).values
    assert (value.total, value.rate) == (40, 2.5)
    assert list(store.exactly(START + 16, 60, ("__emit-count/default", "g"))) == [(1, "__emit-count/default", 2.5)]
    assert store.metrics(START + 9, MetricsRequest("", -1, ("g",))).interval_seconds == 9
    assert MetricStore(START).metrics(START + 9, MetricsRequest("", -1)).interval_seconds == 0


@pytest.mark.parametrize(("before", "counts"), [(0.0, 40), (1.0, 40), (1.5, 0)])
def test_counts_of_a_process_started_just_before_the_master_are_recent(before: float, counts: int) -> None:
    store = MetricStore(START)
    store.publish(START + 5, PublishMetrics(1, (process(START + 5, 40, started=START - before),)))
    assert ask(store, START + 6, 60) == {"__emit-count/default": counts}


def test_gauge_is_fresh_for_a_minute_and_has_a_range() -> None:
    store, heard = MetricStore(START), START + 20
    for seconds, value in ((5, 2.0), (10, 8.0), (20, 5.0)):
        now = START + seconds
        store.publish(now + 3, PublishMetrics(1, (process(now, gauges={"g": value, "h": value}),), now + 3))
    fresh = store.metrics(heard + metric_store.GAUGE_FRESH_SECONDS, MetricsRequest("", 120, ("g",))).values
    assert [(v.kind, v.total, v.minimum, v.maximum, v.mean, v.rate) for v in fresh] == [("gauge", 5, 2, 8, 5, 0.0)]
    (short,) = store.metrics(heard + 50, MetricsRequest("", 5, ("g",))).values
    assert (short.total, short.minimum, short.maximum, short.mean) == (5, 5, 5, 5), "nobody has reported since"
    assert store.metrics(heard + metric_store.GAUGE_FRESH_SECONDS + 0.5, MetricsRequest("", 120, ("g",))).values == ()
    assert list(store.exactly(heard + 60, 60, ("g",))) == [(1, "g", 5.0)]
    assert list(store.exactly(heard + 60.5, 60, ("g",))) == []


@pytest.mark.parametrize(("is_first", "known", "recent"), [(True, False, 30), (False, True, 30), (False, False, 0)])
def test_counts_of_ended_processes_are_recent_if_fully_observed(is_first: bool, known: bool, recent: int) -> None:
    """A first master has missed nothing; a later one knows an ended process since its first report."""
    store = MetricStore(START + 500, is_first=is_first)
    if known:
        store.publish(START + 501, PublishMetrics(1, (process(START + 501, 0, 7),)))
    store.publish(START + 502, PublishMetrics(1, (process(START + 502, 30, incarnation=0),)))
    assert ask(store, START + 503, 60) == {"__emit-count/default": recent}
    assert ask(store, START + 503, -1) == {"__emit-count/default": 30}


def test_rings_of_ended_processes_are_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_store, "MAX_SERIES", 4)
    monkeypatch.setattr(metric_store, "MAX_GAUGES", 4)
    store = MetricStore(START)
    for task in range(20):
        now = START + task * 2 * LONGEST_SECONDS
        started = process(now, 5, task=task, started=now, gauges={"g": 1.0, "h": 2.0})
        store.publish(now, PublishMetrics(1, (started,)))
        store.check()
    assert store.refused == 0
    for seconds, total in ((60.0, 5), (-1.0, 100)):  # totals stay
        found = store.metrics(now + 1, MetricsRequest("", seconds, ("__emit-count",)))
        assert sum(value.total for value in found.values) == total


def test_silent_processes_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_store, "MAX_PROCESSES", 3)
    store = MetricStore(START)
    for task in range(3):
        store.publish(START, PublishMetrics(1, (process(START, 5, task=task),)))
    store.publish(START + 1, PublishMetrics(1, (process(START + 1, 5, task=8),)))
    assert store.refused == 1, "all of them are recent"
    now = START + 2 * LONGEST_SECONDS
    store.publish(now, PublishMetrics(1, (process(now, 7, task=9, started=now),)))
    assert store.refused == 1
    assert ask(store, now + 1, -1) == {"__emit-count/default": 7}
    store.check()


@pytest.mark.parametrize("seconds", [float("nan"), float("-inf")])
def test_non_finite_interval_stands_for_all_time(seconds: float) -> None:
    store = MetricStore(START)
    store.publish(START, PublishMetrics(1, (process(START, 5),)))
    assert ask(store, START + 1, seconds) == ask(store, START + 1, -1) == {"__emit-count/default": 5}
    assert store.timeline(START + 1, TimelineRequest("", seconds, ())) == store.timeline(
        START + 1, TimelineRequest("", 0.0, ())
    )

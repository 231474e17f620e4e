"""Telemetry: bounded totals since the start, from any thread; sketches agree with the ddsketch library."""

from __future__ import annotations

import math
import threading

import pytest
from ddsketch import DDSketch
from ddsketch.pb import ddsketch_pb2
from ddsketch.pb.proto import DDSketchProto
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.sketch import Sketch
from heron_runtime.telemetry import recorder
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire import sketch_codec
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.message_codecs import PROCESS_METRICS

values = st.lists(st.floats(1e-5, 1e9), max_size=60)


def make(component: str = "word") -> Telemetry:
    return Telemetry(component, f"container_1_{component}_3", 1, 3, 77)


def test_report_contains_totals_since_the_start() -> None:
    measured = make()
    for _ in range(3):
        measured.count("__emit-count/default", 100)
        measured.gauge("__pending-acked-count", 5)
        measured.latency("__complete-latency/default", 8.0, weight=100)
        report = measured.report(measured.started + 10)
    assert report.counters["__emit-count/default"] == 300
    assert report.gauges["__pending-acked-count"] == 5
    assert report.gauges["__py-uptime-secs"] == 10
    assert report.gauges["__py-physical-memory-byte"] > 1e6
    sketch = sketch_codec.decode_sketch(report.sketches["__complete-latency/default"])
    assert sketch.count == 300
    assert sketch.mean == pytest.approx(8.0, rel=0.01)
    assert PROCESS_METRICS.decode(PROCESS_METRICS.encode(report)) == report


def test_daemons_use_herons_names_for_daemons() -> None:
    report = make("__stmgr__").report(0.0)
    assert {"__process/__cpu_user_usec"} <= set(report.counters)
    assert {"__process/__mem_used_bytes", "__process/__fd_count"} <= set(report.gauges)


def test_names_are_bounded_and_rejections_counted() -> None:
    measured = make()
    for number in range(recorder.MAX_NAMES + 50):
        measured.count(f"n{number}")
        measured.latency(f"l{number}", 1.0)
    report = measured.report(0.0)
    assert report.counters["__telemetry-refused"] > 50
    assert len(report.counters) + len(report.sketches) < recorder.MAX_NAMES + 20


def test_exceptions_are_distinguished_by_traceback_and_bounded() -> None:
    measured = make()
    for second in range(5):
        measured.exception("ValueError", f"bad {second}", "line 1", float(second))
    measured.exception("ValueError", "bad", "line 2", 9.0)
    first, second_kind = measured.report(0.0).exceptions
    assert (first.count, first.first_time, first.last_time, first.message) == (5, 0.0, 4.0, "bad 4")
    assert second_kind.count == 1
    measured.exception("ValueError", "bad", "line 2", 10.0, 4)
    assert measured.report(0.0).exceptions[-1].count == 5
    for number in range(400):
        measured.exception("E", "x" * 5000, "y" * 50_000 + f"{number}", 10.0)
    kept = measured.report(0.0).exceptions
    assert len(kept) == recorder.MAX_EXCEPTIONS
    assert max(len(e.traceback) for e in kept) <= recorder.MAX_TRACEBACK_CHARACTERS


def test_concurrent_counting_loses_nothing() -> None:
    measured = make()

    def work() -> None:
        for _ in range(5000):
            measured.count("n")
            measured.latency("l", 1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(t.is_alive() for t in threads):
        measured.report(0.0)
    report = measured.report(0.0)
    assert report.counters["n"] == 20_000
    assert sketch_codec.decode_sketch(report.sketches["l"]).count == 20_000


@given(values)
def test_quantiles_agree_with_the_ddsketch_library(numbers: list[float]) -> None:
    ours, theirs = Sketch.of(numbers), DDSketch()
    for number in numbers:
        theirs.add(number)
    encoded = sketch_codec.encode_sketch(ours)
    read_by_them = DDSketchProto.from_proto(ddsketch_pb2.DDSketch.FromString(encoded))
    assert read_by_them.count == theirs.count == ours.count
    for q in (0.0, 0.5, 0.99, 1.0):
        expected = theirs.get_quantile_value(q)
        for answer in (
            ours.quantile(q),
            sketch_codec.decode_sketch(encoded).quantile(q),
            read_by_them.get_quantile_value(q),
        ):
            assert answer == (None if expected is None else pytest.approx(expected, rel=0.021))
    if numbers:
        assert ours.sum == pytest.approx(math.fsum(numbers), rel=0.011)


@given(values, values, values)
def test_sketches_add_like_numbers(a: list[float], b: list[float], c: list[float]) -> None:
    x, y, z = Sketch.of(a), Sketch.of(b), Sketch.of(c)
    assert x + y == y + x == Sketch.of(a + b)
    assert (x + y) + z == x + (y + z)
    assert (x + y) - y == x
    assert (x + y).join(x) == x + y == x.join(x + y)
    assert Sketch.unpack(x.pack()) == x == sketch_codec.decode_sketch(sketch_codec.encode_sketch(x))
    assert sum((sketch_codec.decode_sketch(sketch_codec.encode_sketch(s)) for s in (x, y, z)), Sketch()) == x + y + z


def test_extreme_values_are_clamped_and_bad_bytes_rejected() -> None:
    sketch = Sketch.of([0.0, -3.0, 1e-300, 1e300, math.inf])
    assert sketch.count == 5
    assert sketch.quantile(0.0) == 0.0
    assert sketch.quantile(1.0) == pytest.approx(1e12, rel=0.02)
    assert sketch.count_up_to(1.0) == 3
    with pytest.raises(MalformedMessage):
        sketch_codec.decode_sketch(b"\xff\xff")
    with pytest.raises(MalformedMessage, match="gamma"):
        sketch_codec.decode_sketch(ddsketch_pb2.DDSketch(zeroCount=1).SerializeToString())


def test_exception_with_a_lone_surrogate_is_reported() -> None:
    measured = make()
    measured.exception("SystemExit", "\ud800", "\ud800\n", 1.0)
    (found,) = measured.report(1.0).exceptions
    assert (found.message, found.traceback) == ("\\ud800", "\\ud800\n")


def test_exceptions_of_one_line_are_grouped_for_any_message() -> None:
    measured = make()
    for name in ("ann", "bob", "cat"):
        frame = 'Traceback (most recent call last):\n  File "app.py", line 7, in process\n    count[name]\n'
        measured.exception("KeyError", name, f"{frame}KeyError: '{name}'\n", 1.0)
    measured.exception("KeyError", "dan", frame.replace("line 7", "line 9"), 2.0)
    measured.exception("ValueError", "eve", frame, 3.0)
    found = measured.report(0.0).exceptions
    assert [(e.class_name, e.message, e.count) for e in found] == [
        ("KeyError", "cat", 3), ("KeyError", "dan", 1), ("ValueError", "eve", 1)
    ]  # fmt: skip

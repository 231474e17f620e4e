"""Collection of a metrics manager: newest reports, changes since a version, and restarts."""

from __future__ import annotations

import gc
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.settings import MiB
from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.message_codecs import PROCESS_METRICS
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import encode_sketch
from metrics_manager import collection
from metrics_manager.collection import Collection
from metrics_manager.saved_reports import load_reports, save_reports


def report(name: str, incarnation: int, time: float, count: float) -> ProcessMetrics:
    began = 100.0 * incarnation
    return ProcessMetrics("word", name, 1, 3, incarnation, began + time, {"n": count}, started=began)


def all_time(known: Collection) -> dict[str, float]:
    return {newest.instance: totals.counters()["n"] for newest, totals in known.all_time()}


def test_newest_returns_changes_since_a_version() -> None:
    known = Collection()
    known.take(report("a", 1, 1, 1))
    known.take(report("b", 1, 1, 1))
    seen = known.version
    assert [r.instance for r in known.newest()] == ["a", "b"]
    assert known.newest(seen) == ()
    known.take(report("a", 1, 2, 5))
    assert not known.take(report("a", 1, 2, 5)), "a repeat is no news"
    assert [r.instance for r in known.newest(seen)] == ["a"]
    known.take(report("a", 2, 1, 1))
    assert [r.incarnation for r in known.entries(seen)] == [1, 2]
    assert all_time(known) == {"a": 6, "b": 1}
    known.check()


runs = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.integers(1, 9)), max_size=60)


@given(runs, st.integers(0, 60))
def test_restart_neither_loses_nor_doubles_saved_counts(run: list[tuple[str, int, int]], crash: int) -> None:
    known, plain = Collection(), Collection()
    for number, (name, incarnation, time) in enumerate(sorted(run, key=lambda r: (r[1], r[2]))):
        each = report(name, incarnation, time, 10.0 * time)
        plain.take(each)
        known.take(each)
        if number == crash:
            entries = known.entries()
            known = Collection()
            known.restore(entries)
            known.restore(reversed(entries))
        known.check()
    assert all_time(known) == all_time(plain)


def test_processes_and_values_are_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(collection, "MAX_PROCESSES", 3)
    known = Collection()
    assert [known.take(report(f"p{n}", 1, 1, 1)) for n in range(5)] == [True] * 5
    assert len(known) == 3
    known.check()
    huge = ProcessMetrics("c", "p0", 1, 1, 1, 900.0, {str(n): 1.0 for n in range(collection.MAX_VALUES + 1)})
    assert not known.take(huge)


def test_saved_reports_round_trip_and_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "metrics_manager-1.state"
    assert load_reports(path) == ()
    known = Collection()
    for incarnation in range(1, 9):
        known.take(report("a", incarnation, 1, 1))
    save_reports(path, 1, known.entries())
    again = Collection()
    again.restore(load_reports(path))
    assert all_time(again) == {"a": 8}
    path.write_bytes(b"\xff" * 100)
    assert load_reports(path) == ()


def noise(rng: random.Random, task: int, incarnation: int, beat: int) -> ProcessMetrics:
    """Build a report like unbounded user code: a new name for each value, and a distinct exception each time."""
    names = [f"{rng.random()}{'x' * rng.choice((1, 30, 200))}" for _ in range(rng.choice((5, 100)))]
    sketch = encode_sketch(Sketch.of(rng.lognormvariate(0, 3) for _ in range(50)))
    raised = tuple(
        ExceptionReport("c", "i", "E", f"{beat}" * rng.choice((1, 100)), f"{rng.random()}" * 20, 1, 1.0, 2.0)
        for _ in range(rng.choice((0, 10)))
    )
    counters, gauges = dict.fromkeys(names, 1.0), {name + "g": 2.0 for name in names[:20]}
    sketches, began = dict.fromkeys(names[:10], sketch), 1000.0 * incarnation
    return ProcessMetrics(
        "word", f"word_{task}", 1, task, incarnation, began + beat, counters, gauges, sketches, raised, began
    )


def test_memory_of_unbounded_names_is_bounded() -> None:
    """Stored reports stay within the bound in allocated bytes, rejections are counted, and steady processes stay."""
    rng, most = random.Random(7), MiB // 2
    tracemalloc.start()
    try:
        known = Collection(most)
        assert known.take(report("calm", 1, 0, 0))
        for beat in range(1, 60):
            wire = PROCESS_METRICS.encode(noise(rng, rng.randrange(40), rng.randrange(1, 9), beat))
            known.take(PROCESS_METRICS.decode(wire))
            known.check()
            assert known.take(report("calm", 1, beat, beat))
        assert known.refused > 10
        assert known.bytes > most / 2, "the flood is one"
        assert all_time_of(known, "calm") == 59
        gc.collect()
        with_it, _ = tracemalloc.get_traced_memory()
        del known
        gc.collect()
        # Measures what is freed with the collection, because other code also allocates meanwhile.
        took = with_it - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert took < most


def all_time_of(known: Collection, name: str) -> float:
    return next(totals.counters()["n"] for newest, totals in known.all_time() if newest.instance == name)


def test_longest_silent_process_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MAX_PROCESSES", 3)
    known = Collection()
    for number in range(2000):
        assert known.take(report("stays", 1, number, number))
        assert known.take(report(f"task-{number}", 1, 1, 1))
        known.check()
    assert all_time(known) == {"stays": 1999.0, "task-1998": 1.0, "task-1999": 1.0}
    assert known.refused == 0


def test_report_with_a_bad_sketch_is_rejected_whole() -> None:
    collection = Collection()
    good = ProcessMetrics("word", "word_1", 1, 1, 1, 10.0, {"c": 1.0}, {"g": 1.0}, {}, (), 1.0)
    assert collection.take(good)
    assert not collection.take(replace(good, time=20.0, counters={"c": 9.0}, sketches={"l": b"\xff\xff"}))
    assert collection.refused == 1
    assert [report.counters for report in collection.newest()] == [{"c": 1.0}]
    collection.check()

"""What a metrics manager knows, what each sink is told, what survives its restart."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from heron_runtime.wire.metrics import ProcessMetrics
from metrics_manager.core import collection
from metrics_manager.core.collection import Collection
from metrics_manager.shell import saved


def report(name: str, incarnation: int, time: float, count: float) -> ProcessMetrics:
    began = 100.0 * incarnation
    return ProcessMetrics("word", name, 1, 3, incarnation, began + time, {"n": count}, started=began)


def all_time(known: Collection) -> dict[str, float]:
    return {newest.instance: totals.counters()["n"] for newest, totals in known.all_time()}


def test_a_sink_is_told_what_changed_since_it_asked() -> None:
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
@settings(max_examples=60, deadline=None)
def test_a_restart_loses_nothing_that_was_saved_and_doubles_nothing(
    run: list[tuple[str, int, int]], crash: int
) -> None:
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


def test_bounds(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(collection, "MAX_PROCESSES", 3)
    known = Collection()
    assert [known.take(report(f"p{n}", 1, 1, 1)) for n in range(5)] == [True, True, True, False, False]
    assert known.refused == 2
    huge = ProcessMetrics("c", "p0", 1, 1, 1, 900.0, {str(n): 1.0 for n in range(collection.MAX_VALUES + 1)})
    assert not known.take(huge)


def test_saved_totals_are_read_back_and_a_damaged_file_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "metrics_manager-1.state"
    assert saved.load(path) == ()
    known = Collection()
    for incarnation in range(1, 9):
        known.take(report("a", incarnation, 1, 1))
    saved.save(path, 1, known.entries())
    again = Collection()
    again.restore(saved.load(path))
    assert all_time(again) == {"a": 8}
    path.write_bytes(b"\xff" * 100)
    assert saved.load(path) == ()

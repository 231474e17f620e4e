"""All-time totals: never doubled and never falling for lost, repeated or reordered reports."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.sketch import EMPTY_SKETCH, Sketch
from heron_runtime.telemetry import totals
from heron_runtime.telemetry.totals import ProcessTotals
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import encode_sketch


def report(incarnation: int, time: float, count: float, started: float | None = None) -> ProcessMetrics:
    """Return a report of incarnation n, started at second 100 n, with ``count`` at ``time``."""
    began = 100.0 * incarnation if started is None else started
    raised = ExceptionReport("word", "container_1_word_3", "E", "m", "t", int(count), began, began + time)
    return ProcessMetrics(
        "word", "container_1_word_3", 1, 3, incarnation, began + time,
        {"__emit-count/default": count},
        {"__pending-acked-count": count},
        {"__complete-latency/default": encode_sketch(Sketch({3: count} if count else {}))},
        (raised,) if count else (),
        began,
    )  # fmt: skip


def total(process: ProcessTotals) -> tuple[float, float, int]:
    counter = process.counters().get("__emit-count/default", 0.0)
    sketch = process.sketches().get("__complete-latency/default", EMPTY_SKETCH).count
    return counter, sketch, sum(e.count for e in process.exceptions())


# One life: the growing counts of the reports of each incarnation.
lives = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=6)


def reports_of(life: list[list[int]]) -> list[ProcessMetrics]:
    found = []
    for incarnation, steps in enumerate(life, 1):
        count = 0
        for time, step in enumerate(steps, 1):
            count += step
            found.append(report(incarnation, time, count))
    return found


def truth(life: list[list[int]]) -> int:
    return sum(map(sum, life))


@given(lives, st.randoms(use_true_random=False))
def test_totals_are_independent_of_order_and_repeats(life: list[list[int]], chance: random.Random) -> None:
    reports = reports_of(life)
    shuffled = reports * 2
    chance.shuffle(shuffled)
    process = ProcessTotals()
    for each in shuffled:
        process.take(each)
        process.check()
    assert total(process) == (truth(life),) * 3
    assert process.newest == reports[-1]


@given(lives, st.randoms(use_true_random=False))
def test_folding_and_lossy_forwarding_never_double(life: list[list[int]], chance: random.Random) -> None:
    """The manager folds reports; those for the master are lost, repeated or late; both restart from sent reports."""
    manager, master = ProcessTotals(), ProcessTotals()
    sent: list[ProcessMetrics] = []
    highest = 0.0
    for each in reports_of(life):
        manager.take_new(each)
        manager.fold(1)
        sent.extend(manager.entries())
        if chance.random() < 0.2:
            saved, manager = manager.entries(), ProcessTotals()
            for entry in chance.sample(saved, len(saved)):
                manager.take(entry)
        if chance.random() < 0.5:
            for entry in chance.sample(sent, min(4, len(sent))):
                master.take(entry)
        master.check()
        so_far = total(master)[0]
        assert highest <= so_far <= truth(life)
        highest = so_far
    for entry in manager.entries():
        master.take(entry)
    assert total(manager) == total(master) == (truth(life),) * 3


@given(lives)
def test_metrics_manager_without_memory_makes_no_total_fall(life: list[list[int]]) -> None:
    master = ProcessTotals()
    for amnesia in range(3):
        manager = ProcessTotals()
        before = total(master)
        for each in reports_of(life):
            manager.take_new(totals.replace(each, started=each.started + 10_000 * amnesia,
                                            time=each.time + 10_000 * amnesia,
                                            incarnation=each.incarnation + 100 * amnesia))  # fmt: skip
            manager.fold(0)
            for entry in manager.entries():
                master.take(entry)
            after = total(master)
            assert after >= before
            before = after


def test_sums_are_associative_and_commutative() -> None:
    a, b, c = report(1, 1, 3), report(2, 1, 4), report(3, 1, 5)
    left = totals.add_reports([totals.add_reports([a, b]) or a, c])
    right = totals.add_reports([a, totals.add_reports([c, b]) or c])
    assert left == right
    assert left is not None
    assert left.counters == {"__emit-count/default": 12}
    assert totals.add_reports([]) is None


def test_clock_set_back_does_not_hide_a_new_incarnation() -> None:
    process = ProcessTotals()
    process.take_new(report(1, 5, 10, started=1000.0))
    process.take_new(report(2, 5, 7, started=500.0))
    process.take_new(report(2, 6, 8, started=500.0))
    assert total(process)[0] == 18
    newest = process.newest
    assert newest is not None
    assert newest.incarnation == 2


def test_crash_loop_stays_bounded() -> None:
    manager, master = ProcessTotals(), ProcessTotals()
    for incarnation in range(1, 301):
        manager.take_new(report(incarnation, 1, 1))
        manager.fold()
        for entry in manager.entries():
            master.take(entry)
    for process in (manager, master):
        assert total(process) == (300, 300, 300)
        assert len(process.entries()) <= 1 + totals.KEEP_INCARNATIONS
    manager.take_new(report(298, 9, 3))
    assert total(manager)[0] == 302, "the last words of a recent incarnation count"

"""The watermark of a source task of several splits is the least time of those that are active."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronry.streamlet.online.split_reports import SplitReport, SplitWatermark
from heronry.streamlet.online.split_times import SplitTimes


def test_the_least_time_of_the_active_splits_counts() -> None:
    splits = SplitTimes(5.0)
    splits.expect(["a", "b"])
    splits.read("a", 100)
    assert splits.watermark() is None, "b is still to be read"
    splits.read("b", 10)
    assert splits.watermark() == 10
    splits.read("a", 200)
    splits.read("b", 30)
    splits.read("b", 20)
    assert splits.watermark() == 30


def test_a_split_is_left_out_while_the_source_finds_nothing_in_it() -> None:
    splits = SplitTimes(5.0)
    splits.expect(["a", "b"])
    splits.read("a", 100)
    splits.read("b", 10)
    splits.empty("b", 1000.0)
    splits.empty("b", 1004.9)
    assert splits.watermark() == 10
    splits.empty("b", 1005.0)
    assert splits.watermark() == 100
    splits.read("b", 120)
    splits.read("a", 300)
    assert splits.watermark() == 120, "it is active again"


def test_the_greatest_time_counts_when_all_splits_are_idle() -> None:
    splits = SplitTimes(5.0)
    splits.expect(["a", "b", "c"])
    splits.read("a", 100)
    splits.read("b", 10)
    for now in (0.0, 5.0):
        for split in "abc":
            splits.empty(split, now)
    assert splits.watermark() == 100


def test_time_alone_makes_no_split_idle() -> None:
    splits = SplitTimes(5.0)
    splits.expect(["a", "b"])
    splits.empty("b", 0.0)
    splits.resume("b")  # it has records, which are read much later
    splits.read("a", 100)
    assert splits.watermark() is None
    splits.empty("b", 1000.0)
    assert splits.watermark() is None, "the wait begins with the first look that finds nothing"


def test_a_split_at_its_end_is_left_out() -> None:
    splits = SplitTimes(5.0)
    splits.expect(["a", "b"])
    splits.read("a", 10)
    splits.read("b", 50)
    splits.end("a")
    assert splits.watermark() == 50


def test_a_block_without_a_valid_time_does_not_hold_the_watermark() -> None:
    splits = SplitTimes(5.0)
    splits.expect(["a", "b"])
    splits.read("a", None)
    splits.read("b", 50)
    assert splits.watermark() == 50
    splits.read("a", 20)
    assert splits.watermark() == 50, "it does not fall"
    splits.read("a", None)
    splits.read("b", 90)
    assert splits.watermark() == 50


def test_a_number_counts_once_all_tasks_have_reported_it() -> None:
    watermark = SplitWatermark([1, 2])
    assert not watermark.add(1, SplitReport(5, ["a", "b"], False, {"a": 100}))
    assert watermark.value is None, "task 2 may still have older records"
    assert not watermark.add(1, SplitReport(6, ["a", "b"], False, {"a": 300, "b": 200}))
    assert watermark.add(2, SplitReport(5, ["a", "b"], False, {"b": 10}))
    assert watermark.value == 10
    assert watermark.add(2, SplitReport(6, ["a", "b"], False, {}))
    assert watermark.value == 200


def test_reported_splits_that_are_idle_or_without_times_are_left_out() -> None:
    watermark = SplitWatermark([1])
    assert watermark.add(1, SplitReport(1, ["a", "b", "filtered"], False, {"a": 100, "b": 10}))
    assert (watermark.value, watermark.is_idle) == (10, False)
    assert watermark.add(1, SplitReport(2, ["a"], False, {}))
    assert watermark.value == 100
    assert watermark.add(1, SplitReport(3, ["a", "b"], False, {"b": 50}))
    assert watermark.value == 100, "it does not fall"
    assert watermark.add(1, SplitReport(4, [], False, {"b": 170}))
    assert (watermark.value, watermark.is_idle) == (170, False), "more files may come"
    assert watermark.add(1, SplitReport(5, [], True, {}))
    assert (watermark.value, watermark.is_idle) == (170, True)


def test_a_task_that_restarts_is_waited_for() -> None:
    watermark = SplitWatermark([1, 2])
    watermark.add(1, SplitReport(1, ["a"], False, {"a": 10}))
    watermark.add(1, SplitReport(3, ["a"], False, {"a": 30}))
    assert watermark.add(2, SplitReport(2, ["a"], False, {})), "the first report of task 2 after its restart"
    assert watermark.value == 10


STEPS = st.lists(st.tuples(st.sampled_from(["read", "empty", "end"]), st.sampled_from("abc"), st.integers(0, 50)))


@given(steps=STEPS)
def test_the_watermark_never_falls(steps: list[tuple[str, str, int]]) -> None:
    splits, before = SplitTimes(5.0), None
    splits.expect("abc")
    for what, split, number in steps:
        if what == "read":
            splits.read(split, number)
        elif what == "empty":
            splits.empty(split, float(number))
        else:
            splits.end(split)
        now = splits.watermark()
        assert before is None or (now is not None and now >= before)
        before = now

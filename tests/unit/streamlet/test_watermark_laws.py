"""Watermarks: they never fall nor exceed an active channel, and follow the slowest file or partition of a source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronry.streamlet.online.split_reports import SplitReport, SplitWatermark
from heronry.streamlet.online.split_times import SplitTimes
from heronry.streamlet.online.watermark import FOREVER, Mark, Watermark

CHANNELS = ("a", "b", "c")
KINDS = st.sampled_from(["seen", "time", "idle", "busy", "final"])
said = st.tuples(st.sampled_from(CHANNELS), KINDS, st.integers(0, 50))


@given(words=st.lists(said, max_size=30))
def test_watermark_never_falls(words: list[tuple[str, str, int]]) -> None:
    watermark, least = Watermark(CHANNELS), None
    times: dict[str, int] = {}
    idle: set[str] = set()
    final: set[str] = set()
    for channel, what, time in words:
        if what in ("seen", "time"):
            (watermark.seen if what == "seen" else lambda c, t: watermark.mark(c, Mark.TIME, t))(channel, time)
            times[channel] = max(time, times.get(channel, time))
            idle.discard(channel)
        elif what == "idle":
            watermark.mark(channel, Mark.IDLE)
            idle.add(channel)
        elif what == "busy":
            watermark.busy(channel)
            idle.discard(channel)
        else:
            watermark.mark(channel, Mark.FINAL)
            final.add(channel)
        open_channels = set(CHANNELS) - final
        live = open_channels - idle
        now = watermark.advance()
        watermark.check()
        assert least is None or (now is not None and now >= least), "it never falls"
        if not open_channels:
            assert now == FOREVER
        elif live and live <= times.keys():
            assert now == max(min(times[c] for c in live), least or 0)
        else:
            assert now == least, "while a channel has told nothing it stands"
        least = now
    for channel in CHANNELS:
        watermark.mark(channel, Mark.FINAL)
    assert watermark.advance() == FOREVER


def test_a_channel_whose_marks_state_the_time_begins_again() -> None:
    watermark = Watermark(("a", "b"))
    watermark.seen("a", 40)
    watermark.seen("b", 60)
    assert watermark.advance() == 40
    watermark.mark("a", Mark.MARKED)
    watermark.seen("b", 90)
    assert watermark.advance() == 40, "a has stated no time since"
    watermark.mark("a", Mark.TIME, 50)
    assert watermark.advance() == 50


@given(held_times=st.lists(st.integers(0, 50), min_size=1), last=st.integers(0, 50))
def test_held_channel_holds_the_watermark_until_released(held_times: list[int], last: int) -> None:
    watermark = Watermark(("a", "b"))
    watermark.seen("b", 60)
    watermark.mark("a", Mark.HOLD)
    for time in held_times:
        watermark.seen("a", time)
        assert watermark.advance() is None
    saved = watermark.saved()
    watermark = Watermark(("a", "b"))
    watermark.restore(saved)
    watermark.seen("a", max(held_times))
    assert watermark.advance() is None, "also after a restore"
    watermark.mark("a", Mark.RELEASE)
    assert watermark.advance() is None, "what was told before is of other splits"
    watermark.seen("a", last)
    assert watermark.advance() == last
    watermark.mark("a", Mark.HOLD)
    watermark.mark("a", Mark.FINAL)
    assert watermark.advance() == 60


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

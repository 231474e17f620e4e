"""Watermark: never falls, and never exceeds an active channel with a known time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronry.streamlet.online.watermark import FOREVER, Mark, Watermark

CHANNELS = ("a", "b", "c")
said = st.tuples(st.sampled_from(CHANNELS), st.sampled_from(["seen", "time", "idle", "busy"]), st.integers(0, 50))


@given(words=st.lists(said, max_size=30))
def test_watermark_never_falls(words: list[tuple[str, str, int]]) -> None:
    watermark, least = Watermark(CHANNELS), None
    times: dict[str, int] = {}
    idle: set[str] = set()
    for channel, what, time in words:
        if what in ("seen", "time"):
            (watermark.seen if what == "seen" else lambda c, t: watermark.mark(c, Mark.TIME, t))(channel, time)
            times[channel] = max(time, times.get(channel, time))
            idle.discard(channel)
        elif what == "idle":
            watermark.mark(channel, Mark.IDLE)
            idle.add(channel)
        else:
            watermark.busy(channel)
            idle.discard(channel)
        live = [c for c in CHANNELS if c not in idle]
        now = watermark.advance()
        watermark.check()
        assert least is None or (now is not None and now >= least), "it never falls"
        if live and all(c in times for c in live):
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

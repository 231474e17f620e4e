"""A watermark never falls, and is never beyond a channel that tells its time and did so before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronry.streamlet.online.watermark import FOREVER, Mark, Watermark

CHANNELS = ("a", "b", "c")
said = st.tuples(st.sampled_from(CHANNELS), st.sampled_from(["seen", "time", "idle", "busy"]), st.integers(0, 50))


def law_a_watermark_never_falls(words: list[tuple[str, str, int]]) -> None:
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


@given(words=st.lists(said, max_size=30))
def test_a_watermark_never_falls(words: list[tuple[str, str, int]]) -> None:
    law_a_watermark_never_falls(words)


# An older time comes again; then a channel comes back from being idle, and is behind.
BEHIND = [
    ("b", "seen", 1), ("c", "seen", 1), ("a", "seen", 9), ("a", "seen", 5), ("b", "seen", 20), ("c", "seen", 20),
    ("c", "idle", 0), ("a", "seen", 40), ("b", "seen", 40), ("c", "seen", 25),
]  # fmt: skip


def it_falls_back(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Watermark) -> int | None:
        self.value = None
        return real(self)

    real = Watermark.advance
    patch.setattr(Watermark, "advance", advance)


def the_newest_word_counts(patch: pytest.MonkeyPatch) -> None:
    def seen(self: Watermark, channel: Any, time_ms: int) -> None:
        self._times[channel] = time_ms
        self._idle.discard(channel)

    patch.setattr(Watermark, "seen", seen)


def the_fastest_channel_counts(patch: pytest.MonkeyPatch) -> None:
    real = Watermark.advance

    def advance(self: Watermark) -> int | None:
        real(self)
        told = [time for time in self._times.values() if time is not None]
        self.value = FOREVER if self.is_final else max(told, default=None)
        return self.value

    patch.setattr(Watermark, "advance", advance)


@pytest.mark.parametrize("mutation", [it_falls_back, the_newest_word_counts, the_fastest_channel_counts])
def test_the_law_notices(mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        law_a_watermark_never_falls(BEHIND)

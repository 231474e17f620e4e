"""Silence of participants in milliseconds of the master's ticks, since the last message or the start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.plan import stream_manager_of, task_participant
from topology_master.core.membership import MAX_STEP_MS
from topology_master.core.recovery import SilenceTimer

PLACES = [task_participant(1), task_participant(2), stream_manager_of(1)]


@given(
    st.integers(0, 10**6),
    st.lists(
        st.one_of(st.sampled_from(PLACES), st.integers(0, 3 * MAX_STEP_MS), st.just("begin")),
        max_size=40,
    ),
)
def test_silence_sums_bounded_steps_since_the_last_message(start_ms: int, steps: list[object]) -> None:
    silence = SilenceTimer()
    silence.advance(start_ms)
    assert silence.clock_ms == 0, "before the first tick no time has passed"
    now_ms, silent_ms = start_ms, dict.fromkeys(PLACES, 0)
    for step in steps:
        if step == "begin":
            silence.begin()
            silent_ms = dict.fromkeys(PLACES, 0)
        elif isinstance(step, int):
            now_ms += step
            silence.advance(now_ms)
            silent_ms = {place: ms + min(step, MAX_STEP_MS) for place, ms in silent_ms.items()}
        else:
            silence.heard(step)  # type: ignore[arg-type]  # a place
            silent_ms[step] = 0  # type: ignore[index]
        assert {place: silence.of(place) for place in PLACES} == silent_ms

"""Judgement by heartbeat: which processes are killed and when, unaffected by pauses of the watcher and by tracing."""

from __future__ import annotations

import ctypes
import os
import signal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_container.core.liveness import PATIENCE, Judgement, Liveness, SchedulerWatch, Silence, scheduler_patience
from heron_control.schedulers.identity import traced
from heron_runtime.model.backoff import BackoffPolicy

TICK = 500


def make(slots: int = 1) -> Liveness:
    judge = Liveness(10_000, 30_000, 120_000, TICK)
    for slot in range(slots):
        judge.watch(slot)
    return judge


def run(judge: Liveness, ticks: int, beats: dict[int, int], cpu: dict[int, float]) -> list[tuple[int, Silence]]:
    """Run regular ticks; return pairs of (tick number, silence)."""
    found = []
    for tick in range(1, ticks + 1):
        wanted = {slot: cpu[slot] for slot in judge.silent_slots() if slot in cpu}
        found += [(tick, silence) for silence in judge.tick(TICK, beats, wanted)]
        judge.check()
    return found


@pytest.mark.parametrize(
    ("cpu_per_tick", "judgement", "least_ms", "most_ms"),
    [(0.0, Judgement.HUNG, 30_000, 33_000), (0.4, Judgement.SILENT, 120_000, 120_000),
     (None, Judgement.SILENT, 120_000, 120_000)],
    ids=["hung", "busy", "unknown"],
)  # fmt: skip
def test_silent_process_is_suspected_and_killed_sooner_if_it_hangs(
    cpu_per_tick: float | None, judgement: Judgement, least_ms: int, most_ms: int
) -> None:
    judge, found = make(), []
    for tick in range(1, 300):
        cpu = {} if cpu_per_tick is None else {0: 1.0 + tick * cpu_per_tick}
        found += [(tick * TICK, silence) for silence in judge.tick(TICK, {0: 0}, cpu)]
        judge.check()
    (first, suspect), (last, killed) = found
    assert (first, suspect.judgement) == (10_000, Judgement.SUSPECT)
    assert killed.judgement is judgement
    assert least_ms <= last <= most_ms
    if judgement is Judgement.HUNG:
        assert killed.reason().startswith("killed: no heartbeat and no CPU progress for 3")


@given(st.lists(st.tuples(st.integers(1, 10_000_000), st.booleans()), max_size=100))
def test_pause_of_the_watcher_kills_no_process(ticks: list[tuple[int, bool]]) -> None:
    """A process has ``kill_ms / (2 tick)`` of the watcher's own ticks to beat, however long the watcher is away."""
    judge, beat, since_beat = make(), 0, 0
    for passed, beats in ticks:
        beat += beats
        since_beat = 0 if beats else since_beat + 1
        cpu = dict.fromkeys(judge.silent_slots(), 1.0)
        for silence in judge.tick(passed, {0: beat}, cpu):
            assert since_beat >= 10_000 // (2 * TICK)
            if silence.judgement is not Judgement.SUSPECT:
                assert since_beat >= 30_000 // (2 * TICK)
        judge.check()


@given(st.data())
def test_process_that_beats_in_time_is_never_judged(data: st.DataObject) -> None:
    judge, beat, silent_ms = make(), 0, 0
    for _ in range(100):
        passed = data.draw(st.integers(1, 1000))
        silent_ms += passed
        if silent_ms >= 9_000 or data.draw(st.booleans()):
            beat, silent_ms = beat + 1, 0
        assert judge.tick(passed, {0: beat}, dict.fromkeys(judge.silent_slots(), 0.0)) == []


def test_kills_on_a_stalled_machine_are_spaced() -> None:
    found = run(make(5), 200, dict.fromkeys(range(5), 0), dict.fromkeys(range(5), 1.0))
    killed = [tick * TICK for tick, silence in found if silence.judgement is Judgement.HUNG]
    assert len(killed) == 5
    assert all(later - earlier >= 1000 for earlier, later in pairwise(killed))


def test_extension_adds_time_and_a_new_process_starts_afresh() -> None:
    judge = make()
    judge.extend(0, 60_000)
    found = run(judge, 300, {0: 0}, {0: 1.0})
    assert found[0][0] * TICK == 70_000
    judge.forget(0)
    judge.extend(0, 1)  # the slot is empty
    judge.watch(0)
    assert run(judge, 19, {0: 0}, {0: 1.0}) == []


@given(st.integers(0, 300), st.lists(st.tuples(st.integers(1, 5000), st.booleans()), max_size=60))
def test_scheduler_is_started_only_after_repeated_absence_and_with_delays(
    container: int, looks: list[tuple[int, bool]]
) -> None:
    patience = scheduler_patience(container)
    watch, now, missing, last = SchedulerWatch(BackoffPolicy(1000, 30_000, 60_000), patience), 0, 0, None
    for passed, present in looks:
        now += passed
        missing = 0 if present else missing + 1
        if watch.observe(now, present):
            assert missing >= patience
            assert last is None or now - last >= 2000
            last = now


@given(st.integers(0, 300), st.integers(1, 3))
def test_container_0_starts_the_scheduler_first_and_others_later(least: int, more: int) -> None:
    def first(container: int) -> int:
        watch = SchedulerWatch(BackoffPolicy(1000, 30_000, 60_000), scheduler_patience(container))
        return next(look for look in range(1, 100) if watch.observe(1500 * look, False))

    assert first(0) == scheduler_patience(0) == PATIENCE
    assert first(0) + 2 <= first(max(least, 1)) <= first(max(least, 1) + more)


def test_scheduler_starts_have_growing_intervals() -> None:
    watch = SchedulerWatch(BackoffPolicy(1000, 30_000, 60_000))
    looks = (0, 10, 1_000, 2_009, 2_010)
    assert [watch.observe(now, False) for now in looks] == [False, True, False, False, True], "two seconds at least"
    watch = SchedulerWatch(BackoffPolicy(1000, 30_000, 60_000))
    assert [watch.observe(now, False) for now in (0, 10)] == [False, True]
    started = [now for now in range(1_000, 40_000, 1_000) if watch.observe(now, False)]
    assert len(started) > 2
    distances = [later - before for before, later in pairwise([10, *started])]
    assert all(distance >= 1_990 for distance in distances)
    assert distances[-1] > 4 * distances[1]
    started = [now for now in range(1_000_000, 1_200_000, 500) if watch.observe(now, False)]
    distances = [later - before for before, later in pairwise(started)]
    assert distances[:8] == [2_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000], "the last had lived for long"
    for now in (2_050_000, 2_051_000):
        assert not watch.observe(now, True)
    assert [watch.observe(now, False) for now in (2_100_000, 2_100_010)] == [False, True], "it was there: count anew"


PTRACE_TRACEME = 0
TICK_MS = 500


def test_traced_process_is_detected() -> None:
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).ptrace(PTRACE_TRACEME, 0, 0, 0)
        os.write(told, b"x")
        signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)
        assert traced(pid)
        assert not traced(os.getpid())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(told)
    assert not traced(pid), "it is gone"


def test_silent_process_lives_while_its_lease_is_extended() -> None:
    judge = Liveness(10_000, 30_000, 120_000, TICK_MS)
    judge.watch(0)
    found = []
    for _ in range(1000):
        for slot in judge.silent_slots():
            judge.extend(slot, 5000)
        found += judge.tick(TICK_MS, {0: 0}, {0: 1.0})
    assert found == []
    for _ in range(100):
        found += judge.tick(TICK_MS, {0: 0}, {0: 1.0})
    assert found, "and no longer"

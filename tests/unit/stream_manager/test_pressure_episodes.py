"""Backpressure episodes: all time under pressure is reported by cause, at a bounded rate."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from heron_runtime.model.dataflow import Cause, CauseKind
from stream_manager.core import backpressure as module
from stream_manager.core.backpressure import LONGEST_MS, MAX_CAUSES, QUIET_MS, BackpressureEpisode, BackpressureEpisodes

CAUSES = [Cause(CauseKind.TASK, "count", task, 1) for task in range(12)]


def looks_after(*waits: int) -> st.SearchStrategy[list[tuple[int, dict[str, list[Cause]]]]]:
    """Build observations: the time since the last one, and the causes of each spout paused then."""
    causes = st.lists(st.sampled_from(CAUSES), min_size=1, max_size=12, unique=True)
    paused = st.dictionaries(st.sampled_from(["words", "lines"]), causes)
    return st.lists(st.tuples(st.sampled_from(waits), paused), max_size=60)


ONE = settings(report_multiple_bugs=False)


@ONE
@given(looks_after(0, 100, 500, 29_900, 30_000, 200_000))
def test_durations_pauses_and_causes_add_up(looks: list[tuple[int, dict[str, list[Cause]]]]) -> None:
    found, now, told = BackpressureEpisodes(), 0, list[BackpressureEpisode]()
    paused_ms, stood_ms, begun = dict.fromkeys(["words", "lines"], 0), 0, 0
    before: dict[str, list[Cause]] = {}
    for wait, paused in looks:
        now += wait
        for spout, causes in before.items():
            paused_ms[spout] += wait
            stood_ms += wait * len(causes)
        begun += sum(spout not in before for spout in paused)
        found.observe(now, {spout: tuple(causes) for spout, causes in paused.items()})
        found.check()
        told += found.take()
        before = paused
    for spout, causes in before.items():
        paused_ms[spout] += 70
        stood_ms += 70 * len(causes)
    found.end(now + 70)
    told += found.take()
    for spout, ms in paused_ms.items():
        assert sum(each.paused_ms for each in told if each.spout == spout) == ms
    assert sum(ms for each in told for ms in each.causes.values()) == stood_ms
    assert sum(each.pauses for each in told) >= begun, "one that goes on into the next episode counts there, too"
    assert all(len(each.causes) <= MAX_CAUSES + 1 for each in told)
    assert found.idle


@ONE
@given(looks_after(100, 500, 1000, 29_900))
def test_flapping_yields_at_most_two_episodes_a_minute(
    looks: list[tuple[int, dict[str, list[Cause]]]],
) -> None:
    found, now, told = BackpressureEpisodes(), 0, list[BackpressureEpisode]()
    for wait, paused in looks:
        now += wait
        found.observe(now, {spout: tuple(causes) for spout, causes in paused.items()})
        told += found.take()
    for spout in ("words", "lines"):
        assert sum(each.spout == spout for each in told) <= now // QUIET_MS


@ONE
@given(st.lists(st.integers(1, 20_000), max_size=40))
def test_lasting_pressure_yields_one_episode_in_five_minutes(waits: list[int]) -> None:
    found, now = BackpressureEpisodes(), 0
    for wait in [*waits, *[10_000] * 70]:
        found.observe(now, {"words": (CAUSES[0],)})
        now += wait
    found.observe(now, {"words": (CAUSES[0],)})
    told = found.take()
    assert now // (LONGEST_MS + 20_000) <= len(told) <= now // LONGEST_MS


def test_episode_text_names_duration_and_causes() -> None:
    found = BackpressureEpisodes()
    link = Cause(CauseKind.LINK, "", 0, 1, 2)
    found.observe(1000, {"words": (CAUSES[3],)})
    found.observe(3000, {"words": (CAUSES[3], link)})
    found.observe(4000, {})
    found.observe(5000, {"words": (link,)})
    found.end(5500)
    (each,) = found.take()
    assert each.text == (
        "paused 2 times for 3.5 s of 4.5 s: count task 3 (seen in container 1) 3.0 s, "
        "link from container 1 to container 2 1.5 s"
    )
    told = json.loads(each.detail(10_000.4))
    assert (told["from_ms"], told["to_ms"], told["pauses"], told["paused_ms"]) == (11_000, 15_500, 2, 3500)
    assert told["causes"][1] == {"kind": "link", "component": "", "task": 0, "container": 1, "peer": 2, "ms": 1500}


def test_untaken_episodes_are_bounded_to_the_newest() -> None:
    found = BackpressureEpisodes()
    for number in range(100):
        found.observe(number * 2 * QUIET_MS, {f"spout{number}": (CAUSES[0],)})
        found.observe(number * 2 * QUIET_MS + 1, {})
    assert [each.spout for each in found.take()] == [f"spout{n}" for n in range(99 - module.MAX_WAITING, 99)]

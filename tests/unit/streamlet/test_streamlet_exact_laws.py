"""Exactly-once results across faults and rescaling, compared with the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronry.streamlet import Builder, sequence, to_files
from heronry.streamlet.results import finished
from tests.support.streamlets.exact_programs import KINDS, PROGRAMS, Trial, random_trial
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable

RECORDS = st.lists(
    st.fixed_dictionaries({"t": st.integers(0, 200), "k": st.sampled_from("abc")}), min_size=6, max_size=60
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from([0.1, 0.4, 0.9, 2.1, 2.3]), st.sampled_from(KINDS), st.integers(0, 99), st.integers(1, 3)
    ),
    max_size=5,
)


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=10)
@given(st.builds(Trial, RECORDS, st.integers(0, 1000), EVENTS))
def test_results_are_exact_for_any_faults(program: str, trial: Trial) -> None:
    PROGRAMS[program](trial)


def test_window_has_one_result_across_kills_and_a_rescale() -> None:
    PROGRAMS["windows"](random_trial(5))


def test_results_are_final_after_two_rescales_between_checkpoints(tmp_path: Path) -> None:
    builder = Builder("final", {"user.streamlet.folder": f"{tmp_path}/own"})
    counts = builder.source(sequence(9)).key_by(lambda n: n % 3).count_by_key(name="counts", parallelism=2)
    counts.sink(to_files(tmp_path / "out"), name="out")
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        world.until_final()
        assert finished(tmp_path / "out")
        world.rescale({"counts": 3})
        assert not finished(tmp_path / "out"), "the third task has no mark yet"
        world.rescale({"counts": 2})
        world.until_final()
        world.stop()
    assert finished(tmp_path / "out")

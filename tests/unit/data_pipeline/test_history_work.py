"""Roll-up work of the history: each raw file is taken once per level, whatever arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.core.history import KEEP_DAYS, Day, outdated, work
from heron_runtime.model.history import DAY_MS, LEVEL_MS, ROLLED

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.integers(0, 99), st.sampled_from(["2026-01-01", "2026-01-02"])),
        st.tuples(st.just("goes"), st.integers(0, 99), st.just("")),
        st.tuples(st.just("runs"), st.integers(0, 8), st.just("")),
    ),
    max_size=25,
)


@given(STEPS)
def test_each_file_is_taken_once_by_each_level(steps: list[tuple[str, int, str]]) -> None:
    """``runs``: a job that dies after some days of levels."""
    raw: dict[str, set[str]] = {}
    held: dict[tuple[str, str], frozenset[str]] = {}
    counted: dict[tuple[str, str], int] = {}
    number = 0
    for step, how, date in [*steps, ("runs", 99, "")]:
        if step == "comes":
            number += 1
            raw.setdefault(date, set()).add(f"c1-{number}")
        elif step == "goes":
            for names in raw.values():
                names -= {name for name in names if name == f"c1-{how}" and all((lv, name) in counted for lv in ROLLED)}
        else:
            days = [
                Day("p", date, frozenset(names), {lv: held[lv, date] for lv in ROLLED if (lv, date) in held})
                for date, names in raw.items()
            ]
            for item in work(days)[:how]:
                assert item.files <= raw[item.date]
                assert item.merges == ((item.level, item.date) in held)
                held[item.level, item.date] = item.taken
                for name in item.files:
                    counted[item.level, name] = counted.get((item.level, name), 0) + 1
    assert counted == {(level, f"c1-{n}"): 1 for level in ROLLED for n in range(1, number + 1)}


def test_coarser_levels_are_kept_longer() -> None:
    assert list(KEEP_DAYS) == list(LEVEL_MS)
    assert sorted(KEEP_DAYS.values()) == list(KEEP_DAYS.values())
    dates = ["1970-01-01", "1970-01-02", "1970-01-31"]
    assert outdated("1m", dates, 31 * DAY_MS) == ["1970-01-01"]
    assert outdated("1d", dates, 31 * DAY_MS) == []

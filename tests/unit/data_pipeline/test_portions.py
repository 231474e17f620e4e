"""Which portions hold every micro-batch once, whatever joins and faults have left behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import each_law, each_mutation

from data_pipeline.core import portions
from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.planner import plan
from data_pipeline.core.portions import Portion, cover, identity, streamed
from heronry.streamlet import Builder, files, sequence, to_files


def law_every_micro_batch_is_held_once() -> None:
    """Joined portions begin at 0; what they cover may still be there or not, and other names mean nothing."""

    @given(st.integers(0, 12), st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12), st.booleans())
    def holds(batches: int, joined: set[tuple[int, int]], gone: bool) -> None:
        wholes = [last for first, last in joined if first == 0 and last < batches]
        names = {f"0-{last}" for last in wholes} | {"rows", "7", "3-1", "-1-2", ".0-99.host.1.tmp"}
        covered = max(wholes, default=-1)
        names |= {f"{n}-{n}" for n in range(batches) if n > covered or not gone}
        found = portions.cover(names)
        held = [number for portion in found for number in range(portion.first, portion.last + 1)]
        assert held == list(range(batches))
        assert {portion.name for portion in found} <= names

    holds()


def what_is_covered_counts_again(patch: pytest.MonkeyPatch) -> None:
    cover = portions.cover

    def all_of(names: set[str]) -> list[Portion]:
        single = [Portion(n, n) for n in range(13) if f"{n}-{n}" in names]
        return sorted({*cover(names), *single})

    patch.setattr(portions, "cover", all_of)


test_law = each_law(globals())
test_mutation = each_mutation([(what_is_covered_counts_again, law_every_micro_batch_is_held_once)])


def test_nothing_behind_a_missing_one_counts() -> None:
    assert cover(["0-0", "2-2"]) == [Portion(0, 0)]
    assert cover(["1-1"]) == []


def program(path: str = "/in", more: bool = False):
    builder = Builder("p")
    lines = builder.source(files(path, "text"))
    lines.key_by().count_by_key(name="count").sink(to_files("/out"))
    if more:
        lines.sink(to_files("/more"))
    return plan(builder.build())


def test_the_identity_of_a_plan_is_that_of_its_steps_and_sources() -> None:
    assert identity(program()) == identity(program())
    assert len({identity(program()), identity(program("/other")), identity(program(more=True))}) == 3


@pytest.mark.parametrize(
    ("form", "says"), [("archive", "holds records twice"), ("", "reads neither files nor servers")]
)
def test_what_cannot_be_streamed_is_refused(form: str, says: str) -> None:
    builder = Builder("p")
    given = files("/in", form) if form else sequence(5)
    builder.source(given).sink(to_files("/out"))
    with pytest.raises(CannotPlan, match=says):
        streamed(plan(builder.build()))

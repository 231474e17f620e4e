"""Portions of a streaming run cover every micro-batch once after any merges and faults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.core import portions
from data_pipeline.core.plan import CannotPlan
from data_pipeline.core.planner import Choice, plan
from data_pipeline.core.portions import Kept, Portion, by_parts, cover, former_identity, identity, streamed, without
from heronry.streamlet import Builder, archive, files, sequence, to_files, to_table


def test_every_micro_batch_is_covered_once() -> None:
    """Merged portions begin at 0; the ones they cover may still exist, and other names are ignored."""

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


REDUCERS = "abc"
KEPT = st.builds(
    Kept,
    st.dictionaries(st.sampled_from(REDUCERS), st.sampled_from(["key string", "key int"])),
    st.sets(st.sampled_from(REDUCERS)),
)


def test_sql_adds_up_only_complete_parts() -> None:
    """SQL reads a reducer only if all of it is in parts with the same columns; without input it has none."""

    @given(st.lists(KEPT, max_size=5))
    def holds(kept: list[Kept]) -> None:
        found = portions.columns_of_parts(kept)
        for name in REDUCERS:
            columns = {portion.parts[name] for portion in kept if name in portion.parts}
            is_sql = len(columns) == 1 and not any(name in portion.merged for portion in kept)
            assert found.get(name) == (columns.pop() if is_sql else None)

    holds()


def test_portions_after_a_gap_are_ignored() -> None:
    assert cover(["0-0", "2-2"]) == [Portion(0, 0)]
    assert cover(["1-1"]) == []


def program(path: str = "/in", more: bool = False):
    builder = Builder("p")
    lines = builder.source(files(path, "text"))
    lines.key_by().count_by_key(name="count").sink(to_files("/out"))
    if more:
        lines.sink(to_files("/more"))
    return plan(builder.build())


def test_plan_identity_depends_on_steps_and_sources() -> None:
    assert identity(program()) == identity(program())
    assert len({identity(program()), identity(program("/other")), identity(program(more=True))}) == 3


def test_plan_identity_is_stable_for_existing_checkpoints() -> None:
    builder = Builder("golden")
    lines = builder.source(files("/in", "text"), name="lines").map(str.lower, name="lower")
    lines.key_by().count_by_key(name="count").sink(to_files("/out"), name="out")
    assert identity(plan(builder.build(), Choice(sql=False))) == "9b77e0d0282cf939"


def test_the_former_identity_of_a_plan_stays_what_it_was() -> None:
    builder = Builder("golden")
    lines = builder.source(files("/in", "text"), name="lines", event_time=len)
    lines.sink(archive("/archive"), name="keep")
    counts = lines.key_by().count_by_key(name="count")
    counts.sink(to_table("host=h", "t", ["key", "value"], key="key"), name="out")
    assert former_identity(plan(builder.build(), Choice(sql=False))) == "df32a14fa62cfb57"


@pytest.mark.parametrize(
    ("form", "says"), [("archive", "may hold duplicates"), ("", "reads neither files nor servers")]
)
def test_source_that_cannot_be_streamed_is_rejected(form: str, says: str) -> None:
    builder = Builder("p")
    given = files("/in", form) if form else sequence(5)
    builder.source(given).sink(to_files("/out"))
    with pytest.raises(CannotPlan, match=says):
        streamed(plan(builder.build()))


def test_scan_without_sql_reducers_keeps_its_tags_and_taps() -> None:
    builder = Builder("p")
    lines = builder.source(files("/in", "text"), name="lines")
    every = lines.union(lines, name="twice").tap(print, name="tap")
    every.key_by().count_by_key(name="count").sink(to_files("/out"), name="counts")
    lines.map(str.lower, name="lower").key_by().count_by_key(name="low").sink(to_files("/low"), name="lows")
    (scan,) = plan(builder.build()).scans
    left = without(scan, {"count"})
    assert left.unit is not None
    assert scan.unit is not None
    assert [output for output in scan.unit.outputs if output.step == "low"] == list(left.unit.outputs)
    told = str(left.unit)
    assert "'tap'" in told
    assert "'count'" not in told
    nothing = without(left, {"low"}).unit
    assert nothing is not None
    assert "'lower'" not in str(nothing), "it led nowhere else"
    builder = Builder("q")
    builder.source(files("/in", "text")).key_by().count_by_key(name="count").sink(to_files("/out"))
    (scan,) = plan(builder.build()).scans
    assert without(scan, {"count"}).unit is None


def test_plan_by_parts_changes_only_its_sql_reducers() -> None:
    builder = Builder("p")
    lines = builder.source(files("/in", "text"))
    for name in ("one", "two"):
        lines.key_by().count_by_key(name=name).sink(to_files(f"/{name}"))
    before = plan(builder.build(), Choice(sql=False))
    after = by_parts(before, {"one"})
    assert [found.sql for found in after.reductions] == [True, False]
    assert [replace(found, sql=False) for found in after.reductions] == list(before.reductions)
    assert after.scans == before.scans

"""Adoption of a checkpoint by another topology: no loss, mix-up or double read for any tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.submission.checkpoint_adoption import Kept, adopt, kept_in, without_place
from heron_runtime.model.checkpoints import (
    ALL_GROUPS,
    AdoptionMode,
    CommitToken,
    Manifest,
    StatePart,
    groups_of,
    initial_manifest,
    next_manifest,
    reading_plan,
    shape_of,
)
from heron_runtime.model.plan import NO_PLAN
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    TopologyDefinition,
)
from heron_runtime.wire.checkpoint_formats import decode_manifest, encode_manifest
from topology_master.core.planner import initial_table, rebalance

SHAPES = {"words": "a spout", "count": "a bolt with keys of 1 field", "out": "a bolt without keys"}


def bolt(name: str, *fields: str) -> ComponentSpec:
    """Return a bolt that reads words grouped by these fields."""
    kind = GroupingKind.FIELDS if fields else GroupingKind.SHUFFLE
    return ComponentSpec(
        name, ComponentKind.BOLT, "m:B", inputs=(InputSpec("words", "default", GroupingSpec(kind, fields)),)
    )


WORDS = ComponentSpec("words", ComponentKind.SPOUT, "m:S")
SAME = TopologyDefinition("t", "t-2", (WORDS, bolt("count", "word"), bolt("out")))


@st.composite
def histories(draw: st.DrawFn) -> Manifest:
    """Draw the last of several checkpoints between which the tasks of count change."""
    last, table = initial_manifest("t-1"), tuple(initial_table([2, 3]))
    fresh = 5
    for number in range(1, draw(st.integers(1, 12)) + 1):
        if draw(st.booleans()):
            tasks = [*sorted(set(table))[: draw(st.integers(1, 2))], fresh]
            table, fresh = tuple(rebalance(table, tasks)), fresh + 1
        whose = [("words", 1, 0), ("out", 4, 0), *(("count", task, groups_of(table, task)) for task in set(table))]
        parts = [
            StatePart(
                c, task, 7, 2, number, last.turn + 1, 1, "x", groups, (CommitToken(number, f"2-{number}-{task}-7"),)
            )
            for c, task, groups in whose
        ]
        last = next_manifest(last, parts, NO_PLAN, {"count": table}, "", SHAPES)
    return last


@given(histories(), st.permutations(range(1, 9)), st.integers(1, 6))
def test_adopted_files_and_groups_keep_their_contents_under_new_names(
    manifest: Manifest, ids: list[int], count: int
) -> None:
    tasks = {"words": [ids[0]], "out": [ids[1]], "count": sorted(ids[2 : 2 + count])}
    found, files = adopt(manifest, "t-2", tasks)
    assert (found.topology_id, found.adopted, found.turn) == ("t-2", AdoptionMode.WHOLE, manifest.turn)
    assert found.files == set(files), "every file has one name, and every name is of one file"
    assert {part.name for part in files.values()} == manifest.files
    assert found.tokens == manifest.tokens, "tokens are names in the outside system and stay"
    before = reading_plan(manifest.layers["count"], ALL_GROUPS)
    after = reading_plan(found.layers["count"], ALL_GROUPS)
    assert [(files[part.name], groups) for part, groups in after] == before
    owners = [part.task for part in found.parts if part.component == "count"]
    had = len([part for part in manifest.parts if part.component == "count"])
    assert [task for task in owners if task in tasks["count"]] == tasks["count"][:had]
    taken = {task for component, those in tasks.items() if component != "count" for task in those}
    assert not taken & set(owners), "no task of another component is an heir"
    all_tokens = [token for c, those in tasks.items() for task in those for token in found.tokens_of(task, those, c)]
    assert sorted(token.name for token in all_tokens) == sorted(manifest.tokens), "each is committed by one task"
    assert decode_manifest(encode_manifest(found)) == found


def _of(definition: TopologyDefinition, **kept: Kept) -> list[str]:
    found = without_place(replace(initial_manifest("t-1"), shapes=SHAPES), kept, definition)
    return [lost.component for lost in found]


@pytest.mark.parametrize(
    ("component", "kept", "definition", "lost"),
    [
        ("count", Kept(keyed=True), SAME, False),
        ("gone", Kept(), SAME, False),
        ("gone", Kept(own=True), SAME, True),
        ("gone", Kept(tokens=True), SAME, True),
        ("count", Kept(own=True), replace(SAME, components=(WORDS, bolt("count", "a", "b"))), False),
        ("count", Kept(keyed=True), replace(SAME, components=(WORDS, bolt("count", "a", "b"))), True),
        ("count", Kept(keyed=True), replace(SAME, components=(WORDS, bolt("count"))), True),
        ("words", Kept(own=True), replace(SAME, components=(bolt("words"),)), True),
        ("out", Kept(own=True), replace(SAME, components=(replace(WORDS, name="out"),)), True),
    ],
)
def test_state_without_a_component_is_found(
    component: str, kept: Kept, definition: TopologyDefinition, lost: bool
) -> None:
    assert _of(definition, **{component: kept}) == ([component] if lost else [])


def test_dropped_state_is_not_read() -> None:
    part = StatePart("count", 2, 7, 2, 1, 0, 1, "x", ALL_GROUPS)
    own = StatePart("words", 1, 7, 2, 1, 0, 1, "x", 0)
    table = {"count": (2,) * 1024}
    manifest = next_manifest(initial_manifest("t-1"), [part, own], NO_PLAN, table, "", SHAPES)
    assert kept_in(manifest, {own.name}, {part.name}) == {"words": Kept(own=True), "count": Kept(keyed=True)}
    other = replace(SAME, components=(WORDS, bolt("count", "a", "b")))
    lost = without_place(manifest, kept_in(manifest, set(), {part.name}), other)
    found, files = adopt(manifest, "t-2", {"words": [1], "count": [2]}, lost)
    assert (found.adopted, found.layers, found.tables) == (AdoptionMode.IN_PART, {}, {})
    assert sorted(part.component for part in files.values()) == ["count", "words"], "its state of its own stays"
    found, files = adopt(manifest, "t-2", {"words": [1]}, [])
    assert [part.component for part in files.values()] == ["words"]


def test_shape_describes_kind_and_keys() -> None:
    assert [shape_of(spec) for spec in SAME.components] == list(SHAPES.values())
    assert shape_of(bolt("x", "a", "b")) == "a bolt with keys of 2 fields"

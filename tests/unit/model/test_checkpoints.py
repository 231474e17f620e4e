"""Manifests: the files a key group is read from, none older than eight checkpoints."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.checkpoints import (
    ALL_GROUPS,
    FULL_EVERY,
    CommitToken,
    Manifest,
    StatePart,
    full_groups,
    groups_of,
    initial_manifest,
    needed_layers,
    next_manifest,
    reading_plan,
)
from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.plan import NO_PLAN
from topology_master.core.planner import initial_table, rebalance


def part(task: int, checkpoint: int, turn: int, groups: int, component: str = "count", tokens: str = "") -> StatePart:
    names = tuple(CommitToken(checkpoint, name) for name in tokens.split())
    return StatePart(component, task, 7, 1, checkpoint, turn, 100, "sum", groups, names)


def history(seed: int, length: int) -> list[Manifest]:
    """Return checkpoints of a component whose tasks change between them."""
    draw = random.Random(seed)
    tasks = [1, 2, 3]
    table = initial_table(tasks)
    found = [initial_manifest("id")]
    number = 0
    for turn in range(length):
        number += draw.randint(1, 3)  # some were cancelled
        if draw.random() < 0.3:
            tasks = sorted(draw.sample(range(1, 9), draw.randint(1, 5)))
            table = rebalance(table, tasks)
        parts = [part(task, number, turn, groups_of(table, task)) for task in tasks]
        found.append(next_manifest(found[-1], parts, NO_PLAN, {"count": table}))
    return found


@given(st.sets(st.integers(0, KEY_GROUPS - 1)))
def test_set_of_groups_is_an_integer(groups: set[int]) -> None:
    table = [7 if group in groups else 8 for group in range(KEY_GROUPS)]
    assert [group for group in range(KEY_GROUPS) if groups_of(table, 7) >> group & 1] == sorted(groups)


def test_each_group_is_full_once_in_eight_turns() -> None:
    for first in (0, 5):
        full = [full_groups(turn) for turn in range(first, first + FULL_EVERY)]
        assert sum(full) == ALL_GROUPS
        assert all(one & other == 0 for one in full for other in full if one != other)


@given(st.integers(0, 10_000), st.integers(1, 20))
def test_group_is_read_from_its_last_full_block(seed: int, length: int) -> None:
    manifests = history(seed, length)
    newest = manifests[-1]
    layers = newest.layers["count"]
    everything = [p for m in manifests[1:] for p in m.parts]
    assert {p.checkpoint for p in layers} <= {m.checkpoint for m in manifests[-FULL_EVERY:]}
    for group in (0, 1, 7, 8, 500, KEY_GROUPS - 1):
        holders = [p for p in everything if p.groups >> group & 1]
        full = [i for i, p in enumerate(holders) if full_groups(p.turn) >> group & 1]
        expected = holders[full[-1] :] if full else holders
        assert [p for p, wanted in reading_plan(layers, ALL_GROUPS) if wanted >> group & 1] == expected
        assert [p for p, _ in reading_plan(layers, 1 << group)] == expected
    assert {p.name for p in newest.parts} <= newest.files
    assert newest.layers["count"] == needed_layers(tuple(everything))


def test_inconsistent_parts_are_rejected() -> None:
    table = initial_table([1, 2])
    base, tables = initial_manifest("id"), {"count": table}
    one, two = (part(task, 3, 0, groups_of(table, task)) for task in (1, 2))
    assert next_manifest(base, [two, one], NO_PLAN, tables).parts == (one, two)
    for parts, said in (
        ([one], "no task has written"),
        ([one, replace(two, checkpoint=4)], "no one checkpoint"),
        ([one, replace(two, generation=2)], "no one checkpoint"),
        ([one, one, two], "no one checkpoint"),
        ([one, replace(two, groups=1)], "other key groups"),
        ([replace(one, turn=1), replace(two, turn=1)], "does not follow"),
        ([], "no one checkpoint"),
    ):
        with pytest.raises(ValueError, match=said):
            next_manifest(base, parts, NO_PLAN, tables)


def test_tokens_of_removed_tasks_belong_to_the_lowest_task() -> None:
    parts = [part(1, 3, 0, 0, "sink", "a b"), part(2, 3, 0, 0, "sink", "c"), part(5, 3, 0, 0, "other", "x")]
    manifest = next_manifest(initial_manifest("id"), parts, NO_PLAN, {})
    names = [t.name for t in manifest.tokens_of(1, [1, 2], "sink")]
    assert names == ["a", "b"]
    assert [t.name for t in manifest.tokens_of(2, [2, 3], "sink")] == ["a", "b", "c"]
    assert manifest.tokens_of(3, [2, 3], "sink") == ()
    assert manifest.tokens == {"a", "b", "c", "x"}

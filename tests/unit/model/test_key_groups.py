"""Key-group table: balanced, deterministic, and changed with the fewest moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.ids import KEY_GROUPS
from topology_master.core.planner import initial_table, rebalance

task_sets = st.sets(st.integers(1, 65_535), min_size=1, max_size=40)


def balanced(table: tuple[int, ...], tasks: set[int]) -> bool:
    counts = Counter(table)
    shares = [counts[task] for task in tasks]
    return set(counts) <= tasks and max(shares) - min(shares) <= 1


def fewest_moves(old: tuple[int, ...], tasks: set[int]) -> int:
    """Compute the minimum differently: a task keeps at most its share, and each larger share saves one move."""
    share, larger = divmod(KEY_GROUPS, len(tasks))
    held = Counter(task for task in old if task in tasks)
    kept = sum(min(count, share) for count in held.values())
    kept += min(larger, sum(count > share for count in held.values()))
    return KEY_GROUPS - kept


def moves(old: tuple[int, ...], new: tuple[int, ...]) -> int:
    return sum(a != b for a, b in zip(old, new, strict=True))


@given(task_sets)
def test_first_table_is_balanced_and_independent_of_order(tasks: set[int]) -> None:
    table = initial_table(sorted(tasks))
    assert len(table) == KEY_GROUPS
    assert balanced(table, tasks)
    assert table == initial_table(sorted(tasks, reverse=True))


@given(st.lists(task_sets, min_size=2, max_size=4))
def test_change_of_tasks_moves_the_fewest_groups(history: list[set[int]]) -> None:
    table = initial_table(sorted(history[0]))
    for tasks in history[1:]:
        after = rebalance(table, sorted(tasks))
        assert balanced(after, tasks)
        assert moves(table, after) == fewest_moves(table, tasks)
        assert rebalance(after, sorted(tasks)) == after
        table = after


@given(st.lists(st.sampled_from([1, 2, 3, 9]), min_size=KEY_GROUPS, max_size=KEY_GROUPS), task_sets)
def test_unbalanced_table_is_repaired_with_the_fewest_moves(old: list[int], tasks: set[int]) -> None:
    after = rebalance(old, sorted(tasks))
    assert balanced(after, tasks)
    assert moves(tuple(old), after) == fewest_moves(tuple(old), tasks)


def test_fourth_task_takes_a_quarter_of_the_groups() -> None:
    before = initial_table([1, 2, 3])
    assert moves(before, rebalance(before, [1, 2, 3, 4])) == KEY_GROUPS // 4


def test_more_tasks_than_groups_are_balanced() -> None:
    tasks = set(range(1, 2001))
    assert balanced(initial_table(sorted(tasks)), tasks)


@pytest.mark.parametrize("tasks", [[], [1, 1]])
def test_invalid_tasks_are_rejected(tasks: list[int]) -> None:
    with pytest.raises(ValueError, match="task"):
        initial_table(tasks)
    with pytest.raises(ValueError, match="task"):
        rebalance([1] * KEY_GROUPS, tasks)


def test_table_of_another_size_is_rejected() -> None:
    with pytest.raises(ValueError, match="1024 entries"):
        rebalance([1, 2, 3], [1])

"""Assignment of the 1 024 key groups of a component to its tasks. Pure, with the same result in every process.

The group of a key never changes (``heron_runtime.model.keys``); only the owner of a group does. When the number of
tasks changes, as few groups as possible move: a task gives up only the groups above its fair share. (With ranges of
groups, half of them would move from 3 tasks to 4.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from heron_runtime.model.ids import KEY_GROUPS


def initial_table(tasks: Sequence[int]) -> tuple[int, ...]:
    """Return the task of each group, assigned round robin, so that shares differ by at most one. Raises ValueError."""
    owners = _checked(tasks)
    return tuple(owners[group % len(owners)] for group in range(KEY_GROUPS))


def rebalance(old_table: Sequence[int], tasks: Sequence[int]) -> tuple[int, ...]:
    """Return a balanced table over ``tasks`` that moves as few groups of ``old_table`` as possible.

    Raises:
        ValueError: ``tasks`` is empty or contains duplicates, or the length of ``old_table`` is wrong.
    """
    owners = _checked(tasks)
    if len(old_table) != KEY_GROUPS:
        raise ValueError(f"a key-group table has {KEY_GROUPS} entries, not {len(old_table)}")
    room = _shares(Counter(old_table), owners)
    table: list[int | None] = []
    for task in old_table:
        keeps = room.get(task, 0) > 0
        table.append(task if keeps else None)
        if keeps:
            room[task] -= 1
    takers = (task for task in owners for _ in range(room[task]))
    return tuple(next(takers) if task is None else task for task in table)


def _shares(held: Counter[int], owners: list[int]) -> dict[int, int]:
    """Return the number of groups of each task. Tasks that hold most get the larger shares, which reduces moves."""
    share, larger = divmod(KEY_GROUPS, len(owners))
    by_holding = sorted(owners, key=lambda task: (-held[task], task))
    return {task: share + (rank < larger) for rank, task in enumerate(by_holding)}


def _checked(tasks: Sequence[int]) -> list[int]:
    owners = sorted(tasks)
    if not owners:
        raise ValueError("key groups need at least one task")
    if len(set(owners)) != len(owners):
        raise ValueError(f"a task occurs twice in {owners}")
    return owners

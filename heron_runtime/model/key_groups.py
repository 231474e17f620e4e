"""Which task owns each of the 1 024 key groups of a component: pure, and the same in every process.

A key keeps its group (``heron_runtime.model.keys``); only the owner of a group changes. When the number of
tasks changes, the fewest groups move: a task gives up only what it holds above its fair share. (Cutting the groups
into ranges would move half of them from 3 tasks to 4.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from heron_runtime.model.ids import KEY_GROUPS


def initial_table(tasks: Sequence[int]) -> tuple[int, ...]:
    """The task of each group, dealt out in turn, so that shares differ by one at most. Raises ValueError."""
    owners = _checked(tasks)
    return tuple(owners[group % len(owners)] for group in range(KEY_GROUPS))


def rebalance(old_table: Sequence[int], tasks: Sequence[int]) -> tuple[int, ...]:
    """A balanced table over ``tasks`` that differs from ``old_table`` in the fewest groups. Raises ValueError."""
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
    """Return the number of groups of each task. Tasks that hold most get the larger shares, which saves moves."""
    share, larger = divmod(KEY_GROUPS, len(owners))
    by_holding = sorted(owners, key=lambda task: (-held[task], task))
    return {task: share + (rank < larger) for rank, task in enumerate(by_holding)}


def _checked(tasks: Sequence[int]) -> list[int]:
    owners = sorted(tasks)
    if not owners:
        raise ValueError("key groups need at least one task")
    if len(set(owners)) != len(owners):
        raise ValueError(f"a task stands twice among {owners}")
    return owners

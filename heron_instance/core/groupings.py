"""Groupings: which task receives which row.

One small class for each grouping divides a whole run of rows at a time. The collector only keeps the emitted rows;
``split`` divides them when the run is routed. So shuffle is slicing, fields grouping one pass of hashes in C, and an
emit costs the same whatever the grouping. Two groupings must decide during the emit, since they need its arguments or
run user code: direct and custom (``decides_at_emit``).

``RoutedRows`` are rows with their positions in the run and the tasks that receive each of them (one task, except for
ALL, whose rows are encoded once for all tasks).

Fields grouping and partial key grouping use the key group (``heron_runtime/model/keys.py``) and the plan's table, so
every emitting task sends a key to the same task. Partial key grouping is for keys so frequent that one task cannot take
them. It has two tasks for each key group and takes, row by row, the one to which this task has sent less (Nasir et al.,
ICDE 2015: the power of both choices). Emitters that balance their own output balance the sum, without coordination. A
reader then holds a part of the tuples of a key, and a downstream bolt with fields grouping combines the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

import mmh3
import msgspec
import numpy as np

from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.keys import HASH_SEED, group_of, group_of_many
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.topology import KEYED, Edge, GroupingKind

Row = tuple[Any, ...]
KEY_TYPES = frozenset({str, bytes, int, float, bool, type(None)})  # always supported
_NO_SIGN = repeat(False)
_SEEDS = repeat(HASH_SEED)
_MIX = 0x9E3779B1  # spreads neighbouring groups: an odd number near 2**32 by the golden ratio


class RoutedRows(NamedTuple):
    """Rows for each task of ``tasks``; ``at`` gives their positions in the run."""

    tasks: tuple[int, ...]
    rows: list[Row]
    at: Any  # slice or array of positions


EVERYTHING = slice(None)


class TaskGrouping:
    """Base class of groupings to a tuple of tasks."""

    decides_at_emit = False
    may_choose_none = False

    def __init__(self, tasks: tuple[int, ...]) -> None:
        self.tasks = tasks

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Divide a run of rows."""
        raise NotImplementedError

    def decide(self, row: Row, direct_task: int | None) -> None:
        """Choose tasks for a row now. ``split`` receives the rows in the same order."""

    def forget_last(self) -> None:
        """Undo the last ``decide``, since another grouping refused the emit."""


class AllGrouping(TaskGrouping):
    """Sends each row to every task."""

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Return one part for all tasks."""
        return [RoutedRows(self.tasks, rows, EVERYTHING)]


class GlobalGrouping(TaskGrouping):
    """Sends every row to the task with the lowest id."""

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Return one part."""
        return [RoutedRows(self.tasks[:1], rows, EVERYTHING)]


class ShuffleGrouping(TaskGrouping):
    """Round robin from a given start: the counts of any two tasks never differ by more than one."""

    def __init__(self, tasks: tuple[int, ...], start: int) -> None:
        super().__init__(tasks)
        self._next = start % len(tasks)

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Give every n-th row to the same task."""
        count, width = len(rows), len(self.tasks)
        if width == 1:
            return [RoutedRows(self.tasks, rows, EVERYTHING)]
        first = self._next
        self._next = (first + count) % width
        return [
            RoutedRows((self.tasks[(first + k) % width],), rows[k::width], slice(k, None, width))
            for k in range(min(width, count))
        ]


class DirectGrouping(TaskGrouping):
    """Sends each row to the task named by the emitter."""

    decides_at_emit = True

    def __init__(self, tasks: tuple[int, ...], where: str) -> None:
        super().__init__(tasks)
        self._where = where
        self._chosen: list[int] = []

    def decide(self, row: Row, direct_task: int | None) -> None:
        """Keep the emitter's choice. Raises ValueError if it is missing or not a reader."""
        if direct_task is None:
            raise ValueError(
                f"{self._where}: direct_task is missing for a direct stream\nhint: emit with direct_task= one of "
                f"{list(self.tasks)}"
            )
        if direct_task not in self.tasks:
            raise ValueError(f"{self._where}: task {direct_task} does not read it (readers: {list(self.tasks)})")
        self._chosen.append(direct_task)

    def forget_last(self) -> None:
        """Drop the last choice."""
        self._chosen.pop()

    def _take(self, count: int) -> list[int]:
        """Remove and return the oldest choices. A deferred call may have added more."""
        chosen = self._chosen[:count]
        del self._chosen[:count]
        return chosen

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Divide by the kept choices."""
        chosen = self._take(len(rows))
        slot_of = {task: slot for slot, task in enumerate(self.tasks)}
        slots = np.fromiter(map(slot_of.__getitem__, chosen), np.uint16, len(rows))
        return split_by_slot(slots, rows, self.tasks)


class SharedDirectGrouping(DirectGrouping):
    """Direct grouping of one reader of a stream that has several: takes the rows for its own tasks."""

    may_choose_none = True

    def decide(self, row: Row, direct_task: int | None) -> None:
        """Keep the emitter's choice. The collector has checked that some reader has the task."""
        self._chosen.append(direct_task if direct_task in self.tasks else -1)

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Return the rows for own tasks, by task."""
        chosen = np.array(self._take(len(rows)), dtype=np.int64)
        parts = []
        for task in self.tasks:
            at = np.flatnonzero(chosen == task)
            if len(at):
                parts.append(RoutedRows((task,), [rows[i] for i in at.tolist()], at))
        return parts


class UserGrouping(TaskGrouping):
    """Sends each row to the tasks chosen by a class of the user; it may choose several or none."""

    decides_at_emit = True
    may_choose_none = True

    def __init__(self, tasks: tuple[int, ...], chooser: Any, where: str) -> None:
        super().__init__(tasks)
        self._chooser = chooser
        self._where = where
        self._chosen: list[tuple[int, ...]] = []

    def decide(self, row: Row, direct_task: int | None) -> None:
        """Call the user's class. Raises its exceptions, and ValueError for a task that is not a reader."""
        answer = self._chooser.choose_tasks(row)
        tasks = (answer,) if isinstance(answer, int) else tuple(dict.fromkeys(answer))
        for task in tasks:
            if task not in self.tasks:
                name = type(self._chooser).__name__
                raise ValueError(
                    f"{self._where}: {name}.choose_tasks chose task {task}, which does not read it "
                    f"(readers: {list(self.tasks)})"
                )
        self._chosen.append(tasks)

    def forget_last(self) -> None:
        """Drop the last choice."""
        self._chosen.pop()

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Divide by the kept choices."""
        chosen = self._chosen[: len(rows)]
        del self._chosen[: len(rows)]
        places: dict[int, list[int]] = {}
        for place, tasks in enumerate(chosen):
            for task in tasks:
                places.setdefault(task, []).append(place)
        return [
            RoutedRows((task,), [rows[i] for i in positions], np.array(positions, dtype=np.int64))
            for task, positions in sorted(places.items())
        ]


def split_by_slot(slots: Any, rows: list[Row], tasks: tuple[int, ...]) -> list[RoutedRows]:
    """Return one part for each slot that occurs, with rows in order. ``slots`` indexes ``tasks`` for each row."""
    if len(rows) == 1:
        return [RoutedRows((tasks[int(slots[0])],), rows, EVERYTHING)]
    counts = np.bincount(slots, minlength=len(tasks)).tolist()
    order = slots.argsort(kind="stable")
    sorted_rows = itemgetter(*order.tolist())(rows)
    parts, start = [], 0
    for slot, count in enumerate(counts):
        if count == len(rows):
            return [RoutedRows((tasks[slot],), rows, EVERYTHING)]
        if count:
            parts.append(
                RoutedRows((tasks[slot],), list(sorted_rows[start : start + count]), order[start : start + count])
            )
            start += count
    return parts


def groups_of_keys(keys: list[Any], *, single: bool) -> Any:
    """Return the key group of each key, as an array. Keys of several fields (not ``single``) are tuples of them."""
    count = len(keys)
    if single:
        # mmh3 must not see a str without UTF-8 (keys.py), hence the test for ASCII.
        if set(map(type, keys)) == {str} and "".join(keys).isascii():
            hashes = np.fromiter(map(mmh3.hash, keys, _SEEDS, _NO_SIGN), np.uint32, count)
            return hashes & (KEY_GROUPS - 1)
        return np.fromiter(map(group_of, keys), np.uint16, count)
    return np.fromiter(map(group_of_many, keys), np.uint16, count)


class FieldsGrouping(TaskGrouping):
    """Sends equal keys to the same task: key, key group, task, by the plan's table."""

    def __init__(self, tasks: tuple[int, ...], table: Sequence[int], positions: tuple[int, ...]) -> None:
        super().__init__(tasks)
        slot_of = {task: slot for slot, task in enumerate(tasks)}
        self._slots = np.array([slot_of[task] for task in table], dtype=np.uint16)
        self._positions = positions
        self._key: Callable[[Row], Any] = itemgetter(*positions)
        self._single = len(positions) == 1

    def check(self, row: Row) -> None:
        """Check that the key of the row can be hashed. Raises UnsupportedKey without a location."""
        for position in self._positions:
            if type(row[position]) not in KEY_TYPES:
                group_of(row[position])

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Hash, look up, and sort stably by task."""
        if len(self.tasks) == 1:
            return [RoutedRows(self.tasks, rows, EVERYTHING)]
        return split_by_slot(self._slots[self.groups(rows)], rows, self.tasks)

    def groups(self, rows: list[Row]) -> Any:
        """Return the key group of each row."""
        return groups_of_keys(list(map(self._key, rows)), single=self._single)


class PartialKeyGrouping(FieldsGrouping):
    """Sends equal keys to one of two tasks: the one to which this emitter has sent less."""

    def __init__(self, tasks: tuple[int, ...], table: Sequence[int], positions: tuple[int, ...]) -> None:
        super().__init__(tasks, table, positions)
        width = len(tasks)
        mixed = np.arange(len(self._slots), dtype=np.uint64) * np.uint64(_MIX) % np.uint64(1 << 32)
        distance = 1 + (mixed >> np.uint64(16)).astype(np.int64) % max(1, width - 1)  # never the first choice
        self._others = ((self._slots + distance) % width).astype(np.uint16)
        self._sent = [0] * width

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Choose one of two tasks for each row, then divide as fields grouping does."""
        if len(self.tasks) == 1:
            return [RoutedRows(self.tasks, rows, EVERYTHING)]
        groups, sent, slots = self.groups(rows), self._sent, []
        for one, other in zip(self._slots[groups].tolist(), self._others[groups].tolist(), strict=True):
            slot = other if sent[other] < sent[one] else one
            sent[slot] += 1
            slots.append(slot)
        return split_by_slot(np.array(slots, np.uint16), rows, self.tasks)


def make_grouping(
    edge: Edge,
    plan: PhysicalPlan,
    task: int,
    rng: np.random.Generator,
    *,
    load: Callable[[str], Any] | None = None,
    context: Any = None,
    direct_readers: int = 1,
) -> TaskGrouping | None:
    """Make the grouping of ``edge`` as ``task`` applies it. Return None while the destination has no task.

    Args:
        edge: Edge of the topology.
        plan: Plan that names the tasks.
        task: The emitting task.
        rng: Source of the random start of shuffle grouping.
        load: Turns ``module:Class`` into the class.
        context: Topology context for a custom grouping.
        direct_readers: Number of readers of a direct stream.
    """
    tasks = plan.tasks_of(edge.destination)
    if not tasks:
        return None
    where = f"stream {edge.source}/{edge.stream}"
    kind = edge.grouping.kind
    if kind is GroupingKind.ALL:
        return AllGrouping(tasks)
    if kind is GroupingKind.GLOBAL:
        return GlobalGrouping(tasks)
    if kind in KEYED:
        schema = plan.topology.component(edge.source).output(edge.stream)
        fields = schema.fields if schema else ()
        positions = tuple(fields.index(name) for name in edge.grouping.fields)
        by_key = FieldsGrouping if kind is GroupingKind.FIELDS else PartialKeyGrouping
        return by_key(tasks, plan.key_group_table(edge.destination), positions)
    if kind is GroupingKind.DIRECT:
        return DirectGrouping(tasks, where) if direct_readers == 1 else SharedDirectGrouping(tasks, where)
    if kind is GroupingKind.CUSTOM:
        if load is None:
            raise ValueError(f"{where}: the custom grouping {edge.grouping.python_class} has no loader")
        arguments = msgspec.msgpack.decode(edge.grouping.arguments) if edge.grouping.arguments else {}
        chooser = load(edge.grouping.python_class)(**arguments)
        chooser.prepare(context, edge.source, edge.stream, list(tasks))
        return UserGrouping(tasks, chooser, where)
    if kind is GroupingKind.LOCAL_OR_SHUFFLE:
        container = plan.container_of(task)
        tasks = tuple(t for t in tasks if plan.container_of(t) == container) or tasks
    return ShuffleGrouping(tasks, int(rng.integers(0, len(tasks))))

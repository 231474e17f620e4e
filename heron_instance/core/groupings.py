"""Which task gets which row. One small class for each grouping, each told a whole run of rows at once. Those that go by
a key are in ``key_groupings``; ``make_grouping`` chooses.

The collector only remembers what was emitted; ``split`` divides it when the run is routed. So shuffle is slicing,
fields grouping one pass of hashes in C, and an emit costs the same whatever the grouping. Two groupings must decide
while the emit is on the stack, since they need its arguments or run user code: direct and custom (``decides_at_emit``).

A ``Part`` says: these rows, found at these places of the run, go to each of these tasks (one, except for ALL, whose
rows are encoded once for all tasks).
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

Row = tuple[Any, ...]


class Part(NamedTuple):
    """``rows``, which stand at ``at`` in the run, go to every task of ``tasks``."""

    tasks: tuple[int, ...]
    rows: list[Row]
    at: Any  # slice or array of positions


EVERYTHING = slice(None)


class Grouping:
    """The base: knows its target tasks."""

    decides_at_emit = False
    may_choose_none = False

    def __init__(self, tasks: tuple[int, ...]) -> None:
        self.tasks = tasks

    def split(self, rows: list[Row]) -> list[Part]:
        """Divide a run of rows."""
        raise NotImplementedError

    def decide(self, row: Row, direct_task: int | None) -> None:
        """Choose tasks for a row now; ``split`` will be told of it in the same order."""

    def forget_last(self) -> None:
        """Undo the last ``decide``: the emit was refused by another grouping."""


class All(Grouping):
    """Every task gets each row."""

    def split(self, rows: list[Row]) -> list[Part]:
        """One part for all."""
        return [Part(self.tasks, rows, EVERYTHING)]


class Global(Grouping):
    """The task with the lowest id gets everything."""

    def split(self, rows: list[Row]) -> list[Part]:
        """One part."""
        return [Part(self.tasks[:1], rows, EVERYTHING)]


class Shuffle(Grouping):
    """Round robin from a given start: the counts of any two tasks never differ by more than one."""

    def __init__(self, tasks: tuple[int, ...], start: int) -> None:
        super().__init__(tasks)
        self._next = start % len(tasks)

    def split(self, rows: list[Row]) -> list[Part]:
        """Every n-th row to the same task."""
        count, width = len(rows), len(self.tasks)
        if width == 1:
            return [Part(self.tasks, rows, EVERYTHING)]
        first = self._next
        self._next = (first + count) % width
        return [
            Part((self.tasks[(first + k) % width],), rows[k::width], slice(k, None, width))
            for k in range(min(width, count))
        ]


class Direct(Grouping):
    """The emitter names the task."""

    decides_at_emit = True

    def __init__(self, tasks: tuple[int, ...], where: str) -> None:
        super().__init__(tasks)
        self._where = where
        self._chosen: list[int] = []

    def decide(self, row: Row, direct_task: int | None) -> None:
        """Remember the emitter's choice. Raises ValueError for none, or for a task that is no reader."""
        if direct_task is None:
            raise ValueError(f"{self._where} is a direct stream: emit with direct_task= one of {list(self.tasks)}")
        if direct_task not in self.tasks:
            raise ValueError(f"{self._where}: task {direct_task} does not read it (readers: {list(self.tasks)})")
        self._chosen.append(direct_task)

    def forget_last(self) -> None:
        """Undo."""
        self._chosen.pop()

    def _take(self, count: int) -> list[int]:
        """The oldest choices. There are more where a call of user code that may be undone is under way."""
        chosen = self._chosen[:count]
        del self._chosen[:count]
        return chosen

    def split(self, rows: list[Row]) -> list[Part]:
        """By the remembered choices."""
        chosen = self._take(len(rows))
        slot_of = {task: slot for slot, task in enumerate(self.tasks)}
        slots = np.fromiter(map(slot_of.__getitem__, chosen), np.uint16, len(rows))
        return by_slot(slots, rows, self.tasks)


class OneOfMany(Direct):
    """Direct, for a stream with several readers: this one gets the rows whose task is its own."""

    may_choose_none = True

    def decide(self, row: Row, direct_task: int | None) -> None:
        """Remember the emitter's choice; the collector has checked that some reader has the task."""
        self._chosen.append(direct_task if direct_task in self.tasks else -1)

    def split(self, rows: list[Row]) -> list[Part]:
        """The rows that are ours, by task."""
        chosen = np.array(self._take(len(rows)), dtype=np.int64)
        found = []
        for task in self.tasks:
            at = np.flatnonzero(chosen == task)
            if len(at):
                found.append(Part((task,), [rows[i] for i in at.tolist()], at))
        return found


class Custom(Grouping):
    """A class of the user's chooses; it may choose several tasks or none."""

    decides_at_emit = True
    may_choose_none = True

    def __init__(self, tasks: tuple[int, ...], chooser: Any, where: str) -> None:
        super().__init__(tasks)
        self._chooser = chooser
        self._where = where
        self._chosen: list[tuple[int, ...]] = []

    def decide(self, row: Row, direct_task: int | None) -> None:
        """Ask the user's class. Raises what it raises, and ValueError for a task that is no reader."""
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
        """Undo."""
        self._chosen.pop()

    def split(self, rows: list[Row]) -> list[Part]:
        """By the remembered choices."""
        chosen = self._chosen[: len(rows)]
        del self._chosen[: len(rows)]
        places: dict[int, list[int]] = {}
        for place, tasks in enumerate(chosen):
            for task in tasks:
                places.setdefault(task, []).append(place)
        return [
            Part((task,), [rows[i] for i in found], np.array(found, dtype=np.int64))
            for task, found in sorted(places.items())
        ]


def by_slot(slots: Any, rows: list[Row], tasks: tuple[int, ...]) -> list[Part]:
    """One part for each slot that occurs, rows in order. ``slots`` says for each row which of ``tasks`` gets it."""
    if len(rows) == 1:
        return [Part((tasks[int(slots[0])],), rows, EVERYTHING)]
    counts = np.bincount(slots, minlength=len(tasks)).tolist()
    order = slots.argsort(kind="stable")
    sorted_rows = itemgetter(*order.tolist())(rows)
    found, start = [], 0
    for slot, count in enumerate(counts):
        if count == len(rows):
            return [Part((tasks[slot],), rows, EVERYTHING)]
        if count:
            found.append(Part((tasks[slot],), list(sorted_rows[start : start + count]), order[start : start + count]))
            start += count
    return found

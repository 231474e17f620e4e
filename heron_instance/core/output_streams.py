"""Output streams of a task: schema checks, groupings of the readers, and the rows that wait to be routed.

Emits append to ``waiting``. With tracking each row stands after its anchor, in the same list: a message id (spout) or a
number that stands for anchors (bolt). Threads of user code may emit at the same moment, so anchor and row must be added
by one operation of the list (``extend``), which no other thread can interrupt. The list stays the same object for the
life of the task, since the emit functions hold on to it. Without tracking rows have no anchors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from heron_instance.core.groupings import KEY_TYPES, FieldsGrouping, RoutedRows, Row, TaskGrouping, make_grouping
from heron_runtime.model.keys import UnsupportedKey, group_of
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.topology import KEYED, GroupingKind


class OutputStream:
    """One output stream of a task."""

    def __init__(
        self, component: str, name: str, number: int, fields: tuple[str, ...], direct: bool, tracked: bool = False
    ) -> None:
        self.component = component
        self.name = name
        self.number = number
        self.fields = fields
        self.width = len(fields)
        self.direct = direct
        self.waiting: list[Any] = []
        self.per_row = 2 if tracked else 1  # entries of ``waiting`` for each row
        self.gate_at = 0  # an emit that finds so many entries waiting asks the gate first (emit_gate.py)
        self.groupings: list[TaskGrouping] = []
        self.deciders: list[TaskGrouping] = []
        self.siblings: list[OutputStream] = []  # streams some task reads besides this one
        self.key_positions: tuple[int, ...] = ()
        self.emitted = 0  # since the last report
        self.taken_ever = 0  # entries of ``waiting``

    @property
    def emitted_ever(self) -> int:
        """Return the number of rows that were taken."""
        return self.taken_ever // self.per_row

    @property
    def simple(self) -> bool:
        """True if an emit needs no decision: no direct or custom grouping, no siblings, at most one key field."""
        return not (self.deciders or self.siblings or self.direct) and len(self.key_positions) <= 1

    @property
    def bulk(self) -> bool:
        """True if many rows may be taken at once, after the rows of siblings are routed."""
        return not (self.deciders or self.direct)

    def route(self, groupings: Iterable[TaskGrouping]) -> None:
        """Use these groupings from now on. No rows may be waiting."""
        self.groupings = list(groupings)
        self.deciders = [g for g in self.groupings if g.decides_at_emit]

    def always_copied(self) -> bool:
        """Return True if each row goes to at least one task."""
        return any(not grouping.may_choose_none for grouping in self.groupings)

    def checked_row(self, values: Any, direct_task: int | None) -> Row:
        """Return the row of one emit after checks of width, keys and direct task. Raises if one fails."""
        row = self.row_of(values)
        if self.key_positions:
            self.check_keys(row)
        if direct_task is not None and not self.direct:
            raise ValueError(
                f"{self.where}: direct_task given, but the stream is not direct\nhint: declare it with "
                "Stream(..., direct=True), or leave out direct_task"
            )
        return row

    def row_of(self, values: Any) -> Row:
        """Return ``values`` as a row. Raises TypeError or ValueError with a hint."""
        if values.__class__ is not tuple:
            if values is None or isinstance(values, str | bytes) or not isinstance(values, Sequence):
                raise TypeError(
                    f"{self.where}: emit takes a list or tuple of values, not {type(values).__name__}\n"
                    f"hint: emit([{', '.join(self.fields)}])"
                )
            values = tuple(values)
        if len(values) != self.width:
            raise self.width_error(values)
        row: Row = values
        return row

    def check_keys(self, row: Row) -> None:
        """Check that the grouping keys can be hashed. Raises UnsupportedKey with component, stream and field."""
        for grouping in self.groupings:
            if isinstance(grouping, FieldsGrouping):
                try:
                    grouping.check(row)
                except UnsupportedKey as error:
                    raise error.located(self.component, self.name, self._bad_field(row)) from None

    def rows_of(self, values: Iterable[Any]) -> list[Row]:
        """Return many values as rows, checked like single emits. Raises TypeError, ValueError, UnsupportedKey."""
        rows = list(values)
        if not set(map(type, rows)) <= {tuple}:
            rows = [self.row_of(row) for row in rows]
        if not set(map(len, rows)) <= {self.width}:
            raise self.width_error(next(row for row in rows if len(row) != self.width))
        for position in self.key_positions:
            if not set(map(type, map(itemgetter(position), rows))) <= KEY_TYPES:
                for row in rows:
                    self.check_keys(row)
                break
        return rows

    def _bad_field(self, row: Row) -> str:
        for position in self.key_positions:
            try:
                group_of(row[position])
            except UnsupportedKey:
                return self.fields[position]
        return ""

    def decide(self, row: Row, direct_task: int | None) -> None:
        """Let direct and custom groupings choose tasks: all of them or, if one raises, none."""
        if direct_task is not None and not any(direct_task in g.tasks for g in self.deciders):
            readers = sorted({task for g in self.deciders for task in g.tasks})
            raise ValueError(f"{self.where}: task {direct_task} does not read it (readers: {readers})")
        for place, grouping in enumerate(self.deciders):
            try:
                grouping.decide(row, direct_task)
            except BaseException:
                for earlier in self.deciders[:place]:
                    earlier.forget_last()
                raise

    def split(self, rows: list[Row]) -> list[RoutedRows]:
        """Divide these rows, the next in order, among tasks."""
        return [part for grouping in self.groupings for part in grouping.split(rows)]

    def keep(self, rows: list[Row], anchors: Iterable[Any] = ()) -> None:
        """Add rows, with one anchor for each where tuples are tracked."""
        entries: list[Any] = rows
        if self.per_row == 2:
            entries = [None] * (2 * len(rows))
            entries[::2], entries[1::2] = anchors, rows
        self.waiting.extend(entries)

    def take(self) -> tuple[list[Row], list[Any]]:
        """Remove and return the waiting rows and anchors as new lists. User code may emit meanwhile."""
        count = len(self.waiting)
        tracked = self.per_row == 2
        rows = self.waiting[1:count:2] if tracked else self.waiting[:count]
        anchors = self.waiting[:count:2] if tracked else []
        del self.waiting[:count]
        self.emitted += len(rows)
        self.taken_ever += count
        self.gate_at = 0
        return rows, anchors

    def open_gate(self, rows: int) -> None:
        """Let so many more rows pass before an emit asks the gate."""
        self.gate_at = len(self.waiting) + rows * self.per_row

    @property
    def where(self) -> str:
        """Location for error messages."""
        return f"component {self.component!r}, stream {self.name!r}"

    def width_error(self, values: Any) -> ValueError:
        """Return the error for a row of the wrong length."""
        names = ", ".join(self.fields) or "no fields"
        return ValueError(f"{self.where} has {self.width} fields ({names}), and {len(values)} values were emitted")


class Router:
    """Makes the output streams of a task and keeps their groupings in step with the plan."""

    def __init__(
        self,
        plan: PhysicalPlan,
        task: int,
        rng: np.random.Generator,
        load: Callable[[str], Any] | None,
        context: Any,
        tracked: bool = False,
    ) -> None:
        self._task = task
        self._rng = rng
        self._load = load
        self._context = context
        component = plan.component_of(task)
        self.streams: dict[str, OutputStream] = {}
        for schema in plan.topology.component(component).outputs:
            number = plan.stream_number[component, schema.name]
            self.streams[schema.name] = OutputStream(
                component, schema.name, number, schema.fields, schema.direct, tracked
            )
        edges = [edge for edge in plan.topology.edges() if edge.source == component]
        for stream in self.streams.values():
            own_edges = [edge for edge in edges if edge.stream == stream.name]
            readers = {edge.destination for edge in own_edges}
            stream.siblings = [
                self.streams[name]
                for name in dict.fromkeys(e.stream for e in edges if e.destination in readers)
                if name != stream.name
            ]
            keyed = {name for edge in own_edges if edge.grouping.kind in KEYED for name in edge.grouping.fields}
            stream.key_positions = tuple(sorted(map(stream.fields.index, keyed)))
        self._edges = edges
        self.route(plan)

    def emitted_ever(self) -> int:
        """Return the number of rows that user code has emitted."""
        return sum((out.taken_ever + len(out.waiting)) // out.per_row for out in self.streams.values())

    def route(self, plan: PhysicalPlan) -> None:
        """Apply the groupings to the tasks of this plan. No rows may be waiting."""
        for stream in self.streams.values():
            own_edges = [edge for edge in self._edges if edge.stream == stream.name]
            direct = sum(edge.grouping.kind is GroupingKind.DIRECT for edge in own_edges)
            made = (
                make_grouping(
                    edge,
                    plan,
                    self._task,
                    self._rng,
                    load=self._load,
                    context=self._context,
                    direct_readers=direct,
                )
                for edge in own_edges
            )
            stream.route(grouping for grouping in made if grouping is not None)

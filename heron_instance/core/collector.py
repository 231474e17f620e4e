"""Base class of the collectors of spouts and bolts: rows are checked, filtered, kept and routed in runs.

An emit appends a row and its *anchor* to the list of its stream. ``route_pending`` does the rest for all waiting
rows: it splits the run by the groupings, and the subclass draws a key for every copy. Emits that need a decision
(direct and custom groupings, several key fields, a stream with siblings) use ``emit_row``. For the common case a
collector offers a shortcut that replaces the user's ``emit``.

Emits run without the executor's lock (``user_code.py``): the shortcut only extends that list, once. Everything that
does more takes the lock.

A *row filter* sees each row before it is kept and may reject it: task hooks and the dropping of old data are filters.
There is a shortcut only without filters, so tasks without filters pay nothing for them.

Where a call may be undone (a bolt with dead letters) its emits are deferred until it has returned: they all leave, or
none does. A row is checked when it is emitted, and direct and custom groupings choose then, so that their exceptions
are raised within the call. Tuples are not tracked there, so these rows have no anchors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from heron_instance.core.groupings import RoutedRows, Row
from heron_instance.core.outbox import Flush, RootColumns, RoutedSegment
from heron_instance.core.output_streams import OutputStream
from heron_instance.core.task import TaskRuntime
from heron_runtime.model.copies import copied_row, copied_rows
from heron_runtime.model.ids import DEFAULT_STREAM
from heronry.api.collector import Collector

# Row, anchor as given by the user, stream, direct task: True if the row may pass.
RowFilter = Callable[[Row, Any, str, int | None], bool]
# Called before an emit of so many rows: True if the emit must take the lock (``EmitGate.admit``).
Admit = Callable[[OutputStream, int], bool | None]


class CannotDefer(RuntimeError):
    """An emit needs a result that only an immediate emit could give."""


class DeferredEmits:
    """Emits of one call of ``process``. ``failed``: the call has failed its tuple, for ``reason``."""

    def __init__(self) -> None:
        self.failed = False
        self.reason: Any = None
        self._rows: list[tuple[OutputStream, Row]] = []

    def add(self, out: OutputStream, row: Row, direct_task: int | None, need_task_ids: bool) -> None:
        """Keep a row. Raises CannotDefer, and the exceptions of direct and custom groupings."""
        if need_task_ids:
            raise CannotDefer(
                f"{out.where}: emit cannot return task ids (need_task_ids) in a bolt with dead_letters, since rows are "
                "sent after process has returned\nhint: leave out need_task_ids or dead_letters"
            )
        if out.deciders:
            out.decide(row, direct_task)
        self._rows.append((out, row))

    def fail(self, reason: Any) -> None:
        """Mark the current tuple as failed. The first reason is kept."""
        if not self.failed:
            self.failed, self.reason = True, reason

    def release(self, route_siblings: Callable[[OutputStream], None]) -> None:
        """Append the rows to their streams, in the order in which they were emitted."""
        for out, row in self._rows:
            if out.siblings:
                route_siblings(out)
            out.waiting.append(row)

    def forget(self) -> None:
        """Undo the choices of groupings, since the call is undone."""
        for out, _ in reversed(self._rows):
            for grouping in out.deciders:
                grouping.forget_last()


class TaskCollector(Collector, ABC):
    """Collector of one task.

    Args:
        task: Task whose rows it collects.
        admit: Admission of emits by the emit gate.
        rng: Source of edge keys.
    """

    anchor_name = "anchors"  # for messages

    def __init__(self, task: TaskRuntime, admit: Admit, rng: np.random.Generator) -> None:
        self.admit = admit
        self.streams = task.router.streams
        self.tracked = task.tracked
        self._lock = task.user_code.lock
        self._wake_if_idle = task.user_code.wake_if_idle
        self.deferred: DeferredEmits | None = None  # set while a call runs whose emits wait for its end
        self.may_defer = False  # True if calls of this task can be undone
        self.filters: tuple[RowFilter, ...] = ()
        self._outbox = task.outbox
        self._draw = rng.bit_generator.random_raw

    @abstractmethod
    def fast_emit(self, out: OutputStream) -> Callable[..., list[int] | None]:
        """Return the user's ``emit`` for the default stream, for emits that need no decision."""

    @abstractmethod
    def anchor_of(self, user_anchor: Any) -> Any:
        """Return the value to keep with a tracked row for the user's anchor. Raises for one that is not open."""

    @abstractmethod
    def anchors_of(self, user_anchors: Sequence[Any]) -> Iterable[Any]:
        """Return the anchors of many rows."""

    def untracked(self, user_anchors: Iterable[Any]) -> None:
        """Take note of rows with these anchors, which are not tracked."""

    def refused(self, roots: int) -> None:
        """Count roots that have failed because emitted rows cannot be sent."""

    @abstractmethod
    def fill(self, flush: Flush) -> None:
        """Add the inits or acks that belong to the routed rows."""

    def unsent(self) -> bool:
        """Return True if ``fill`` has something to add without rows."""
        return False

    # Emitting.

    def shortcuts(self) -> Mapping[str, Callable[..., Any]]:
        """Return the fast ``emit``, where it applies."""
        default = self.streams.get(DEFAULT_STREAM)
        if default is None or not default.simple or self.filters or self.may_defer:
            return {}
        return {"emit": self.fast_emit(default)}

    def emit_row(
        self,
        values: Any,
        anchor: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit one row to any stream, with a direct task or task ids where asked for."""
        out = self.streams.get(stream) or self._unknown_stream(stream)
        row = copied_row(out.checked_row(values, direct_task))
        if len(out.waiting) >= out.gate_at:
            self.admit(out, 1)
        with self._lock:
            kept_anchor = self.anchor_of(anchor) if self.tracked else None
            for passes in self.filters:
                if not passes(row, anchor, stream, direct_task):
                    return [] if need_task_ids else None
            if self.deferred is not None:
                self.deferred.add(out, row, direct_task, need_task_ids)
                return None
            if need_task_ids:
                self.route_stream(out)
            self.route_siblings(out)
            if out.deciders:
                out.decide(row, direct_task)
            if self.tracked:
                out.waiting.extend((kept_anchor, row))
            else:
                out.waiting.append(row)
                if anchor is not None:
                    self.untracked((anchor,))
            self._wake_if_idle()
            return self.route_stream(out, need_task_ids) if need_task_ids else None

    def emit_rows(
        self, rows: Iterable[Any], anchors: Any = None, one_to_one: bool = False, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit many rows. All of them are checked before the first is kept."""
        out = self.streams.get(stream) or self._unknown_stream(stream)
        checked = copied_rows(out.rows_of(rows))
        each: Any = anchors if one_to_one else None
        if each is not None and not isinstance(each, Sequence):
            each = list(each)
        if each is not None and len(each) != len(checked):
            raise ValueError(f"{out.where}: emit_many got {len(checked)} rows and {len(each)} {self.anchor_name}")
        if self.filters or not out.bulk or self.deferred is not None:
            super().emit_rows(checked, anchors if each is None else each, one_to_one, stream)
            return
        if len(out.waiting) + len(checked) * out.per_row >= out.gate_at:
            self.admit(out, len(checked))
        with self._lock:
            kept_anchors: Iterable[Any] = ()
            if self.tracked:
                kept_anchors = [self.anchor_of(anchors)] * len(checked) if each is None else self.anchors_of(each)
            self.route_siblings(out)
            out.keep(checked, kept_anchors)
            if each is not None and not self.tracked:
                self.untracked(each)
            self._wake_if_idle()

    def route_siblings(self, out: OutputStream) -> None:
        """Route the waiting rows of streams that the same tasks read, so that order is kept per task."""
        for sibling in out.siblings:
            if sibling.waiting:
                self.route_stream(sibling)

    def _unknown_stream(self, name: str) -> OutputStream:
        raise ValueError(
            f"unknown stream {name!r} (streams: {', '.join(self.streams) or 'none'})\nhint: declare it in outputs"
        )

    # Routing.

    def route_pending(self) -> None:
        """Route the waiting rows of every stream. The rows of one emit stay together."""
        for out in self.streams.values():
            if out.waiting:
                self.route_stream(out)

    def route_stream(self, out: OutputStream, need_task_ids: bool = False) -> list[int]:
        """Route the waiting rows of one stream. Return the tasks that receive a copy."""
        rows, anchors = out.take()
        if not rows:
            return []
        parts = out.split(rows)
        self._route(out, rows, anchors, parts)
        return target_tasks(parts)

    def route_all(self) -> None:
        """Route the waiting rows and the held rows."""
        self.route_pending()

    @abstractmethod
    def _route(self, out: OutputStream, rows: list[Row], anchors: list[Any], parts: list[RoutedRows]) -> None:
        """Add these rows to the outbox, with a key for every edge."""

    def _route_untracked(self, out: OutputStream, parts: list[RoutedRows]) -> None:
        for part in parts:
            self._outbox.add(part.tasks, RoutedSegment(out.number, RootColumns.UNTRACKED, part.rows))


def target_tasks(parts: Iterable[RoutedRows]) -> list[int]:
    """Return the tasks that receive a copy."""
    return [task for part in parts for task in part.tasks]

"""What the collectors of spouts and bolts share: rows are checked, filtered, kept, and routed a whole run at a time.

An emit appends a row and its *anchor* to the two lists of its stream, no more. ``route_pending`` does the rest for all
that waits: it splits the run by the groupings, and the subclass draws a key for every copy. What decides at emit
(direct and custom groupings, several key fields, a stream with siblings) takes ``emit_row``; for the common case a
collector offers a shortcut that users' ``emit`` is replaced with.

Emits run while the executor's lock is free (``user_code.py``): the shortcut only appends, to ``anchors`` and then to
``rows``; what does more takes the lock.

A *row filter* sees each row before it is kept and may turn it away: task hooks and the dropping of old data are
filters. Where there is one, there is no shortcut, so that others pay nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from heron_instance.core.groupings import Part, Row
from heron_instance.core.held_call import HeldCall
from heron_instance.core.outbox import Flush, Outbox, Segment, Shape
from heron_instance.core.streams import OutputStream, Router
from heron_runtime.model.copies import copied_row, copied_rows
from heron_runtime.model.ids import DEFAULT_STREAM
from heronry.api.collector import Collector

# Row, the anchor as the user gave it, stream, direct task: True if the row may go on.
RowFilter = Callable[[Row, Any, str, int | None], bool]


class TaskCollector(Collector, ABC):
    """The collector of one task. ``tracked``: reliability is on."""

    anchors_are = "anchors"  # for messages

    look: Callable[[OutputStream, int], bool | None]  # before so many rows; see ``emit_gate.py``

    def __init__(
        self,
        router: Router,
        outbox: Outbox,
        rng: np.random.Generator,
        tracked: bool,
        lock: AbstractContextManager[Any],
        wake_if_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self.streams = router.streams
        self.tracked = tracked
        self._lock = lock
        self._wake_if_idle = wake_if_idle
        self.held_call: HeldCall | None = None  # a call is under way whose emits wait until it has returned
        self.may_hold = False  # there are such calls
        self.filters: tuple[RowFilter, ...] = ()
        self._outbox = outbox
        self._draw = rng.bit_generator.random_raw

    @abstractmethod
    def fast_emit(self, out: OutputStream) -> Callable[..., list[int] | None]:
        """The user's ``emit`` for the default stream, when an emit has nothing to decide."""

    @abstractmethod
    def anchor_of(self, given: Any) -> Any:
        """What is kept beside a tracked row for the anchor that the user gave. Raises for one that is not open."""

    @abstractmethod
    def anchors_of(self, given: Sequence[Any]) -> Iterable[Any]:
        """The same for many rows."""

    def untracked(self, given: Iterable[Any]) -> None:
        """Rows with these anchors were emitted, and nobody will follow them."""

    def refused(self, roots: int) -> None:
        """So many roots have failed, since what was emitted cannot be sent."""

    @abstractmethod
    def fill(self, flush: Flush) -> None:
        """Add what belongs to the routed rows, besides frames."""

    def unsent(self) -> bool:
        """True if ``fill`` has something of its own, without rows."""
        return False

    # Emitting.

    def shortcuts(self) -> Mapping[str, Callable[..., Any]]:
        """The fast ``emit``, where it will do."""
        default = self.streams.get(DEFAULT_STREAM)
        if default is None or not default.simple or self.filters or self.may_hold:
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
        """One emit with everything: any stream, direct tasks, task ids."""
        out = self.streams.get(stream) or self._no_stream(stream)
        row = copied_row(out.checked_row(values, direct_task))
        if len(out.rows) >= out.look_at:
            self.look(out, 1)
        with self._lock:
            kept = self.anchor_of(anchor) if self.tracked else None
            for keep in self.filters:
                if not keep(row, anchor, stream, direct_task):
                    return [] if need_task_ids else None
            if self.held_call is not None:
                self.held_call.add(out, row, direct_task, need_task_ids)
                return None
            if need_task_ids:
                self.route_stream(out)
            self.route_siblings(out)
            if out.deciders:
                out.decide(row, direct_task)
            if self.tracked:
                out.anchors.append(kept)
            elif anchor is not None:
                self.untracked((anchor,))
            out.rows.append(row)
            self._wake_if_idle()
            return self.route_stream(out, need_task_ids) if need_task_ids else None

    def emit_rows(
        self, rows: Iterable[Any], anchors: Any = None, one_to_one: bool = False, stream: str = DEFAULT_STREAM
    ) -> None:
        """Many emits at once; all of them are checked before the first is kept."""
        out = self.streams.get(stream) or self._no_stream(stream)
        many = copied_rows(out.rows_of(rows))
        each: Any = anchors if one_to_one else None
        if each is not None and not isinstance(each, Sequence):
            each = list(each)
        if each is not None and len(each) != len(many):
            raise ValueError(f"{out.where}: emit_many got {len(many)} rows and {len(each)} {self.anchors_are}")
        if self.filters or not out.bulk or self.held_call is not None:
            super().emit_rows(many, anchors if each is None else each, one_to_one, stream)
            return
        if len(out.rows) + len(many) >= out.look_at:
            self.look(out, len(many))
        with self._lock:
            kept: Iterable[Any] = ()
            if self.tracked:
                kept = [self.anchor_of(anchors)] * len(many) if each is None else self.anchors_of(each)
            self.route_siblings(out)
            out.anchors.extend(kept)
            out.rows.extend(many)
            if each is not None and not self.tracked:
                self.untracked(each)
            self._wake_if_idle()

    def route_siblings(self, out: OutputStream) -> None:
        """What waits in streams that the same tasks read goes first, so that order is kept per task."""
        for sibling in out.siblings:
            if sibling.rows:
                self.route_stream(sibling)

    def _no_stream(self, name: str) -> OutputStream:
        raise ValueError(f"no stream {name!r} (streams: {', '.join(self.streams) or 'none'}): declare it in outputs")

    # Routing.

    def route_pending(self) -> None:
        """Route what waits in every stream. One emit is never cut in two."""
        for out in self.streams.values():
            if out.rows:
                self.route_stream(out)

    def route_stream(self, out: OutputStream, need_task_ids: bool = False) -> list[int]:
        """Route what waits in one stream; returns the tasks that get a copy."""
        rows, anchors = out.take()
        if not rows:
            return []
        parts = out.split(rows)
        self._route(out, rows, anchors, parts)
        return tasks_of(parts)

    def route_all(self) -> None:
        """Route what waits, and what was held back."""
        self.route_pending()

    def emitted_ever(self) -> int:
        """How many rows user code has emitted."""
        return sum(out.emitted_ever + len(out.rows) for out in self.streams.values())

    @abstractmethod
    def _route(self, out: OutputStream, rows: list[Row], anchors: list[Any], parts: list[Part]) -> None:
        """Put these rows into the outbox, with a key for every edge."""

    def _route_untracked(self, out: OutputStream, parts: list[Part]) -> None:
        for part in parts:
            self._outbox.add(part.tasks, Segment(out.number, Shape.UNTRACKED, part.rows))


def tasks_of(parts: Iterable[Part]) -> list[int]:
    """The tasks that get a copy."""
    return [task for part in parts for task in part.tasks]

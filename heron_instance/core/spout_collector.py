"""What a spout emits: roots, edge keys, inits.

A row's anchor is its message id. Routing numbers the tracked rows of a run (a row that goes to no task is not numbered
but acked at once), draws one key for every copy, and gives the XOR of a root's keys to its init.

While the spout may not emit (it is paused, say) what it emits all the same, in ``ack`` or ``fail``, is *held*: kept as
it was emitted, without a root, until it may. The executor tells a spout nothing more while anything is held, so that is
what one call emits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from heron_instance.core.collector import TaskCollector, tasks_of
from heron_instance.core.groupings import EVERYTHING, Part, Row
from heron_instance.core.key_groupings import KEY_TYPES
from heron_instance.core.outbox import U64, Flush, Outbox, Segment, Shape
from heron_instance.core.pending import PendingTable
from heron_instance.core.streams import OutputStream, Router
from heron_runtime.model.copies import IMMUTABLE, copied_row
from heron_runtime.model.ids import DEFAULT_STREAM, SEQUENCE_MASK, first_sequence, root_base
from heron_runtime.wire.data import Init


class SpoutCollector(TaskCollector):
    """The collector of one spout task."""

    anchors_are = "tup_ids"
    on_poll: Callable[[], None]

    def __init__(
        self,
        router: Router,
        outbox: Outbox,
        pending: PendingTable,
        rng: np.random.Generator,
        task: int,
        incarnation: int,
        tracked: bool,
        lock: AbstractContextManager[Any],
        clock: Callable[[], float],
        wake_if_idle: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(router, outbox, rng, tracked, lock, wake_if_idle)
        self.at_once: list[Any] = []  # message ids to be acked as soon as the call has returned
        self._pending = pending
        self._task = task
        self._base = root_base(task, incarnation)
        self._clock = clock
        self._sequence = first_sequence(incarnation)
        self._inits: list[tuple[int, U64]] = []
        self._holding = False
        self._held: deque[tuple[OutputStream, list[Row], list[Any], list[Part] | None]] = deque()

    def fast_emit(self, out: OutputStream) -> Callable[..., list[int] | None]:
        """Nothing to decide but whether the values fit."""
        rows, anchors, width, carefully = out.rows, out.anchors, out.width, self.emit_row
        key = out.key_positions[0] if out.key_positions else None
        unkeyed = [position for position in range(width) if position != key]  # a key is a scalar
        row_of, check_keys, wrong_width = out.row_of, out.check_keys, out.wrong_width
        at_once, tracked, look = self.at_once, self.tracked, self.look

        def emit(
            values: Any = None,
            tup_id: Any = None,
            stream: str = DEFAULT_STREAM,
            direct_task: int | None = None,
            need_task_ids: bool = False,
            tup: Any = None,
        ) -> list[int] | None:
            if stream is not DEFAULT_STREAM or direct_task is not None or need_task_ids:
                return carefully(tup if values is None else values, tup_id, stream, direct_task, need_task_ids)
            if len(rows) >= out.look_at and look(out, 1):
                return carefully(tup if values is None else values, tup_id)
            if values.__class__ is not tuple:
                values = tuple(values) if values.__class__ is list else row_of(tup if values is None else values)
            if len(values) != width:
                raise wrong_width(values)
            if key is not None and values[key].__class__ not in KEY_TYPES:
                check_keys(values)
            for position in unkeyed:
                if values[position].__class__ not in IMMUTABLE:
                    values = copied_row(values)
                    break
            if tracked:
                anchors.append(tup_id)
            elif tup_id is not None:
                at_once.append(tup_id)
            rows.append(values)
            return None

        return emit

    @property
    def held(self) -> bool:
        """True if something was emitted that may not leave yet."""
        return bool(self._held)

    def hold(self, holding: bool) -> None:
        """While ``holding`` nothing is routed; afterwards what was emitted meanwhile is, in order."""
        self._holding = holding
        while self._held and not holding:
            out, rows, anchors, parts = self._held.popleft()
            self._route(out, rows, anchors, out.split(rows) if parts is None else parts)

    def route_all(self) -> None:
        """Route what is held, too: a snapshot says that it was emitted."""
        self.hold(False)
        self.route_pending()

    def route_stream(self, out: OutputStream, need_task_ids: bool = False) -> list[int]:
        """Route what waits in one stream, or hold it; returns the tasks that get a copy, if they are needed."""
        if not self._holding:
            return super().route_stream(out)
        rows, anchors = out.take()
        # Where user code has chosen tasks, or asks for them, this is the moment; else they are those of the day.
        parts = out.split(rows) if rows and (need_task_ids or out.deciders) else None
        if rows:
            self._held.append((out, rows, anchors, parts))
        return tasks_of(parts or ())

    def poll(self) -> None:
        """Have the spout told of what was settled."""
        self.on_poll()

    def anchor_of(self, given: Any) -> Any:
        """The message id itself."""
        return given

    def anchors_of(self, given: Sequence[Any]) -> Sequence[Any]:
        """The message ids themselves."""
        return given

    def untracked(self, given: Iterable[Any]) -> None:
        """What has a message id is acked as soon as the call has returned."""
        self.at_once.extend(tup_id for tup_id in given if tup_id is not None)

    def _route(self, out: OutputStream, rows: list[Row], anchors: list[Any], parts: list[Part]) -> None:
        if not self.tracked or anchors.count(None) == len(rows):
            self._route_untracked(out, parts)
        elif None not in anchors and out.always_copied():
            self._route_tracked(out, rows, anchors, parts)
        else:
            self._route_mixed(out, rows, anchors, parts)

    def _route_tracked(self, out: OutputStream, rows: list[Row], ids: list[Any], parts: list[Part]) -> None:
        count = len(rows)
        roots = self._open(out, ids)
        xors = np.zeros(count, dtype=np.uint64)
        for part in parts:
            mine = roots[part.at]
            for task in part.tasks:
                keys = self._draw(len(part.rows))
                if part.at is EVERYTHING:
                    xors ^= keys
                else:
                    xors[part.at] ^= keys
                self._outbox.add((task,), Segment(out.number, Shape.SINGLE, part.rows, mine, keys))
        self._add_init(roots, xors)

    def _route_mixed(self, out: OutputStream, rows: list[Row], ids: list[Any], parts: list[Part]) -> None:
        """Some rows are untracked, or may go to no task."""
        count = len(rows)
        copies = np.zeros(count, dtype=np.int64)
        for part in parts:
            copies[part.at] += len(part.tasks)
        has_id = np.fromiter((tup_id is not None for tup_id in ids), bool, count)
        self.at_once.extend(ids[i] for i in np.flatnonzero(has_id & (copies == 0)).tolist())
        tracked = has_id & (copies > 0)
        places = np.flatnonzero(tracked)
        roots = np.zeros(count, dtype=np.uint64)
        if len(places):
            roots[places] = self._open(out, [ids[i] for i in places.tolist()])
        xors = np.zeros(count, dtype=np.uint64)
        for part in parts:
            mask = tracked[part.at]
            mine = roots[part.at][mask]
            widths = mask.astype(np.uint32)
            for task in part.tasks:
                keys = np.zeros(len(part.rows), dtype=np.uint64)
                keys[mask] = self._draw(len(mine))
                xors[part.at] ^= keys
                self._outbox.add((task,), Segment(out.number, Shape.MANY, part.rows, mine, keys[mask], widths))
        if len(places):
            self._add_init(roots[places], xors[places])

    def _open(self, out: OutputStream, ids: list[Any]) -> U64:
        """Number these message ids and enter them into the pending table; returns their roots."""
        first, count = self._sequence, len(ids)
        sequences = np.arange(first, first + count, dtype=np.uint64) & np.uint64(SEQUENCE_MASK)
        self._sequence = (first + count) & SEQUENCE_MASK
        self._pending.open(first, ids, out.number, self._clock())
        return sequences | np.uint64(self._base)

    def _add_init(self, roots: U64, xors: U64) -> None:
        # Within an init roots are consecutive; where the sequence number wraps a new one begins.
        wrap = int(np.argmin(roots)) if roots[0] > roots[-1] else 0
        if wrap:
            self._inits.append((int(roots[0]), xors[:wrap]))
        self._inits.append((int(roots[wrap]), xors[wrap:]))

    def fill(self, flush: Flush) -> None:
        """The inits of the roots in this flush, consecutive ones joined."""
        joined: list[tuple[int, list[U64], int]] = []
        for first, xors in self._inits:
            if joined and joined[-1][0] + joined[-1][2] == first:
                before = joined[-1]
                joined[-1] = (before[0], [*before[1], xors], before[2] + len(xors))
            else:
                joined.append((first, [xors], len(xors)))
        self._inits = []
        flush.inits = [Init(self._task, first, b"".join(x.tobytes() for x in parts)) for first, parts, _ in joined]

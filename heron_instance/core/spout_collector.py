"""Collector of a spout: roots, edge keys, inits.

The anchor of a row is its message id. Routing numbers the tracked rows of a run (a row that goes to no task is acked at
once instead), draws one key for every copy, and gives the XOR of a root's keys to its init.

While the spout may not emit (a pause, for example), rows emitted in ``ack`` or ``fail`` are *held*: kept as emitted,
without a root, until emits are possible. The executor delivers no more acks while rows are held, so these are the rows
of one call.

``AgeFilter`` drops old data (Heron paper, section 5.4.2). Under backpressure data piles up at the source. With
``topology.spout.drop.older.ms`` set, a spout with a method ``emit_time_ms(values)`` (milliseconds since 1970) emits no
tuple older than that. The tuple is counted, and its message id is acked at once, so that the source releases it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from heron_instance.core.collector import Admit, TaskCollector, target_tasks
from heron_instance.core.groupings import EVERYTHING, KEY_TYPES, RoutedRows, Row
from heron_instance.core.outbox import U64, Flush, RootColumns, RoutedSegment
from heron_instance.core.output_streams import OutputStream
from heron_instance.core.pending import PendingTable
from heron_instance.core.task import ExecutorSetup, TaskRuntime
from heron_runtime.model.copies import IMMUTABLE, copied_row
from heron_runtime.model.ids import DEFAULT_STREAM, SEQUENCE_MASK, first_sequence, root_base
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.data import Init


class AgeFilter:
    """Row filter for rows that are young enough.

    Args:
        emit_time_ms: Returns the time of a row.
        limit_ms: Maximum age.
        wall: Returns seconds since 1970.
        let_go: Takes the message ids of dropped rows.
    """

    def __init__(
        self,
        emit_time_ms: Callable[[Any], float],
        limit_ms: float,
        wall: Callable[[], float],
        let_go: Callable[[Any], None],
    ) -> None:
        self._emit_time_ms = emit_time_ms
        self._limit_ms = limit_ms
        self._wall = wall
        self._let_go = let_go
        self._dropped = 0

    def __call__(self, row: tuple[Any, ...], tup_id: Any, stream: str, direct_task: int | None) -> bool:
        """Return True if the row is young enough; count it and release its id otherwise."""
        if 1000 * self._wall() - self._emit_time_ms(row) <= self._limit_ms:
            return True
        self._dropped += 1
        if tup_id is not None:
            self._let_go(tup_id)
        return False

    def take_dropped(self) -> int:
        """Return the number of rows dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped


def age_filter(setup: ExecutorSetup, task: TaskRuntime, let_go: Callable[[Any], None]) -> AgeFilter | None:
    """Make the filter for old data if there is a limit. Raises TypeError for a spout without ``emit_time_ms``."""
    older_ms = setting(task.config, Keys.TOPOLOGY_SPOUT_DROP_OLDER_MS)
    if older_ms is None:
        return None
    if not hasattr(task.component, "emit_time_ms"):
        raise TypeError(
            f"{task.name}: topology.spout.drop.older.ms needs a method emit_time_ms(values) of the spout\n"
            "hint: define it (returns milliseconds since 1970), or leave out the setting"
        )
    return AgeFilter(task.component.emit_time_ms, older_ms, setup.wall, let_go)


class SpoutCollector(TaskCollector):
    """Collector of one spout task. ``poll`` delivers settled roots in the middle of a call."""

    anchor_name = "tup_ids"

    def __init__(
        self,
        task: TaskRuntime,
        admit: Admit,
        rng: np.random.Generator,
        pending: PendingTable,
        poll: Callable[[], None],
    ) -> None:
        super().__init__(task, admit, rng)
        self.untracked_ids: list[Any] = []  # message ids to ack as soon as the call has returned
        self._pending = pending
        self._poll = poll
        self._task = task.id
        self._clock = task.clock
        self._base = root_base(task.id, task.incarnation)
        self._sequence = first_sequence(task.incarnation)
        self._inits: list[tuple[int, U64]] = []
        self._holding = False
        self._held: deque[tuple[OutputStream, list[Row], list[Any], list[RoutedRows] | None]] = deque()

    def fast_emit(self, out: OutputStream) -> Callable[..., list[int] | None]:
        """Return an ``emit`` that only checks the values."""
        waiting, width, carefully = out.waiting, out.width, self.emit_row
        key = out.key_positions[0] if out.key_positions else None
        unkeyed = [position for position in range(width) if position != key]  # a key is immutable
        row_of, check_keys, width_error = out.row_of, out.check_keys, out.width_error
        at_once, tracked, admit = self.untracked_ids, self.tracked, self.admit

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
            if len(waiting) >= out.gate_at and admit(out, 1):
                return carefully(tup if values is None else values, tup_id)
            if values.__class__ is not tuple:
                values = tuple(values) if values.__class__ is list else row_of(tup if values is None else values)
            if len(values) != width:
                raise width_error(values)
            if key is not None and values[key].__class__ not in KEY_TYPES:
                check_keys(values)
            for position in unkeyed:
                if values[position].__class__ not in IMMUTABLE:
                    values = copied_row(values)
                    break
            if tracked:
                waiting.extend((tup_id, values))
                return None
            if tup_id is not None:
                at_once.append(tup_id)
            waiting.append(values)
            return None

        return emit

    @property
    def has_held_rows(self) -> bool:
        """True if emitted rows are held."""
        return bool(self._held)

    def set_holding(self, holding: bool) -> None:
        """Hold rows instead of routing them, or route the held rows in order."""
        self._holding = holding
        while self._held and not holding:
            out, rows, anchors, parts = self._held.popleft()
            self._route(out, rows, anchors, out.split(rows) if parts is None else parts)

    def route_all(self) -> None:
        """Also route held rows, since a snapshot counts them as emitted."""
        self.set_holding(False)
        self.route_pending()

    def route_stream(self, out: OutputStream, need_task_ids: bool = False) -> list[int]:
        """Route or hold the waiting rows of one stream. Return the tasks that receive a copy, if asked for."""
        if not self._holding:
            return super().route_stream(out)
        rows, anchors = out.take()
        # Tasks are chosen now where user code has chosen them or asks for them, else when the rows are routed.
        parts = out.split(rows) if rows and (need_task_ids or out.deciders) else None
        if rows:
            self._held.append((out, rows, anchors, parts))
        return target_tasks(parts or ())

    def poll(self) -> None:
        """Deliver settled roots to the spout."""
        self._poll()

    def anchor_of(self, user_anchor: Any) -> Any:
        """Return the message id."""
        return user_anchor

    def anchors_of(self, user_anchors: Sequence[Any]) -> Sequence[Any]:
        """Return the message ids."""
        return user_anchors

    def untracked(self, user_anchors: Iterable[Any]) -> None:
        """Ack rows with a message id as soon as the call has returned."""
        self.untracked_ids.extend(tup_id for tup_id in user_anchors if tup_id is not None)

    def _route(self, out: OutputStream, rows: list[Row], anchors: list[Any], parts: list[RoutedRows]) -> None:
        if not self.tracked or anchors.count(None) == len(rows):
            self._route_untracked(out, parts)
        elif None not in anchors and out.always_copied():
            self._route_tracked(out, rows, anchors, parts)
        else:
            self._route_mixed(out, rows, anchors, parts)

    def _route_tracked(self, out: OutputStream, rows: list[Row], ids: list[Any], parts: list[RoutedRows]) -> None:
        count = len(rows)
        roots = self._open(out, ids)
        xors = np.zeros(count, dtype=np.uint64)
        for part in parts:
            part_roots = roots[part.at]
            for task in part.tasks:
                keys = self._draw(len(part.rows))
                if part.at is EVERYTHING:
                    xors ^= keys
                else:
                    xors[part.at] ^= keys
                self._outbox.add((task,), RoutedSegment(out.number, RootColumns.SINGLE, part.rows, part_roots, keys))
        self._add_init(roots, xors)

    def _route_mixed(self, out: OutputStream, rows: list[Row], ids: list[Any], parts: list[RoutedRows]) -> None:
        """Route rows of which some are untracked or may go to no task."""
        count = len(rows)
        copies = np.zeros(count, dtype=np.int64)
        for part in parts:
            copies[part.at] += len(part.tasks)
        has_id = np.fromiter((tup_id is not None for tup_id in ids), bool, count)
        self.untracked_ids.extend(ids[i] for i in np.flatnonzero(has_id & (copies == 0)).tolist())
        tracked = has_id & (copies > 0)
        places = np.flatnonzero(tracked)
        roots = np.zeros(count, dtype=np.uint64)
        if len(places):
            roots[places] = self._open(out, [ids[i] for i in places.tolist()])
        xors = np.zeros(count, dtype=np.uint64)
        for part in parts:
            mask = tracked[part.at]
            part_roots = roots[part.at][mask]
            widths = mask.astype(np.uint32)
            for task in part.tasks:
                keys = np.zeros(len(part.rows), dtype=np.uint64)
                keys[mask] = self._draw(len(part_roots))
                xors[part.at] ^= keys
                self._outbox.add(
                    (task,), RoutedSegment(out.number, RootColumns.MANY, part.rows, part_roots, keys[mask], widths)
                )
        if len(places):
            self._add_init(roots[places], xors[places])

    def _open(self, out: OutputStream, ids: list[Any]) -> U64:
        """Number these message ids and open their roots in the pending table. Return the roots."""
        first, count = self._sequence, len(ids)
        sequences = np.arange(first, first + count, dtype=np.uint64) & np.uint64(SEQUENCE_MASK)
        self._sequence = (first + count) & SEQUENCE_MASK
        self._pending.open(first, ids, out.number, self._clock() * 1000)
        return sequences | np.uint64(self._base)

    def _add_init(self, roots: U64, xors: U64) -> None:
        # Within an init roots are consecutive; where the sequence number wraps a new one begins.
        wrap = int(np.argmin(roots)) if roots[0] > roots[-1] else 0
        if wrap:
            self._inits.append((int(roots[0]), xors[:wrap]))
        self._inits.append((int(roots[wrap]), xors[wrap:]))

    def fill(self, flush: Flush) -> None:
        """Add the inits of the roots in this flush, with consecutive ones joined."""
        joined: list[tuple[int, list[U64], int]] = []
        for first, xors in self._inits:
            if joined and joined[-1][0] + joined[-1][2] == first:
                before = joined[-1]
                joined[-1] = (before[0], [*before[1], xors], before[2] + len(xors))
            else:
                joined.append((first, [xors], len(xors)))
        self._inits = []
        flush.inits = [Init(self._task, first, b"".join(x.tobytes() for x in parts)) for first, parts, _ in joined]

"""Collector of a bolt: anchors, edge keys, acks and fails in columns.

The anchor of a row is kept as one number: the index of the anchor in the current batch, -1 (no anchor), or -2 - k for
the k-th entry of ``_anchor_sets`` (several anchors, or one of an older batch). Routing happens when the turn of the
batch ends or a flush is due. It draws a key for every edge (anchor to copy) and gives it to the copy and to the anchor.
Where every anchor is an index into a batch with one root per tuple, all of that is array arithmetic. Rarer cases are
handled tuple by tuple.

``ack`` and ``fail`` set a byte in the batch of the tuple. An ack is taken before the rows are, and it is sent after
their edges are drawn, so it always carries every edge drawn on its tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from heron_instance.core.collector import Admit, TaskCollector
from heron_instance.core.groupings import EVERYTHING, KEY_TYPES, RoutedRows, Row
from heron_instance.core.input_batch import ACKED, FAILED, OPEN, AckedTuples, InputBatch, acks_by_task
from heron_instance.core.outbox import Flush, RootColumns, RoutedSegment
from heron_instance.core.output_streams import OutputStream
from heron_instance.core.task import TaskRuntime
from heron_runtime.model.copies import IMMUTABLE, copied_row
from heron_runtime.model.dataflow import FailKind
from heron_runtime.model.ids import DEFAULT_STREAM
from heronry.api.tuples import Tuple, TupleBatch

UNANCHORED = -1
AnchorSet = tuple[tuple[Any, int], ...]  # (batch, index) of each anchor


class BoltCollector(TaskCollector):
    """Collector of one bolt task."""

    def __init__(self, task: TaskRuntime, admit: Admit, rng: np.random.Generator) -> None:
        super().__init__(task, admit, rng)
        self.auto_anchor = bool(getattr(task.component, "auto_anchor", False))  # BasicBolt: anchor to ``index``
        self.batch: InputBatch | None = None  # the current batch
        self.open_batch: InputBatch | None = None  # the same while emits may name its tuples by their index
        self.index = UNANCHORED  # the current tuple, set by the executor for BasicBolt and deferred calls
        self.ignored_settles = 0
        self._failures = task.failures
        self._hooks = task.hooks
        self._anchor_sets: list[AnchorSet] = []
        self._touched: dict[int, InputBatch] = {}  # older batches with new acks
        self._acked: list[AckedTuples] = []
        self._read: tuple[str, str, float] | None = None  # source and arrival of the batch that was routed last
        # (source, arrival time of the batch, acked tuples), for the metrics
        self.newly_acked: list[tuple[tuple[str, str], float, int]] = []

    # Emitting.

    def fast_emit(self, out: OutputStream) -> Callable[..., list[int] | None]:
        """Return an ``emit`` for rows with no anchor or one anchor in the current batch."""
        waiting, width, carefully = out.waiting, out.width, self.emit_row
        key = out.key_positions[0] if out.key_positions else None
        unkeyed = [position for position in range(width) if position != key]  # a key is a scalar
        row_of, check_keys, width_error = out.row_of, out.check_keys, out.width_error
        tracked, auto_anchor, admit, collector = self.tracked, self.auto_anchor, self.admit, self

        def emit(
            values: Any = None,
            stream: str = DEFAULT_STREAM,
            anchors: Any = None,
            direct_task: int | None = None,
            need_task_ids: bool = False,
            tup: Any = None,
        ) -> list[int] | None:
            if stream is not DEFAULT_STREAM or direct_task is not None or need_task_ids:
                return carefully(tup if values is None else values, anchors, stream, direct_task, need_task_ids)
            if len(waiting) >= out.gate_at and admit(out, 1):
                return carefully(tup if values is None else values, anchors)
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
                if anchors.__class__ is list and len(anchors) == 1:
                    anchors = anchors[0]
                # CPython switches threads at calls and at jumps back only, so ``batch`` is still open at ``extend``.
                batch = collector.open_batch
                if (
                    anchors.__class__ is Tuple
                    and anchors.batch is batch
                    and batch is not None
                    and not batch.state[anchors.index]
                ):
                    waiting.extend((anchors.index, values))
                elif anchors is None:
                    waiting.extend((collector.index if auto_anchor else UNANCHORED, values))
                else:
                    return carefully(values, anchors)
            else:
                waiting.append(values)
            return None

        return emit

    def anchors_of(self, user_anchors: Sequence[Tuple]) -> Iterable[int]:
        """Return one number for each row. The whole current batch is a special case without a loop."""
        batch = self.batch
        if (
            batch is not None
            and isinstance(user_anchors, TupleBatch)
            and user_anchors.origin is batch
            and not any(batch.state)
        ):
            return range(len(user_anchors))  # no tuple of it is settled
        return [self.anchor_of(anchor) for anchor in user_anchors]

    def anchor_of(self, user_anchors: Any) -> int:
        """Return the number for these anchors.

        Raises:
            ValueError: An anchor is settled already.
            TypeError: An anchor is not a tuple.
        """
        if user_anchors is None:
            return self.index if self.auto_anchor else UNANCHORED
        anchors = (user_anchors,) if isinstance(user_anchors, Tuple) else tuple(user_anchors)
        pairs: list[tuple[Any, int]] = []
        for anchor in anchors:
            if not isinstance(anchor, Tuple):
                raise TypeError(f"an anchor must be an input tuple, not {type(anchor).__name__}")
            if not isinstance(anchor.batch, InputBatch):
                continue  # a tick has no roots
            if anchor.batch.state[anchor.index] != OPEN:
                raise ValueError(
                    f"{anchor!r} cannot be an anchor: it is acked or failed already\nhint: emit first, then ack"
                )
            if anchor.batch is self.batch and len(anchors) == 1:
                return anchor.index
            if anchor.batch.roots is not None:
                pairs.append((anchor.batch, anchor.index))
        if not pairs:
            return UNANCHORED
        self._anchor_sets.append(tuple(pairs))
        return UNANCHORED - len(self._anchor_sets)

    # Acking and failing.

    def shortcuts(self) -> Mapping[str, Callable[..., Any]]:
        """Return the fast ``emit`` and, without task hooks, the fast ``ack``."""
        return {**super().shortcuts(), **({} if self._hooks else {"ack": self._ack})}

    def _ack(self, tup: Tuple) -> None:
        """Settle a tuple. A second ack or fail is ignored and counted."""
        batch = tup.batch
        if batch.__class__ is not InputBatch:
            return  # a tick
        state = batch.state
        index = tup.index
        if state[index]:
            self.ignored_settles += 1
            return
        state[index] = ACKED
        if batch.closed:
            self._touch(batch)

    def _touch(self, batch: InputBatch) -> None:
        with self._lock:
            self._touched[id(batch)] = batch
            self._wake_if_idle()

    def begin_turn(self, batch: InputBatch) -> None:
        """Make this batch the current one."""
        self.batch = self.open_batch = batch

    def end_turn(self, batch: InputBatch) -> None:
        """Route the emitted rows and close the current batch. Other threads may emit and ack meanwhile."""
        self.open_batch = None
        self.route_pending()
        batch.closed = True
        self.batch = None
        if ACKED in batch.state:
            self._touch(batch)

    def ack(self, tup: Tuple) -> None:
        """Settle a tuple, and call the hooks unless it was settled before."""
        ignored = self.ignored_settles
        self._ack(tup)
        if self._hooks and self.ignored_settles == ignored:
            self._hooks.bolt_ack(tup)

    def ack_many(self, tuples: Tuple | Iterable[Tuple]) -> None:
        """Ack these tuples, or the open tuples of a whole batch."""
        if not isinstance(tuples, TupleBatch) or not isinstance(tuples.origin, InputBatch) or self._hooks:
            super().ack_many(tuples)
            return
        batch = tuples.origin
        with self._lock:
            batch.settle_rest(0, batch.count, ACKED)
            if batch.closed:
                self._touch(batch)

    def fail(self, tup: Tuple, reason: Any = None) -> None:
        """Fail the roots of a tuple. A second ack or fail is ignored and counted."""
        batch = tup.batch
        if self.deferred is not None and batch is self.batch and tup.index == self.index:
            self.deferred.fail(reason)
            return
        if batch.__class__ is InputBatch:
            if batch.state[tup.index]:
                self.ignored_settles += 1
                return
            text = "" if reason is None else str(reason)
            kind = FailKind.EXCEPTION if isinstance(reason, BaseException) else FailKind.FAILED
            if kind is FailKind.EXCEPTION:
                text = f"{type(reason).__name__}: {text}"
            with self._lock:
                batch.state[tup.index] = FAILED
                self._failures.add(batch, [tup.index], kind, text)
                self._wake_if_idle()
        if self._hooks:
            self._hooks.bolt_fail(tup)

    def fail_indices(self, batch: InputBatch, indices: list[int], error: BaseException, traceback: str) -> None:
        """Fail those of these tuples that are not settled, since user code raised."""
        open_indices = [i for i in indices if batch.state[i] == OPEN]
        for i in open_indices:
            batch.state[i] = FAILED
        if open_indices:
            self._failures.add(batch, open_indices, FailKind.EXCEPTION, f"{type(error).__name__}: {error}", traceback)

    def refused(self, roots: int) -> None:
        """Count roots that have failed here, by the stream of the batch read last."""
        if self._read is not None:
            self._failures.count(*self._read, FailKind.EXCEPTION, roots)

    # Routing.

    def route_pending(self) -> None:
        """Take the acks, draw the edges of the emitted rows, then add the edges to the acks.

        The order matters, since user code may emit and ack meanwhile: every row that was emitted before an ack must be
        routed before that ack is sent.
        """
        batches = [] if self.batch is None else [self.batch]
        if self._touched:
            touched, self._touched = self._touched, {}
            batches += touched.values()
        if batches:
            self._read = (batches[0].component, batches[0].stream, batches[0].arrived_ms)
        taken = [(batch, batch.take_acked()) for batch in batches]
        super().route_pending()
        self._anchor_sets.clear()
        for batch, acked in taken:
            if acked is not None:
                self._gather(batch, batch.settled(acked))

    def _gather(self, batch: InputBatch, settled: AckedTuples) -> None:
        self.newly_acked.append(((batch.component, batch.stream), batch.arrived_ms, settled.tuples))
        if settled.roots is not None:
            self._acked.append(settled)

    def unsent(self) -> bool:
        """Return True if acks wait for a flush."""
        return bool(self._acked)

    def fill(self, flush: Flush) -> None:
        """Add the acks gathered so far."""
        acked, self._acked = self._acked, []
        flush.acks = acks_by_task(acked)

    def _route(self, out: OutputStream, rows: list[Row], anchors: list[int], parts: list[RoutedRows]) -> None:
        if not self.tracked or not parts:
            self._route_untracked(out, parts)
            return
        places = np.array(anchors, dtype=np.int64)
        low, high = int(places.min()), int(places.max())
        is_tracked = self.batch is not None and self.batch.roots is not None
        if low >= UNANCHORED and (high < 0 or not is_tracked):
            self._route_untracked(out, parts)
        elif low >= 0 and self.batch is not None and self.batch.single:
            self._route_single(out, parts, places, self.batch)
        elif low >= UNANCHORED and self.batch is not None and self.batch.single:
            self._route_mixed(out, parts, places, self.batch)
        else:
            self._route_general(out, parts, anchors)

    def _route_single(self, out: OutputStream, parts: list[RoutedRows], places: Any, batch: InputBatch) -> None:
        """Route rows that are each anchored to one tuple of the current batch, which has one root per tuple."""
        assert batch.roots is not None
        for part in parts:
            anchors = places if part.at is EVERYTHING else places[part.at]
            roots = batch.roots[anchors]
            for task in part.tasks:
                keys = self._draw(len(part.rows))
                batch.draw_edges(anchors, keys)
                self._outbox.add((task,), RoutedSegment(out.number, RootColumns.SINGLE, part.rows, roots, keys))

    def _route_mixed(self, out: OutputStream, parts: list[RoutedRows], places: Any, batch: InputBatch) -> None:
        """Route rows of which some are anchored to one tuple and others to none."""
        assert batch.roots is not None
        for part in parts:
            anchors = places[part.at]
            mask = anchors >= 0
            anchored = anchors[mask]
            roots, widths = batch.roots[anchored], mask.astype(np.uint32)
            for task in part.tasks:
                keys = self._draw(len(anchored))
                batch.draw_edges(anchored, keys)
                self._outbox.add((task,), RoutedSegment(out.number, RootColumns.MANY, part.rows, roots, keys, widths))

    def _route_general(self, out: OutputStream, parts: list[RoutedRows], anchors: list[int]) -> None:
        """Route rows with several anchors, anchors of older batches, or tuples with several roots."""
        every = range(len(anchors))
        for part in parts:
            places = every[part.at] if isinstance(part.at, slice) else part.at.tolist()
            for task in part.tasks:
                roots: list[int] = []
                keys: list[int] = []
                widths = np.zeros(len(part.rows), dtype=np.uint32)
                for row, place in enumerate(places):
                    copy_keys = self._draw_copy(anchors[place])
                    widths[row] = len(copy_keys)
                    roots += copy_keys.keys()
                    keys += copy_keys.values()
                columns = np.array(roots, dtype=np.uint64), np.array(keys, dtype=np.uint64)
                self._outbox.add((task,), RoutedSegment(out.number, RootColumns.MANY, part.rows, *columns, widths))

    def _draw_copy(self, anchor: int) -> dict[int, int]:
        """Draw a key for each edge of one copy. Return the key of the copy for each of its roots."""
        if anchor == UNANCHORED:
            return {}
        anchors: AnchorSet = ((self.batch, anchor),) if anchor >= 0 else self._anchor_sets[UNANCHORED - 1 - anchor]
        copy_keys: dict[int, int] = {}
        for batch, index in anchors:
            key = int(self._draw())
            batch.draw_edge(index, key)
            for root in batch.roots_of(index):
                copy_keys[root] = copy_keys.get(root, 0) ^ key
        return copy_keys

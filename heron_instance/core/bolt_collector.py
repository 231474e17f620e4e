"""What a bolt emits, acks and fails: anchors, edge keys, columns.

``emit`` appends a row and one number, its *mark*: the index of its anchor in the batch in hand, or -1 (no anchor), or
-2 - k for the k-th entry of ``_anchor_sets`` (several anchors, or one of an older batch). ``book`` does the rest when
the batch's turn ends or a flush is due: it splits the rows by the groupings, draws a key for every edge (anchor to
copy), gives it to the copy and to the anchor. Where every mark is an index into a batch with one root a tuple, all of
that is array arithmetic; whatever is rarer takes the general way, tuple by tuple.

``ack`` and ``fail`` set a byte in the tuple's batch. Acks are gathered after the edges are booked, so an ack always
carries every edge drawn on its tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from heron_instance.core.failures import Failures
from heron_instance.core.groupings import EVERYTHING, Part
from heron_instance.core.input_batch import ACKED, FAILED, OPEN, InputBatch, Settled, acks_by_task
from heron_instance.core.outbox import Outbox, Segment, Shape
from heron_instance.core.streams import KEY_TYPES, OutputStream, Router
from heronry.api.tuples import Tuple, TupleBatch
from heronry.model.ids import DEFAULT_STREAM
from heronry.model.reasons import FailKind
from heronry.wire.data import Ack

UNANCHORED = -1
AnchorSet = tuple[tuple[Any, int], ...]  # (batch, index) of each anchor


class BoltCollector:
    """The collector of one bolt task. ``auto_anchor``: emits hang on the tuple at ``index`` (BasicBolt)."""

    def __init__(
        self,
        router: Router,
        outbox: Outbox,
        failures: Failures,
        rng: np.random.Generator,
        tracked: bool,
        auto_anchor: bool,
    ) -> None:
        self.streams = router.streams
        self.tracked = tracked
        self.auto_anchor = auto_anchor
        self.batch: InputBatch | None = None  # the batch in hand
        self.index = UNANCHORED  # the tuple in hand, kept by the executor for BasicBolt
        self.ignored_settles = 0
        self._outbox = outbox
        self._failures = failures
        self._draw = rng.bit_generator.random_raw
        self._anchor_sets: list[AnchorSet] = []
        self._touched: dict[int, InputBatch] = {}  # older batches with new acks
        self._acked: list[Settled] = []
        # (source, when its batch arrived, acked tuples), for whoever counts
        self.newly_acked: list[tuple[tuple[str, str], float, int]] = []
        self.emit: Callable[..., list[int] | None] = self.emit_carefully
        default = self.streams.get(DEFAULT_STREAM)
        if default is not None and default.simple:
            self.emit = self._fast_emit(default)

    # Emitting.

    def _fast_emit(self, out: OutputStream) -> Callable[..., list[int] | None]:
        """``emit`` for the common case: nothing to decide, and one anchor of the batch in hand or none."""
        rows, marks, width, carefully = out.rows, out.marks, out.width, self.emit_carefully
        key = out.key_positions[0] if out.key_positions else None
        row_of, check_keys, wrong_width, mark_of = out.row_of, out.check_keys, out.wrong_width, self.mark_of
        tracked, auto_anchor, collector = self.tracked, self.auto_anchor, self

        def emit(
            values: Any = None,
            stream: str = DEFAULT_STREAM,
            anchors: Any = None,
            direct_task: int | None = None,
            need_task_ids: bool = False,
            tup: Any = None,
        ) -> list[int] | None:
            if stream is not DEFAULT_STREAM or direct_task is not None or need_task_ids:
                return carefully(values, stream, anchors, direct_task, need_task_ids, tup)
            if values.__class__ is not tuple:
                values = tuple(values) if values.__class__ is list else row_of(values, tup)
            if len(values) != width:
                raise wrong_width(values)
            if key is not None and values[key].__class__ not in KEY_TYPES:
                check_keys(values)
            if tracked:
                if anchors.__class__ is list and len(anchors) == 1:
                    anchors = anchors[0]
                batch = collector.batch
                if (
                    anchors.__class__ is Tuple
                    and anchors.batch is batch
                    and batch is not None
                    and not batch.state[anchors.index]
                ):
                    marks.append(anchors.index)
                elif anchors is None:
                    marks.append(collector.index if auto_anchor else UNANCHORED)
                else:
                    marks.append(mark_of(anchors))
            rows.append(values)
            return None

        return emit

    def emit_carefully(
        self,
        values: Any = None,
        stream: str = DEFAULT_STREAM,
        anchors: Any = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Any = None,
    ) -> list[int] | None:
        """``emit`` with everything: any stream, direct tasks, task ids."""
        out = self._stream(stream)
        row = out.checked_row(values, tup, direct_task)
        mark = self.mark_of(anchors) if self.tracked else UNANCHORED
        if need_task_ids:
            self.book_stream(out)
        for sibling in out.siblings:
            if sibling.rows:
                self.book_stream(sibling)
        if out.deciders:
            out.decide(row, direct_task)
        if self.tracked:
            out.marks.append(mark)
        out.rows.append(row)
        return self.book_stream(out) if need_task_ids else None

    def emit_many(
        self,
        rows: Iterable[Sequence[Any]],
        stream: str = DEFAULT_STREAM,
        anchors: Any = None,
        one_to_one: bool = False,
    ) -> None:
        """Many emits at once, all with the same anchors, or row i anchored to ``anchors[i]`` if ``one_to_one``."""
        out = self._stream(stream)
        many = out.rows_of(rows)
        each: Any = anchors if one_to_one else None
        if each is not None and not isinstance(each, Sequence):
            each = list(each)
        if each is not None and len(each) != len(many):
            raise ValueError(f"{out.where}: emit_many got {len(many)} rows and {len(each)} anchors")
        if not out.bulk:
            shared = anchors if anchors is None or isinstance(anchors, Tuple) else list(anchors)
            for place, row in enumerate(many):
                self.emit_carefully(row, stream, shared if each is None else each[place])
            return
        marks: Iterable[int] = ()
        if self.tracked:
            marks = [self.mark_of(anchors)] * len(many) if each is None else self._marks_of(each)
        for sibling in out.siblings:
            if sibling.rows:
                self.book_stream(sibling)
        out.marks.extend(marks)
        out.rows.extend(many)

    def _marks_of(self, anchors: Sequence[Tuple]) -> Iterable[int]:
        batch = self.batch
        if batch is not None and isinstance(anchors, TupleBatch) and anchors.origin is batch and not any(batch.state):
            return range(len(anchors))  # the whole batch in hand, nothing of it settled
        return [self.mark_of(anchor) for anchor in anchors]

    def _stream(self, name: str) -> OutputStream:
        out = self.streams.get(name)
        if out is None:
            raise ValueError(
                f"no stream {name!r} (streams: {', '.join(self.streams) or 'none'}): declare it in outputs"
            )
        return out

    def mark_of(self, anchors: Any) -> int:
        """The mark for these anchors. Raises ValueError for a settled one, TypeError for what is no tuple."""
        if anchors is None:
            return self.index if self.auto_anchor else UNANCHORED
        found = (anchors,) if isinstance(anchors, Tuple) else tuple(anchors)
        hung: list[tuple[Any, int]] = []
        for anchor in found:
            if not isinstance(anchor, Tuple):
                raise TypeError(f"an anchor must be an input tuple, not {type(anchor).__name__}")
            if not isinstance(anchor.batch, InputBatch):
                continue  # a tick hangs on nothing
            if anchor.batch.state[anchor.index] != OPEN:
                raise ValueError(f"{anchor!r} is acked or failed already and cannot be an anchor: emit first, then ack")
            if anchor.batch is self.batch and len(found) == 1:
                return anchor.index
            if anchor.batch.roots is not None:
                hung.append((anchor.batch, anchor.index))
        if not hung:
            return UNANCHORED
        self._anchor_sets.append(tuple(hung))
        return UNANCHORED - len(self._anchor_sets)

    # Acking and failing.

    def ack(self, tup: Tuple) -> None:
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
            self._touched[id(batch)] = batch

    def ack_many(self, tuples: Tuple | Iterable[Tuple]) -> None:
        """Ack these tuples, or what is open of a whole batch."""
        if isinstance(tuples, TupleBatch) and isinstance(tuples.origin, InputBatch):
            batch = tuples.origin
            batch.settle_rest(0, batch.count, ACKED)
            if batch.closed:
                self._touched[id(batch)] = batch
            return
        for tup in (tuples,) if isinstance(tuples, Tuple) else tuples:
            self.ack(tup)

    def fail(self, tup: Tuple, reason: Any = None) -> None:
        """Fail a tuple's roots. A second ack or fail is ignored and counted."""
        batch = tup.batch
        if batch.__class__ is not InputBatch:
            return
        if batch.state[tup.index]:
            self.ignored_settles += 1
            return
        batch.state[tup.index] = FAILED
        text = "" if reason is None else str(reason)
        kind = FailKind.EXCEPTION if isinstance(reason, BaseException) else FailKind.FAILED
        if kind is FailKind.EXCEPTION:
            text = f"{type(reason).__name__}: {text}"
        self._failures.add(batch, [tup.index], kind, text)

    def fail_indices(self, batch: InputBatch, indices: list[int], error: BaseException, traceback: str) -> None:
        """User code raised: fail those of these tuples that are not settled."""
        still = [i for i in indices if batch.state[i] == OPEN]
        for i in still:
            batch.state[i] = FAILED
        if still:
            self._failures.add(batch, still, FailKind.EXCEPTION, f"{type(error).__name__}: {error}", traceback)

    # Booking.

    def waiting(self) -> int:
        """Rows emitted and not yet booked."""
        return sum(len(out.rows) for out in self.streams.values())

    def book(self) -> None:
        """Book the edges of what was emitted, then gather acks."""
        for out in self.streams.values():
            if out.rows:
                self.book_stream(out)
        self._anchor_sets.clear()
        if self.batch is not None:
            self._gather(self.batch)
        if self._touched:
            touched, self._touched = self._touched, {}
            for batch in touched.values():
                self._gather(batch)

    def _gather(self, batch: InputBatch) -> None:
        settled = batch.collect()
        if settled.tuples:
            self.newly_acked.append(((batch.component, batch.stream), batch.arrived_ms, settled.tuples))
            if settled.roots is not None:
                self._acked.append(settled)

    def has_acks(self) -> bool:
        """True if acks wait for a flush."""
        return bool(self._acked)

    def take_acks(self) -> list[Ack]:
        """The acks gathered since the last call."""
        acked, self._acked = self._acked, []
        return acks_by_task(acked)

    def book_stream(self, out: OutputStream) -> list[int]:
        """Book what waits in one stream; returns the tasks that get a copy."""
        rows, marks = out.take()
        if not rows:
            return []
        parts = [part for grouping in out.groupings for part in grouping.split(rows)]
        if not self.tracked or not parts:
            self._book_untracked(out, parts)
            return [task for part in parts for task in part.tasks]
        places = np.array(marks, dtype=np.int64)
        low, high = int(places.min()), int(places.max())
        in_hand = self.batch is not None and self.batch.roots is not None
        if low >= UNANCHORED and (high < 0 or not in_hand):
            self._book_untracked(out, parts)
        elif low >= 0 and self.batch is not None and self.batch.single:
            self._book_single(out, parts, places, self.batch)
        elif low >= UNANCHORED and self.batch is not None and self.batch.single:
            self._book_mixed(out, parts, places, self.batch)
        else:
            self._book_general(out, parts, marks)
        return [task for part in parts for task in part.tasks]

    def _book_untracked(self, out: OutputStream, parts: list[Part]) -> None:
        for part in parts:
            self._outbox.add(part.tasks, Segment(out.number, Shape.UNTRACKED, part.rows))

    def _book_single(self, out: OutputStream, parts: list[Part], places: Any, batch: InputBatch) -> None:
        """Every row hangs on one tuple of the batch in hand, which has one root."""
        assert batch.roots is not None
        for part in parts:
            anchors = places if part.at is EVERYTHING else places[part.at]
            roots = batch.roots[anchors]
            for task in part.tasks:
                keys = self._draw(len(part.rows))
                batch.draw_edges(anchors, keys)
                self._outbox.add((task,), Segment(out.number, Shape.SINGLE, part.rows, roots, keys))

    def _book_mixed(self, out: OutputStream, parts: list[Part], places: Any, batch: InputBatch) -> None:
        """The same, but some rows hang on nothing."""
        assert batch.roots is not None
        for part in parts:
            anchors = places[part.at]
            mask = anchors >= 0
            hung = anchors[mask]
            roots, widths = batch.roots[hung], mask.astype(np.uint32)
            for task in part.tasks:
                keys = self._draw(len(hung))
                batch.draw_edges(hung, keys)
                self._outbox.add((task,), Segment(out.number, Shape.MANY, part.rows, roots, keys, widths))

    def _book_general(self, out: OutputStream, parts: list[Part], marks: list[int]) -> None:
        """Several anchors, anchors of older batches, tuples with several roots: one by one."""
        every = range(len(marks))
        for part in parts:
            places = every[part.at] if isinstance(part.at, slice) else part.at.tolist()
            for task in part.tasks:
                roots: list[int] = []
                keys: list[int] = []
                widths = np.zeros(len(part.rows), dtype=np.uint32)
                for row, place in enumerate(places):
                    hung = self._draw_copy(marks[place])
                    widths[row] = len(hung)
                    roots += hung.keys()
                    keys += hung.values()
                columns = np.array(roots, dtype=np.uint64), np.array(keys, dtype=np.uint64)
                self._outbox.add((task,), Segment(out.number, Shape.MANY, part.rows, *columns, widths))

    def _draw_copy(self, mark: int) -> dict[int, int]:
        """A key for each edge of one copy; returns the copy's key for each of its roots."""
        if mark == UNANCHORED:
            return {}
        anchors: AnchorSet = ((self.batch, mark),) if mark >= 0 else self._anchor_sets[UNANCHORED - 1 - mark]
        hung: dict[int, int] = {}
        for batch, index in anchors:
            key = int(self._draw())
            batch.draw_edge(index, key)
            for root in batch.roots_of(index):
                hung[root] = hung.get(root, 0) ^ key
        return hung

"""What a spout emits: roots, edge keys, inits.

``emit`` appends a row and its message id, no more. ``book`` does the rest for a whole run of emits: it numbers the
tracked rows (a row that goes to no task is not numbered but acked at once), splits the run by the groupings, draws one
key for every copy, and gives the XOR of a root's keys to its init. One booking never cuts an emit in two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from heron_instance.core.groupings import EVERYTHING, Part, Row
from heron_instance.core.outbox import U64, Outbox, Segment, Shape
from heron_instance.core.pending import PendingTable
from heron_instance.core.streams import KEY_TYPES, OutputStream, Router
from heronry.model.ids import DEFAULT_STREAM, SEQUENCE_MASK, root_base
from heronry.wire.data import Init


class SpoutCollector:
    """The collector of one spout task. ``tracked``: reliability is on."""

    def __init__(
        self,
        router: Router,
        outbox: Outbox,
        pending: PendingTable,
        rng: np.random.Generator,
        task: int,
        incarnation: int,
        tracked: bool,
        clock: Callable[[], float],
    ) -> None:
        self.streams = router.streams
        self.tracked = tracked
        self.at_once: list[Any] = []  # message ids to be acked as soon as the call has returned
        self._outbox = outbox
        self._pending = pending
        self._draw = rng.bit_generator.random_raw
        self._task = task
        self._base = root_base(task, incarnation)
        self._clock = clock
        self._sequence = 0
        self._inits: list[tuple[int, U64]] = []
        self.emit: Callable[..., list[int] | None] = self.emit_carefully
        default = self.streams.get(DEFAULT_STREAM)
        if default is not None and default.simple:
            self.emit = self._fast_emit(default)

    def _fast_emit(self, out: OutputStream) -> Callable[..., list[int] | None]:
        """``emit`` for the common case: nothing to decide but whether the values fit."""
        rows, marks, width, carefully = out.rows, out.marks, out.width, self.emit_carefully
        key = out.key_positions[0] if out.key_positions else None
        row_of, check_keys, wrong_width = out.row_of, out.check_keys, out.wrong_width
        at_once, tracked = self.at_once, self.tracked

        def emit(
            values: Any = None,
            tup_id: Any = None,
            stream: str = DEFAULT_STREAM,
            direct_task: int | None = None,
            need_task_ids: bool = False,
            tup: Any = None,
        ) -> list[int] | None:
            if stream is not DEFAULT_STREAM or direct_task is not None or need_task_ids:
                return carefully(values, tup_id, stream, direct_task, need_task_ids, tup)
            if values.__class__ is not tuple:
                values = tuple(values) if values.__class__ is list else row_of(values, tup)
            if len(values) != width:
                raise wrong_width(values)
            if key is not None and values[key].__class__ not in KEY_TYPES:
                check_keys(values)
            if tracked:
                marks.append(tup_id)
            elif tup_id is not None:
                at_once.append(tup_id)
            rows.append(values)
            return None

        return emit

    def emit_carefully(
        self,
        values: Any = None,
        tup_id: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Any = None,
    ) -> list[int] | None:
        """``emit`` with everything: any stream, direct tasks, task ids."""
        out = self._stream(stream)
        row = out.checked_row(values, tup, direct_task)
        if need_task_ids:
            self.book_stream(out)
        for sibling in out.siblings:
            if sibling.rows:
                self.book_stream(sibling)
        if out.deciders:
            out.decide(row, direct_task)
        if self.tracked:
            out.marks.append(tup_id)
        elif tup_id is not None:
            self.at_once.append(tup_id)
        out.rows.append(row)
        return self.book_stream(out) if need_task_ids else None

    def emit_many(
        self,
        rows: Iterable[Sequence[Any]],
        tup_ids: Iterable[Any] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Many emits at once."""
        out = self._stream(stream)
        many = out.rows_of(rows)
        ids = [None] * len(many) if tup_ids is None else list(tup_ids)
        if len(ids) != len(many):
            raise ValueError(f"{out.where}: emit_many got {len(many)} rows and {len(ids)} tup_ids")
        if not out.bulk:
            for row, tup_id in zip(many, ids, strict=True):
                self.emit_carefully(row, tup_id, stream)
            return
        for sibling in out.siblings:
            if sibling.rows:
                self.book_stream(sibling)
        out.rows.extend(many)
        if self.tracked:
            out.marks.extend(ids)
        else:
            self.at_once.extend(tup_id for tup_id in ids if tup_id is not None)

    def _stream(self, name: str) -> OutputStream:
        out = self.streams.get(name)
        if out is None:
            raise ValueError(
                f"no stream {name!r} (streams: {', '.join(self.streams) or 'none'}): declare it in outputs"
            )
        return out

    def waiting(self) -> int:
        """Rows emitted and not yet booked."""
        return sum(len(out.rows) for out in self.streams.values())

    def book(self) -> None:
        """Book what waits in every stream."""
        for out in self.streams.values():
            if out.rows:
                self.book_stream(out)

    def book_stream(self, out: OutputStream) -> list[int]:
        """Book what waits in one stream; returns the tasks that get a copy."""
        rows, ids = out.take()
        if not rows:
            return []
        parts = [part for grouping in out.groupings for part in grouping.split(rows)]
        if not self.tracked or ids.count(None) == len(rows):
            for part in parts:
                self._outbox.add(part.tasks, Segment(out.number, Shape.UNTRACKED, part.rows))
        elif None not in ids and out.always_copied():
            self._book_all(out, rows, ids, parts)
        else:
            self._book_some(out, rows, ids, parts)
        return [task for part in parts for task in part.tasks]

    def _book_all(self, out: OutputStream, rows: list[Row], ids: list[Any], parts: list[Part]) -> None:
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

    def _book_some(self, out: OutputStream, rows: list[Row], ids: list[Any], parts: list[Part]) -> None:
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

    def take_inits(self) -> list[Init]:
        """The inits since the last call, consecutive ones joined."""
        joined: list[tuple[int, list[U64], int]] = []
        for first, xors in self._inits:
            if joined and joined[-1][0] + joined[-1][2] == first:
                before = joined[-1]
                joined[-1] = (before[0], [*before[1], xors], before[2] + len(xors))
            else:
                joined.append((first, [xors], len(xors)))
        self._inits = []
        return [Init(self._task, first, b"".join(x.tobytes() for x in parts)) for first, parts, _ in joined]

"""A spout that drops data which has grown too old (Heron paper, section 5.4.2).

Under backpressure data piles up at the source. With ``topology.spout.drop.older.ms`` set, a spout that says how old its
data is, by a method ``emit_time_ms(values)`` (milliseconds since 1970), emits no tuple older than that: it is counted,
and its message id is acked at once, so that the source lets go of it. Made only when the setting is there, so that
others pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heronry.model.ids import DEFAULT_STREAM


class DroppingSpoutCollector:
    """Lets tuples through that are young enough."""

    def __init__(
        self,
        collector: Any,
        emit_time_ms: Callable[[Any], float],
        limit_ms: float,
        wall: Callable[[], float],
        at_once: list[Any],
    ) -> None:
        self._collector = collector
        self._emit_time_ms = emit_time_ms
        self._limit_ms = limit_ms
        self._wall = wall
        self._at_once = at_once  # message ids to be acked as soon as the call has returned
        self._dropped = 0

    def take_dropped(self) -> int:
        """How many were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def emit(
        self,
        values: Any = None,
        tup_id: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Any = None,
    ) -> list[int] | None:
        """Emit, or drop."""
        if not self._too_old(values if values is not None else tup):
            emitted: list[int] | None = self._collector.emit(values, tup_id, stream, direct_task, need_task_ids, tup)
            return emitted
        self._drop(tup_id)
        return [] if need_task_ids else None

    def emit_many(
        self, rows: Iterable[Sequence[Any]], tup_ids: Iterable[Any] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit those that are young enough."""
        rows = list(rows)
        ids = [None] * len(rows) if tup_ids is None else list(tup_ids)
        young: list[tuple[Sequence[Any], Any]] = []
        for row, tup_id in zip(rows, ids, strict=True):
            if self._too_old(row):
                self._drop(tup_id)
            else:
                young.append((row, tup_id))
        kept_ids = None if tup_ids is None else [tup_id for _, tup_id in young]
        self._collector.emit_many([row for row, _ in young], kept_ids, stream)

    def _too_old(self, values: Any) -> bool:
        return 1000 * self._wall() - self._emit_time_ms(values) > self._limit_ms

    def _drop(self, tup_id: Any) -> None:
        self._dropped += 1
        if tup_id is not None:
            self._at_once.append(tup_id)

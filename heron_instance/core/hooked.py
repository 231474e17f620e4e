"""Collectors with task hooks around them. Made only when a hook is registered, so that others pay nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heronry.api.hooks import BoltAckInfo, BoltFailInfo, EmitInfo
from heronry.api.tuples import Tuple
from heronry.model.ids import DEFAULT_STREAM

CallHooks = Callable[[str, Any], None]


class HookedSpoutCollector:
    """Tells hooks of each emit of a spout."""

    def __init__(self, collector: Any, task: int, call: CallHooks) -> None:
        self._collector = collector
        self._task = task
        self._call = call

    def emit(
        self,
        values: Any = None,
        tup_id: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Any = None,
    ) -> list[int] | None:
        """Emit, then tell."""
        tasks: list[int] | None = self._collector.emit(values, tup_id, stream, direct_task, need_task_ids, tup)
        row = tuple(values if values is not None else tup)
        self._call("emit", EmitInfo(row, stream, self._task, tup_id, direct_task))
        return tasks

    def emit_many(
        self, rows: Iterable[Sequence[Any]], tup_ids: Iterable[Any] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit one by one."""
        rows = list(rows)
        ids = [None] * len(rows) if tup_ids is None else list(tup_ids)
        for row, tup_id in zip(rows, ids, strict=True):
            self.emit(row, tup_id, stream)


class HookedBoltCollector:
    """Tells hooks of each emit, ack and fail of a bolt."""

    def __init__(self, collector: Any, task: int, call: CallHooks, clock: Callable[[], float]) -> None:
        self._collector = collector
        self._task = task
        self._call = call
        self._clock = clock

    def emit(
        self,
        values: Any = None,
        stream: str = DEFAULT_STREAM,
        anchors: Any = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Any = None,
    ) -> list[int] | None:
        """Emit, then tell."""
        tasks: list[int] | None = self._collector.emit(values, stream, anchors, direct_task, need_task_ids, tup)
        row = tuple(values if values is not None else tup)
        self._call("emit", EmitInfo(row, stream, self._task, None, direct_task))
        return tasks

    def emit_many(
        self,
        rows: Iterable[Sequence[Any]],
        stream: str = DEFAULT_STREAM,
        anchors: Any = None,
        one_to_one: bool = False,
    ) -> None:
        """Emit one by one."""
        hung = anchors if anchors is None or isinstance(anchors, Tuple) else list(anchors)
        for place, row in enumerate(rows):
            self.emit(row, stream, hung[place] if one_to_one and hung is not None else hung)

    def ack(self, tup: Tuple) -> None:
        """Ack, then tell, unless it was settled already."""
        ignored = self._collector.ignored_settles
        self._collector.ack(tup)
        if self._collector.ignored_settles == ignored:
            self._call("bolt_ack", BoltAckInfo(tup, self._task, self.age_ms(tup)))

    def ack_many(self, tuples: Tuple | Iterable[Tuple]) -> None:
        """Ack one by one."""
        for tup in (tuples,) if isinstance(tuples, Tuple) else tuples:
            self.ack(tup)

    def fail(self, tup: Tuple, reason: Any = None) -> None:
        """Fail, then tell, unless it was settled already."""
        ignored = self._collector.ignored_settles
        self._collector.fail(tup, reason)
        if self._collector.ignored_settles == ignored:
            self._call("bolt_fail", BoltFailInfo(tup, self._task, self.age_ms(tup)))

    def age_ms(self, tup: Tuple) -> float:
        """Time since the tuple arrived; 0 for a tick."""
        arrived: float | None = getattr(tup.batch, "arrived_ms", None)
        return 0.0 if arrived is None else self._clock() * 1000 - arrived

"""A collector for unit tests of user code: remembers what a component emits, acks and fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heronry.api.component import Component, Spout
from heronry.api.tuples import Tuple
from heronry.model.ids import DEFAULT_STREAM


class Emitted(NamedTuple):
    """One emit."""

    values: tuple[Any, ...]
    stream: str = DEFAULT_STREAM
    tup_id: Any = None
    anchors: tuple[Tuple, ...] = ()
    direct_task: int | None = None


@dataclass
class Recorder:
    """``recorder = Recorder.attach(bolt)``; then call the bolt and look at the lists."""

    emitted: list[Emitted]
    acked: list[Tuple]
    failed: list[tuple[Tuple, Any]]

    @classmethod
    def attach(cls, component: Component) -> Recorder:
        """Record what ``component`` does from now on."""
        recorder = cls([], [], [])
        side = _SpoutSide(recorder) if isinstance(component, Spout) else _BoltSide(recorder)
        component.attach(side)
        return recorder

    def values(self, stream: str = DEFAULT_STREAM) -> list[tuple[Any, ...]]:
        """What was emitted to one stream."""
        return [emit.values for emit in self.emitted if emit.stream == stream]


class _SpoutSide:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def emit(
        self,
        values: Sequence[Any] | None = None,
        tup_id: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Sequence[Any] | None = None,
    ) -> list[int] | None:
        row = tuple(values if values is not None else tup or ())
        self._recorder.emitted.append(Emitted(row, stream, tup_id, (), direct_task))
        return [] if need_task_ids else None

    def emit_many(
        self, rows: Iterable[Sequence[Any]], tup_ids: Iterable[Any] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        if tup_ids is None:
            for row in rows:
                self.emit(row, None, stream)
        else:
            for row, tup_id in zip(rows, tup_ids, strict=True):
                self.emit(row, tup_id, stream)


class _BoltSide:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def emit(
        self,
        values: Sequence[Any] | None = None,
        stream: str = DEFAULT_STREAM,
        anchors: Tuple | Iterable[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Sequence[Any] | None = None,
    ) -> list[int] | None:
        row = tuple(values if values is not None else tup or ())
        hung = () if anchors is None else (anchors,) if isinstance(anchors, Tuple) else tuple(anchors)
        self._recorder.emitted.append(Emitted(row, stream, None, hung, direct_task))
        return [] if need_task_ids else None

    def emit_many(
        self,
        rows: Iterable[Sequence[Any]],
        stream: str = DEFAULT_STREAM,
        anchors: Tuple | Iterable[Tuple] | None = None,
        one_to_one: bool = False,
    ) -> None:
        hung = anchors if anchors is None or isinstance(anchors, Tuple) else tuple(anchors)
        for place, row in enumerate(rows):
            self.emit(row, stream, hung[place] if one_to_one and isinstance(hung, tuple) else hung)

    def ack(self, tup: Tuple) -> None:
        self._recorder.acked.append(tup)

    def ack_many(self, tuples: Tuple | Iterable[Tuple]) -> None:
        self._recorder.acked.extend((tuples,) if isinstance(tuples, Tuple) else tuples)

    def fail(self, tup: Tuple, reason: Any = None) -> None:
        self._recorder.failed.append((tup, reason))

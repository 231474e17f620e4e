"""Recorder of emits, acks and fails, for unit tests of components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from heron_runtime.model.ids import DEFAULT_STREAM
from heronry.api.collector import Collector
from heronry.api.component import Component, Spout, bind_collector, bind_state
from heronry.api.tuples import Tuple


class Emitted(NamedTuple):
    """Recorded emit.

    Attributes:
        values: The emitted values.
        stream: Name of the stream.
        tup_id: Message id of a spout's tuple.
        anchors: Tuples that a bolt has anchored the emit to.
        direct_task: Task of a direct emit, or None.
    """

    values: tuple[Any, ...]
    stream: str = DEFAULT_STREAM
    tup_id: Any = None
    anchors: tuple[Tuple, ...] = ()
    direct_task: int | None = None


class KeyedStateStub(dict[Any, Any]):
    """Stub of ``self.keyed`` for unit tests. Entries do not expire."""

    def __init__(self, component: Component) -> None:
        super().__init__()
        self._component = component

    def owned(self) -> list[str]:
        """Return all splits that the spout lists, as a test has one task. Calls ``splits`` each time."""
        listed = self._component.splits() if isinstance(self._component, Spout) else ()
        return list(dict.fromkeys(split if isinstance(split, str) else split[0] for split in listed))

    def put(self, key: Any, value: Any, ttl: float | None = None) -> None:
        """Set the value of a key. ``ttl`` is ignored."""
        self[key] = value

    def peek(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return self.get(key, default)


@dataclass
class Recorder:
    """Recorder of the emits, acks and fails of a component under test.

    Create it with ``recorder = Recorder.attach(bolt)``.

    Attributes:
        emitted: Emits, in order.
        acked: Acknowledged tuples, in order.
        failed: Failed tuples with the reasons, in order.
    """

    emitted: list[Emitted]
    acked: list[Tuple]
    failed: list[tuple[Tuple, Any]]

    @classmethod
    def attach(cls, component: Component) -> Recorder:
        """Start recording the emits, acks and fails of a component.

        Args:
            component: The spout or bolt to test.

        Returns:
            The recorder.
        """
        recorder = cls([], [], [])
        bind_state(component, KeyedStateStub(component), {})
        bind_collector(component, RecordingCollector(recorder, isinstance(component, Spout)))
        return recorder

    def values(self, stream: str = DEFAULT_STREAM) -> list[tuple[Any, ...]]:
        """Return the values emitted to one stream, in order."""
        return [emit.values for emit in self.emitted if emit.stream == stream]


class RecordingCollector(Collector):
    """Collector that appends to the lists of a recorder. The anchor of a spout's emit is its message id."""

    def __init__(self, recorder: Recorder, of_spout: bool) -> None:
        self._recorder = recorder
        self._of_spout = of_spout

    def emit_row(
        self,
        values: Any,
        anchor: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Record an emit."""
        row = () if values is None else tuple(values)
        if self._of_spout:
            emitted = Emitted(row, stream, anchor, (), direct_task)
        else:
            hung = () if anchor is None else (anchor,) if isinstance(anchor, Tuple) else tuple(anchor)
            emitted = Emitted(row, stream, None, hung, direct_task)
        self._recorder.emitted.append(emitted)
        return [] if need_task_ids else None

    def ack(self, tup: Tuple) -> None:
        """Record an ack."""
        self._recorder.acked.append(tup)

    def fail(self, tup: Tuple, reason: Any = None) -> None:
        """Record a fail with its reason."""
        self._recorder.failed.append((tup, reason))

"""Collectors: receivers of the emits, acks and fails of components.

``Spout.emit`` and ``Bolt.emit`` call ``emit_row`` with an *anchor*: the message id of a spout, or the input tuples that
a bolt names. The two collectors of the runtime (``heron_instance.core``) and the recorder of ``heronry.testing`` derive
from ``Collector``. A component without a runtime has a plain ``Collector``, which raises RuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from heron_runtime.model.ids import DEFAULT_STREAM
from heronry.api.tuples import Tuple


class Collector:
    """Receiver of the emits, acks and fails of a component."""

    def shortcuts(self) -> Mapping[str, Callable[..., Any]]:
        """Return functions that replace methods of the component, by name, to save a call."""
        return {}

    def emit_row(
        self,
        values: Any,
        anchor: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit one row. Returns the receiving tasks if ``need_task_ids``."""
        raise _no_runtime("emit")

    def emit_rows(
        self, rows: Iterable[Any], anchors: Any = None, one_to_one: bool = False, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit many rows, all with the same anchors, or row i with anchor i if ``one_to_one``."""
        if one_to_one and anchors is not None:
            for row, anchor in zip(rows, anchors, strict=True):
                self.emit_row(row, anchor, stream)
            return
        anchors = anchors if anchors is None or isinstance(anchors, Tuple) else list(anchors)
        for row in rows:
            self.emit_row(row, anchors, stream)

    def ack(self, tup: Tuple) -> None:
        """Ack an input tuple of a bolt."""
        raise _no_runtime("ack")

    def ack_many(self, tuples: Tuple | Iterable[Tuple]) -> None:
        """Ack one or several input tuples."""
        for tup in (tuples,) if isinstance(tuples, Tuple) else tuples:
            self.ack(tup)

    def fail(self, tup: Tuple, reason: Any = None) -> None:
        """Fail an input tuple of a bolt."""
        raise _no_runtime("fail")

    def poll(self) -> None:
        """Call pending acks and fails of a spout during a long call."""


def _no_runtime(name: str) -> RuntimeError:
    return RuntimeError(
        f"{name}() needs a running topology. To try a component on its own, attach a recorder before you call it: "
        "`from heronry.testing import Recorder; recorder = Recorder.attach(component)`, then look at "
        "recorder.emitted, recorder.acked and recorder.failed"
    )
